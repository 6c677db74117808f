"""What does the work: processes here or on a cluster, plans, interruptions."""
