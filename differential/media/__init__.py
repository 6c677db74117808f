"""Media values as descriptions: what they mean, how they differ, how they are written as Python."""
