"""Pareto fronts: what two metrics can be together, from schedules on one side and bounds on the other."""
