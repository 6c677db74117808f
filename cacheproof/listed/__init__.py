"""The listed faults as users are told of them: facts, pages, traces."""
