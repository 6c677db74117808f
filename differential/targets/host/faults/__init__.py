"""Faults that are planted in a release, a module for what each is planted in."""
