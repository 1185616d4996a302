"""Placements without proof."""
