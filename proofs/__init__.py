"""Why it holds: evidence for the contracts of spec about the managers of reference."""
