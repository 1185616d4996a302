"""Beam search from the last batch to the first."""
