"""Test vectors for checkers: small certificates, accepted and rejected, with what comes of each."""
