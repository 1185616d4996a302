"""Streams, and their oracle."""
