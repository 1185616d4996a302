"""Ruin and recreate for few requests: what each does in every step, put back where it costs least."""
