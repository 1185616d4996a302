"""Local search over the order in which the planner places requests."""
