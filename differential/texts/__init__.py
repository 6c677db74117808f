"""Texts of vLLM that are read and never run: which definitions are modelled, known, mended."""
