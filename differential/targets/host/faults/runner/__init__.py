"""Faults of the torch runner."""
