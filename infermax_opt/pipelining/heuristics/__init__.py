"""Schedules without proof."""
