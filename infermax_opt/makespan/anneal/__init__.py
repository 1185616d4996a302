"""Annealing of bins and of the paths of clients."""
