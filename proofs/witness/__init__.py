"""CPython's own word on texts that are proved: classes run, with nothing of ours reading them."""
