"""What a schedule does: replay and metrics."""
