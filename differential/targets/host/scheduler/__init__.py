"""The release's scheduler: how it is built, what it is told, what it decides."""
