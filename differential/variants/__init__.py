"""Faulty variants of the reference managers: one realistic fault each, named by its docstring."""
