"""What commands do beside solving, as functions: listings, imports, aims, solves in the background."""
