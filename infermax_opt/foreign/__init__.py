"""Runs that other systems measured or simulated: read exactly, request by request."""
