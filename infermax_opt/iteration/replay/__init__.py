"""What a selection does: the rules that it breaks, and its metrics."""
