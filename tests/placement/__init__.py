"""The placement wing, and its oracle."""
