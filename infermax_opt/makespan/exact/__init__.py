"""The exact engine for small instances."""
