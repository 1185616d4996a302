"""Branch and bound with a certificate, and formulations handed to an engine."""
