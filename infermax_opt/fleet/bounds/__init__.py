"""Lower bounds on the machines of a fleet, whatever routes and schedules."""
