"""The command prove: jobs, kept proofs, one table of evidence."""
