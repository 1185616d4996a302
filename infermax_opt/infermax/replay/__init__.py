"""What a schedule does: replay, metrics, timeline."""
