"""Latency models of a worker (Aladdin, eqs 1 to 5), and how many GPUs it should have (eq 6)."""
