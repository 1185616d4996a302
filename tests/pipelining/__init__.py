"""The pipelining wing, and its oracle."""
