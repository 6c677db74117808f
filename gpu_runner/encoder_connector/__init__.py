"""Encoder outputs in a store that engines share: entries as files, and vLLM's side of it."""
