"""Instances, placements, files and traces of the problem."""
