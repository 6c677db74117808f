"""The command review: a head beside its base."""
