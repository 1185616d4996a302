"""The InferMax wing, and its oracles."""
