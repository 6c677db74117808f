"""Modules as they stand: what they bind and import, and what their functions read like."""
