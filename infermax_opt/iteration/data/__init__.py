"""Instances, selections, files, a generator and the suite of the problem."""
