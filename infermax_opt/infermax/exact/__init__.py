"""Searches, and how formulations are solved."""
