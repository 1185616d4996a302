"""Formulations handed to an engine."""
