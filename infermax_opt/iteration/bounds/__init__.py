"""Bounds on the seconds per value of a batch, and how many real-time requests can be kept."""
