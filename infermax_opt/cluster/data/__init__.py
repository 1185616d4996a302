"""Streams: values, files, generators."""
