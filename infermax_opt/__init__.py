"""Optimal schedules, lower bounds and gaps for LLM inference serving."""
