"""The commands of a campaign in a store: start, resume, report."""
