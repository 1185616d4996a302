"""Beam search for requests of one kind."""
