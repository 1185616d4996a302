"""The placement problem (Aladdin): requests on as few workers as their latency limits and KV allow."""
