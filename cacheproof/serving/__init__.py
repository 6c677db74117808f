"""The commands http and generate: models that answer."""
