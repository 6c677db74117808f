"""What is written down of a break: the finding, its screen, its file, its test."""
