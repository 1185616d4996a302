"""Streams of requests on a cluster: placed at heartbeats, replayed on every worker."""
