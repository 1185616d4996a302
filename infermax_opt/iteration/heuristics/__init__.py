"""Selections without a proof: the paper's algorithm, and greedy ones."""
