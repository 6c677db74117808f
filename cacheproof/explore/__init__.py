"""The command explore: every state of small scopes."""
