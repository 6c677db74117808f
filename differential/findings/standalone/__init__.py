"""Tests that need only vLLM, a module for each depth."""
