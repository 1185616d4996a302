"""Lower bounds on the number of workers."""
