"""Instances, schedules, cost models, files and traces of the problem."""
