"""Planners: schedules by those who know all output lengths."""
