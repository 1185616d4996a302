"""The checker of certificates of fleets: what machines cost or how many there are, at least.

A room of its own: nothing here imports the rest of the wing, and only `infermax_opt/checking` besides the
standard library.  `scripts/assemble_checkers.py` makes one file of it.
"""
