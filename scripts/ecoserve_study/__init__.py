"""EcoServe's schedulers and figures, measured and set against bounds for every schedule."""
