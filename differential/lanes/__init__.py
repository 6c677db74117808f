"""Kinds of workload: what each is about, which rare states it must meet, what it cannot break."""
