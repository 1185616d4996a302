"""Policies that place the requests of a stream."""
