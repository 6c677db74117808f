"""Which faults are told to the maintainers alone, and of what they are shown by nothing is said:
docs/reference/known-faults.md, "What is not in this repository"."""

from cacheproof.assessing.questions import QUESTIONS
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.traces.trace import Trace

ISOLATION = frozenset(one.id for one in QUESTIONS if one.purpose == "isolation")
BORDERS = frozenset({"BK-1", "BK-2", "EX-4", "EX-7", "EX-8", "MH-3", "ID-1"})
"""Contracts that keep apart what is one user's, one model's or one folder's."""
OTHERS = frozenset({"embedded-lookup", "resized-media-id"})
"""Faults whose worker has tokens or rows of another request, and shows them to nobody."""
OF_CONTENTS = frozenset({"block_hash", "media_hash", "media_identifier"})
"""Depths whose events are what clients send, and are alike for a server."""


def wants_disclosure(fault: KnownFault) -> bool:
    """Whether it crosses a border, and no release mends it."""
    answers = ISOLATION.intersection(fault.questions or ())
    is_of_a_border = answers or BORDERS.intersection(fault.contracts)
    return bool(is_of_a_border or fault.name in OTHERS) and not fault.mended_in


def shows_contents(trace: Trace) -> bool:
    """Whether a trace is what a client would send to a running server."""
    return trace.depth in OF_CONTENTS
