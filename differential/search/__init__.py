"""Searches of a target: campaigns, planted faults, listed faults, verdicts."""
