"""Faults of an engine's worker, and of its items, keys, sessions and models."""
