"""Instances, schedules, files and traces of the problem."""
