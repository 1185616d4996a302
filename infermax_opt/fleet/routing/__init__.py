"""Routing: which machine serves a request, decided when it arrives, with the machines simulated."""
