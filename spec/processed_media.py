"""Processed media: what a front end and an engine core may rely on of each other's caches.

The front end keeps names of what it has processed, and takes the engine core to have kept the
items. An item that it takes for sent goes without its data.
"""

from typing import NamedTuple

from cacheproof.spec.registry import Component

COMPONENT = "processed_media"
FRONT_END = "front_end"
"""What is judged by these contracts."""


class Handed(NamedTuple):
    """An item that an engine core hands on: what it says, what its request was given, and what was
    processed under its name since both halves were emptied last."""

    says: str
    given: str
    processed: frozenset[str]


class Claimed(NamedTuple):
    """An item that came without its data, and whether the engine core has it."""

    is_there: bool


class Answer(NamedTuple):
    """What either half answers to a request: why it cannot go on with it; empty where it can. That
    an item is lacking is another matter."""

    refused: str


class Half(NamedTuple):
    """One of the two caches: bytes that its items take, that it counts, and that they may take."""

    used: int
    counted: int
    capacity: int


class Quiet(NamedTuple):
    """The names that either half keeps, what was used longest ago first, while no message is under
    way. `disturbed`: a message was lost or overtaken, or one half alone was emptied, since both
    were empty."""

    sender: tuple[str, ...]
    receiver: tuple[str, ...]
    disturbed: bool


class Emptied(NamedTuple):
    """How many items either half keeps after both were told to forget all: the front end's of all
    API servers together."""

    sender: int
    receiver: int


class AtRest(NamedTuple):
    """A chunk in shared memory while no message is under way: how often it was read, and is to
    be."""

    read: int
    due: int


class Addressed(NamedTuple):
    """Whether a worker finds at an address the item that its message refers to."""

    is_its_own: bool


rules = Component(COMPONENT, applies_to=(FRONT_END,))


@rules.trace(
    "PM-1",
    "safety",
    "An item is handed on as it was given, or processed under its name since the last reset",
    source="conservation: tensors of another picture under a request's placeholders are read as its"
    " own, or end the worker; vLLM LLM.reset_mm_cache",
)
def hands_on_what_was_processed(w: Handed) -> bool:
    return w.says == w.given or w.says in w.processed


@rules.trace(
    "PM-2",
    "liveness",
    "What is sent without its data is there when the engine core asks for it",
    source="vLLM BaseMultiModalCache: both caches evict alike; PR #46747, #31404, #46354",
)
def has_what_is_taken_for_sent(w: Claimed) -> bool:
    return w.is_there


@rules.trace(
    "PM-3",
    "liveness",
    "No request is refused since a cache has no room for its items",
    source="vLLM MultiModalConfig.mm_processor_cache_gb: a cache is there to spare work, and bounds"
    " no request; PR #28525, #43941",
)
def refuses_for_no_room(w: Answer) -> bool:
    return w.refused == ""


@rules.state(
    "PM-4",
    "safety",
    "A half counts the bytes of its items, and takes no more than it may",
    source="vLLM MultiModalConfig.mm_processor_cache_gb: memory set aside for each process",
)
def keeps_to_its_bytes(s: Half) -> bool:
    return s.used == s.counted and s.used <= s.capacity


@rules.state(
    "PM-5",
    "liveness",
    "Where nothing was lost or overtaken, both halves have kept the same, in the same order",
    source="vLLM BaseMultiModalCache: the keys of both are mirrored, so that one is asked in place "
    "of the other; PR #28525",
)
def mirrors(s: Quiet) -> bool:
    return s.disturbed or s.sender == s.receiver


@rules.trace(
    "PM-6",
    "safety",
    "After a reset neither half has anything, of any API server",
    source="vLLM LLM.reset_mm_cache; #42995: a front end whose engine core has slept",
)
def empties_both(w: Emptied) -> bool:
    return w.sender == 0 and w.receiver == 0


@rules.state(
    "PM-7",
    "efficiency",
    "In shared memory nothing waits for readers that will not come, and nobody is counted twice",
    source="vLLM SingleWriterShmObjectStorage: a chunk is given back once its readers have read",
)
def waits_for_those_that_come(s: AtRest) -> bool:
    return s.read == s.due


@rules.trace(
    "PM-8",
    "safety",
    "An address in shared memory is read only while it is the item's",
    source="conservation: a worker that finds another chunk there raises, and the engine ends",
)
def reads_its_own(w: Addressed) -> bool:
    return w.is_its_own
