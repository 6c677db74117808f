"""Engines that execute what their schedulers decide, and the torch runner."""
