"""Exact engines, and how formulations are solved."""
