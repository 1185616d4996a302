"""The makespan wing, and its oracle."""
