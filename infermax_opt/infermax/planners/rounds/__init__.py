"""Plans for batches that all take the same time: a start round for each request."""
