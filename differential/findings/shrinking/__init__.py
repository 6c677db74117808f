"""Smaller traces that still break the same, and in which steps they become smaller."""
