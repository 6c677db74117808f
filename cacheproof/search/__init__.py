"""The commands fuzz, check, diff and gallery: real releases searched, and what is told of it."""
