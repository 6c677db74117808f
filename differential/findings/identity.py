"""The identity of a finding: the same fault has the same one, whatever seed, shard, run or release
it was found in.

docs/explain/identity.md says which shapes of traces were tried for it, how well this one does and
where it is wrong.
"""

import hashlib

import msgspec

from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.findings.shrinking.edits import kind as kind_of
from cacheproof.differential.traces.trace import Trace

DIGITS = 10
"""Hexadecimal digits of a name."""
ENDS = frozenset({"update", "output", "finish", "abort", "end"})
"""Kinds of events that end a step or a request: one stands for another in traces of one fault."""
CONTENT = ("embeds", "lora", "salt")
"""Fields of requests that are part of what their KV is computed from."""


class Identity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stays the same of a finding: the contract, the kind of break that its judge tells apart
    (of the lockstep, what differed in which call), and the ingredients of its smallest trace."""

    contract: str
    kind: str
    ingredients: tuple[str, ...]

    @property
    def name(self) -> str:
        """A short hash."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:DIGITS]


def identity_of(finding: Finding) -> Identity:
    """The identity of a finding whose trace is small."""
    kind = finding.kind
    if finding.parting is not None:
        kind = f"{finding.parting.field} of {finding.parting.operation}"
    return Identity(finding.contract, kind, ingredients(finding.trace))


def ingredients(trace: Trace) -> tuple[str, ...]:
    """The kinds of events of a trace, and of what its requests' content is beside tokens and items:
    without sizes, names, order and number, and without what ends a step or a request."""
    kinds = {kind_of(event) for event in trace.events} - ENDS
    content = {
        name for event in trace.events for name in CONTENT if getattr(event, name, None) is not None
    }
    return (trace.header.manager, *sorted(kinds), *sorted(content))
