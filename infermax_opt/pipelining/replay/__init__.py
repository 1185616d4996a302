"""What a schedule does: its rules checked, its metrics."""
