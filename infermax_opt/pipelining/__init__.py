"""The pipelining problem (EcoServe): requests that share one reservation of KV cache."""
