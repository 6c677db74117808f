"""Connectors of external encoder caches: what an engine may rely on that others have stored.

An engine cannot be told that a load failed. What its connector has promised in a step and does not
bring ends it, and what it brings is read, whatever it is.
"""

from typing import NamedTuple

from cacheproof.spec.registry import Component

COMPONENT = "encoder_connector"
BASE = "vLLM ECConnectorBase"


class Promised(NamedTuple):
    """An item that the scheduler was promised, and need not have encoded: whether it was in the
    worker's store when the step read it."""

    identifier: str
    is_there: bool


class Pins(NamedTuple):
    """Identifiers that were promised and are not reported as loaded, and those of entries that the
    connector lets nobody take away."""

    promised: frozenset[str]
    pinned: frozenset[str]


class AtRest(NamedTuple):
    """What a connector still has to do when its engine has nothing left to do: identifiers that it
    keeps pinned, and those whose saves have neither ended nor been given up."""

    pinned: frozenset[str]
    saving: frozenset[str]


class EncoderOutput(NamedTuple):
    """Whose encoder output rows are: the item's identifier, the model's name and its version of the
    weights; how many rows, their width and dtype, and whether all of them are of one such output.
    """

    identifier: str
    model: str
    weights: int
    height: int
    width: int
    dtype: str
    whole: bool


class Served(NamedTuple):
    """Rows that were loaded for an item, and those that the engine would have encoded."""

    rows: EncoderOutput
    own: EncoderOutput


class Called(NamedTuple):
    """A call of a connector, and the type of the exception that it raised into the engine; empty
    for none."""

    operation: str
    raised: str


class StoreRoom(NamedTuple):
    """Bytes that a store holds, and that it may hold."""

    used: int
    allowed: int


class Files(NamedTuple):
    """Names of the files beside a store's folder that its engines have made, and sizes of those in
    it that a killed engine has left unfinished and that a later one has not removed."""

    outside: tuple[str, ...]
    unfinished: tuple[str, ...]


class Answers(NamedTuple):
    """What the engines of one model are answered of one item, while none of them does anything."""

    identifier: str
    promised: frozenset[bool]


class Asked(NamedTuple):
    """An item that a connector is asked for: whether its store can be reached, whether it was
    saved there, whole, and nothing has been done to it since; and what the answer is."""

    reached: bool
    saved: bool
    promised: bool


rules = Component(COMPONENT)


@rules.answer(
    "EX-1",
    "safety",
    "An encoder output that a connector has promised is there when the step reads it",
    source=f"{BASE}.start_load_caches: it cannot report a failed load, and the read of a missing "
    "item ends the engine; LMCache #4458",
)
def keeps_promises(p: Promised) -> bool:
    return p.is_there


@rules.state(
    "EX-2",
    "safety",
    "A promised entry stays pinned until its load is reported",
    source="vLLM ECCPUScheduler: pins from update_state_after_alloc to the report of its load",
)
def pins_what_it_promised(s: Pins) -> bool:
    return all(h in s.pinned for h in s.promised)


@rules.state(
    "EX-3",
    "liveness",
    "A connector has nothing pinned and no save under way once its engine has nothing left to do",
    source=f"{BASE}.has_pending_push_work: an engine steps on while it is true; vLLM #44049",
)
def comes_to_rest(s: AtRest) -> bool:
    return len(s.pinned) == 0 and len(s.saving) == 0


@rules.answer(
    "EX-4",
    "safety",
    "Loaded rows are those of this item and model, in its dtype and shape, all of them",
    source="what one request reads of another's picture; vLLM PR #51448 for paths, none for rows",
)
def serves_own_rows(p: Served) -> bool:
    return (
        p.rows.whole
        and p.rows.identifier == p.own.identifier
        and p.rows.model == p.own.model
        and p.rows.height == p.own.height
        and p.rows.width == p.own.width
        and p.rows.dtype == p.own.dtype
    )


@rules.answer(
    "EX-5",
    "safety",
    "No call of a connector raises into the engine, whatever is in its store and however large",
    source=f"{BASE}: an exception in the scheduler or the worker ends the engine",
)
def raises_nothing(c: Called) -> bool:
    return c.raised == ""


@rules.state(
    "EX-6",
    "safety",
    "A store holds no more bytes than it may",
    source="vLLM #44049: a producer can write without bound",
)
def stays_within_its_bytes(s: StoreRoom) -> bool:
    return s.used <= s.allowed


@rules.answer(
    "EX-7",
    "safety",
    "After new weights no engine is served rows that the old ones made",
    source="vLLM Scheduler.reset_encoder_cache; stale rows inside an engine: vLLM #44910",
)
def serves_rows_of_its_weights(p: Served) -> bool:
    # weights are counted by model: what another one made is no older and no newer
    return p.rows.model != p.own.model or p.rows.weights == p.own.weights


@rules.state(
    "EX-8",
    "safety",
    "No identifier makes a connector write outside its store's folder",
    source="vLLM PR #51448",
)
def stays_in_its_folder(s: Files) -> bool:
    return len(s.outside) == 0


@rules.state(
    "EX-9",
    "safety",
    "What a killed engine has left unfinished is gone once another one has started",
    source="vLLM #44049: bytes that nobody frees",
)
def removes_what_the_killed_left(s: Files) -> bool:
    return len(s.unfinished) == 0


@rules.answer(
    "EX-10",
    "efficiency",
    "Engines of one model agree on what their store has, while none of them does anything",
    source="positive control: a store that only one of them sees is none of theirs",
)
def engines_agree(p: Answers) -> bool:
    return len(p.promised) < 2


@rules.answer(
    "EX-11",
    "safety",
    "Of a store that cannot be reached nothing is promised",
    source=f"{BASE}.has_cache_item: what it promises has to be loaded in the same step",
)
def promises_nothing_of_what_is_gone(c: Asked) -> bool:
    return c.reached or not c.promised


@rules.answer(
    "EX-12",
    "efficiency",
    "What was saved and has stayed as it was is promised to each engine of that model",
    source="positive control: a connector that promises nothing would pass every other rule",
)
def promises_what_was_saved(c: Asked) -> bool:
    return c.promised or not c.reached or not c.saved
