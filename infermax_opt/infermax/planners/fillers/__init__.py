"""Plans in which requests with little KV are served in pieces, where the others leave memory unused."""
