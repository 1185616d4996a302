"""Lower bounds on workers over time."""
