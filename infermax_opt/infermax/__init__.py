"""Batches of requests on one machine (InferMax)."""
