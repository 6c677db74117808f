"""What the engine does, as events, and what a target did, as records."""
