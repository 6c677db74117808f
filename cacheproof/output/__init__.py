"""What a command prints: the console, verdict lines, progress."""
