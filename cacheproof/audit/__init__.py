"""The command audit: the record of an engine, judged."""
