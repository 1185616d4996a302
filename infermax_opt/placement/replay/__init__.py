"""What a placement does: its rules checked, its metrics."""
