"""The scheduler: which requests compute how many tokens in a step, and what of media is encoded."""
