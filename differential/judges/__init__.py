"""Contracts asked of what a target did, a module for each depth; and two targets compared."""
