"""Traces from seeds, a module for each depth."""
