"""Local improvement of a schedule."""
