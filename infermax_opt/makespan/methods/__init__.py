"""The methods of the paper, by name."""
