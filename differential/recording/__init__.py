"""Records of an engine that runs: what is written beside it, and what reads it."""
