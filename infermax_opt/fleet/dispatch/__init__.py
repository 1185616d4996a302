"""Machines that take requests from one queue and keep the pace of those who decode, who knows all outputs."""
