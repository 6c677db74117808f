"""Hosts that are forked: the same results, none left behind, and a plain process where none is."""
