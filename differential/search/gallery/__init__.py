"""Faulty variants of the reference, and which contract kills each.

A check that nothing can fail says nothing. A seeded search drives every variant as a correct
scheduler would, and its records are judged by the contracts. Beside it runs the green twin: the
unmodified reference over the same seeds and the same call protocol, which nothing may kill.
"""
