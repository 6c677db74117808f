"""The commands: their names, options and examples.

Nothing here imports what a command runs before it runs, so that `--help`, `--version` and the
completion of a shell answer at once.
"""
