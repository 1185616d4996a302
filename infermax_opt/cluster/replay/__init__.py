"""What a policy does: exact replay over heartbeats."""
