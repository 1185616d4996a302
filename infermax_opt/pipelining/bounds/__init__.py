"""Bounds on what one reservation can hold."""
