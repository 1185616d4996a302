"""Cost profiles from measured batches: samples, the fit of the cost model, its errors and its band."""
