"""Schedulers that reserve KV: those that EcoServe compares, its own variants, and two of ours."""
