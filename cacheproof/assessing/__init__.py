"""What an auditor asks of a release, answered from what was proved, searched, replayed and read.

Nothing is run here. The faults are those of the shipped list; the numbers are those of generated
pages of docs/, which are linked into this folder so that an installed package has them too.
"""
