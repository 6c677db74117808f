"""A release's own OpenAI server: what clients that ask it at once are answered."""
