"""CrossHair as an independent witness: the contracts of one call, over all states of two entries.

`witness.run` gives the rows of evidence. CrossHair itself runs in a process of its own.
"""
