"""A store of encoder outputs that engines share: what is in it, and what is promised of it."""
