"""What the checkers of certificates share: reading, exact numbers, limits, command line.

Nothing but the standard library is imported here, and nothing else of the house: trust in a bound rests on
these parts and on those of one checker (``infermax_opt/infermax/checker/`` and its like).  Of each checker
`scripts/assemble_checkers.py` makes one file that runs alone.
"""
