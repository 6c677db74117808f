"""What prints a table alone: contracts, texts, what is installed."""
