"""Latency models."""
