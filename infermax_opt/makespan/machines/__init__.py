"""Identical parallel machines (P||Cmax): bounds, search, certified packing."""
