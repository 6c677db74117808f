"""Connectors of an external encoder cache, and the servers that they store in."""
