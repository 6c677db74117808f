"""Systems under test: anything that takes a trace and returns step records."""
