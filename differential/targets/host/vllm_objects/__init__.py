"""What the host reads, calls or replaces of vLLM's own objects, and nothing more.

A class has the name of vLLM's that it stands for, but where two of vLLM's have one name. Its
docstring says of a member that only some releases have which these are: "from X on" where the first
is known, else "in X, not yet in W" of two that were looked at. The host asks with `hasattr` whether
it is there, or knows it by the release. The reference's objects have the same members, but take
requests of their own alone, so that mypy cannot hold them to these.
"""
