"""Beam search over how many requests in memory have made how many tokens."""
