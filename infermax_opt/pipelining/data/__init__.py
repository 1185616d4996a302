"""Instances, schedules, generators and suites of the problem."""
