"""How far runs are from optimal: their metrics against lower bounds that anyone can check."""
