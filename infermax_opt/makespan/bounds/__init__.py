"""Lower bounds on the makespan."""
