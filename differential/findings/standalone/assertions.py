"""A contract as the assertion that ends a standalone test, in the words of vLLM's own attributes.

What a contract takes from the ghost (who still needs an entry, which became idle first) is stated
as the concrete fact of the trace at hand.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from cacheproof.differential.findings.finding import LOCKSTEP, Finding
from cacheproof.differential.judges.manager import ManagerJudge
from cacheproof.differential.judges.retrace import RetracedBreak, State
from cacheproof.differential.traces.manager import Add, Finish, Notices, Preempt, Walk
from cacheproof.differential.traces.records import CallRecord
from cacheproof.differential.traces.scheduler import Chunk
from cacheproof.differential.traces.wording import literal
from cacheproof.spec.ghost import Ghost
from cacheproof.spec.records import EncoderCacheState

CLASSES = {
    "encoder_cache": "EncoderCacheManager",
    "encoder_decoder": "EncoderDecoderCacheManager",
}
OF_THE_STORE = frozenset({"EC-9", "ED-3", "WM-1", "WM-2", "WM-3", "WM-4"})
"""Contracts of a whole step: the test keeps the worker's store beside the manager."""
AFTER_AN_EVENT = OF_THE_STORE | {
    *("EC-1", "EC-2", "EC-3", "EC-4", "EC-5", "EC-6", "EC-6a"),
    *("ED-1", "SC-9"),
}
"""Contracts whose assertion can wait until the scheduler has returned."""
OF_ITEMS_BY_NUMBER = frozenset({"EC-8a", "EC-15", "WM-2", "WM-4"})
"""Contracts whose assertion is made from the items that a request arrived with."""
ANSWERS = frozenset({"EC-12", "EC-16"})
"""Contracts that a wrong answer breaks, of a call that answers yes or no."""
TELLS = frozenset({"EC-17"})
"""Contracts that a wrong answer breaks, of a call that answers a number or None."""
NAMES = frozenset({"EC-18"})
"""Contracts that a wrong answer breaks, of a call that answers inputs of a request."""
RAISES = frozenset({"EC-13", "ED-4", "SC-8"})
"""Contracts that an exception breaks: the call itself fails the test."""
UNCHANGED = frozenset({"EC-10", "EC-11", "ED-2"})
"""Contracts that compare the ledger after a call with the one before."""


NamedEntry = str | tuple[str, int]
"""An entry as a manager names it: an identifier, or a request and the number of its input."""


@dataclass(frozen=True)
class AssertedCase:
    """A finding and the call after which it shows."""

    finding: Finding
    broken: RetracedBreak

    @property
    def per_input(self) -> bool:
        """Entries are keyed by (request, input), as up to 0.10.1.1."""
        return not self.finding.protocol["keyed_by_identifier"]

    @property
    def is_decoder(self) -> bool:
        return self.finding.configuration.manager == "encoder_decoder"

    @cached_property
    def requests(self) -> dict[str, Add]:
        return {event.request: event for event in self.finding.events if isinstance(event, Add)}

    @property
    def compares_with_before(self) -> bool:
        return self.finding.contract in UNCHANGED or self.no_change_expected

    @property
    def no_change_expected(self) -> bool:
        """The reference says that the call changes nothing."""
        parting = self.finding.parting
        return parting is not None and parting.field == "delta" and parting.reference is None

    def item_sizes(self, event: Add | Chunk) -> list[int]:
        """What the items of a turn take, in the unit of the release."""
        counts = self.finding.protocol["counts_embeds"]
        return [
            item.length if item.is_embed is None or not counts else sum(item.is_embed)
            for item in event.items
        ]

    @property
    def largest_items(self) -> list[int]:
        """The largest item of each turn of each request."""
        turns = [event for event in self.finding.events if isinstance(event, Add | Chunk)]
        return [max(self.item_sizes(turn), default=0) for turn in turns]

    def entry(self, identifier: str) -> NamedEntry:
        """An entry as the manager names it."""
        if not self.per_input:
            return identifier
        request, _, number = identifier.rpartition("#")
        return request, int(number)

    def entry_of(self, request: str, number: int) -> NamedEntry:
        if self.per_input:
            return request, number
        return self.requests[request].items[number].identifier

    @property
    def sizes(self) -> dict[NamedEntry, int]:
        """What each entry was debited last."""
        return {self.entry(h): size for h, size in self.ghost.size.items()}

    @property
    def resident(self) -> str:
        """An expression for the set of resident entries."""
        if self.per_input:
            return "{(r, i) for r, inputs in manager.cached.items() for i in inputs}"
        return "set(manager.cached)"

    @property
    def snapshot(self) -> str:
        """An expression for the part of the ledger that a call must leave as it was."""
        if self.is_decoder:
            return "manager.num_free_slots"
        holders = "{entry: set(holders) for entry, holders in manager.cached.items()}"
        return (
            holders if self.finding.contract == "EC-11" else f"(manager.num_free_slots, {holders})"
        )

    @property
    def ghost(self) -> Ghost:
        judge = self.broken.judge
        assert isinstance(judge, ManagerJudge)
        return judge.ghost

    @property
    def shared_before(self) -> EncoderCacheState:
        """The ledger before the call, of a cache whose entries are shared."""
        return _shared(self.broken.before)

    @property
    def shared_after(self) -> EncoderCacheState:
        return _shared(self.broken.judge.state)

    @property
    def call(self) -> CallRecord:
        return self.finding.records[self.broken.event].calls[self.broken.call - 1]

    @property
    def gathered(self) -> list[NamedEntry]:
        """Entries that the windows of the last step read."""
        outcome = self.finding.records[self.broken.event].outcome
        if self.finding.trace.has_scheduler:
            windows = [(r, outcome["computed"][r], n) for r, n in outcome["scheduled"].items()]
            return list(
                {
                    self.entry_of(request, position): None
                    for request, start, count in windows
                    for position in self._read_in(request, start, start + count)
                }
            )
        computed: dict[str, int] = {}
        read: dict[NamedEntry, None] = {}
        for number, event in enumerate(self.finding.events[: self.broken.event]):
            outcome = self.finding.records[number].outcome
            if isinstance(event, Notices):
                read.clear()
            elif isinstance(event, Preempt | Finish) and outcome:
                computed.pop(event.request, None)
            elif isinstance(event, Walk) and outcome and outcome[0] > 0:
                start = computed.get(event.request, 0)
                end = computed[event.request] = start + outcome[0]
                for position in self._read_in(event.request, start, end):
                    read[self.entry_of(event.request, position)] = None
        return list(read)

    def _read_in(self, request: str, start: int, end: int) -> list[int]:
        if self.is_decoder:
            return [0] if start == 0 else []
        return [
            number
            for number, item in enumerate(self.requests[request].items)
            if any(
                start <= item.offset + token < end
                and (item.is_embed is None or item.is_embed[token])
                for token in range(item.length)
            )
        ]


def _shared(state: State) -> EncoderCacheState:
    assert isinstance(state, EncoderCacheState)
    return state


def claim(case: AssertedCase) -> list[str] | None:
    """The lines that end the test; None when no attribute of the manager shows the fault."""
    if case.finding.contract == LOCKSTEP:
        return _as_the_reference(case)
    rule = _CLAIMS.get(case.finding.contract)
    return None if rule is None else rule(case)


def _as_the_reference(case: AssertedCase) -> list[str] | None:
    parting = case.finding.parting
    assert parting is not None
    if parting.field == "answer":
        return []
    if case.no_change_expected:
        return [f"assert {case.snapshot} == before"]
    attribute = _ATTRIBUTES.get(parting.field)
    if attribute is None or (case.is_decoder and parting.field == "notices"):
        return None
    return [f"assert {attribute} == {literal(parting.reference)}"]


_ATTRIBUTES = {
    "free slots": "manager.num_free_slots",
    "freeable slots": "manager.num_freeable_slots",
    "queue": "[list(entry) for entry in manager.freeable.items()]",
    "notices": "manager.freed",
}


def _capacity_conserved(case: AssertedCase) -> list[str]:
    return [
        f"resident = {case.resident}",
        "used = sum(SIZE[entry] for entry in resident)",
        "assert manager.num_free_slots + used == manager.cache_size",
    ]


def _reclaimable_conserved(case: AssertedCase) -> list[str]:
    return [
        "idle = [entry for entry, holders in manager.cached.items() if not holders]",
        "reclaimable = sum(SIZE[entry] for entry in idle)",
        "assert manager.num_freeable_slots == manager.num_free_slots + reclaimable",
    ]


def _in_bounds(case: AssertedCase) -> list[str]:
    if case.per_input or case.is_decoder:
        return ["assert 0 <= manager.num_free_slots <= manager.cache_size"]
    return [
        "assert 0 <= manager.num_free_slots <= manager.num_freeable_slots",
        "assert manager.num_freeable_slots <= manager.cache_size",
    ]


def _queue_is_unheld(case: AssertedCase) -> list[str]:
    return [
        "idle = {entry for entry, holders in manager.cached.items() if not holders}",
        "assert set(manager.freeable) == idle",
    ]


def _one_size(case: AssertedCase) -> list[str]:
    lines = [
        "assert all(SIZE[entry] >= 1 for entry in manager.cached)",
        "assert all(size == SIZE[entry] for entry, size in manager.freeable.items())",
    ]
    if case.finding.protocol["refuses_resized"]:
        lines += [
            "remembered = manager.num_embeds_by_hash",
            "assert all(size == SIZE[entry] for entry, size in remembered.items())",
        ]
    return lines


def _keeps_needed(case: AssertedCase) -> list[str]:
    before, after = case.shared_before, case.shared_after
    return [
        f"assert {literal(h)} in manager.cached  # still needed by {' and '.join(sorted(requests))}"
        for h, requests in case.ghost.needed.items()
        if h in before.size and h not in after.size
    ]


def _needed_is_held(case: AssertedCase) -> list[str]:
    holders = case.shared_after.holders
    return [
        f"assert {literal(request)} in manager.cached[{literal(h)}]  # not past its last {h} yet"
        for h, requests in case.ghost.needed.items()
        if h in holders
        for request in sorted(requests - holders[h])
    ]


def _evicts_oldest_first(case: AssertedCase) -> list[str]:
    since, before, after = case.ghost.idle_since, case.shared_before, case.shared_after
    lines = []
    for h in since:
        for older in since:
            left = h in before.size and h not in after.size
            if left and older in after.size and since[older] < since[h]:
                one, other = literal(h), literal(older)
                lines.append(f"# {older} became idle before {h}")
                lines.append(f"assert {one} in manager.cached or {other} not in manager.cached")
    return lines


def _evicts_shortest_prefix(case: AssertedCase) -> list[str]:
    _, request, number, _, pending, granted, _ = case.call
    assert request is not None
    assert number is not None
    before = case.shared_before
    need = case.item_sizes(case.requests[request])[number] + (pending or 0)
    queue, free = list(before.queue), before.free_slots
    while granted and queue and free < need:
        free += before.queue[queue.pop(0)]
    return [f"assert list(manager.freeable) == {literal(queue)}"]


def _notices_are_exact(case: AssertedCase) -> list[str]:
    return [
        f"resident = {case.resident}",
        "assert resident.isdisjoint(notices)",
        "assert resident.issuperset(store)",
    ]


def _unchanged(case: AssertedCase) -> list[str]:
    return [f"assert {case.snapshot} == before"]


def _refusal_is_clean(case: AssertedCase) -> list[str]:
    lines = ["assert all(before.get(e) == holders for e, holders in manager.cached.items())"]
    if not case.per_input:
        lines.append("assert all(e in manager.cached or e in manager.freed for e in before)")
    return lines


def _makes_room(case: AssertedCase) -> list[str]:
    _, request, number, _, pending, _, _ = case.call
    assert request is not None
    assert number is not None
    need = case.item_sizes(case.requests[request])[number]
    return [f"assert {need + (pending or 0)} <= manager.num_free_slots"]


def _stated_by_the_call(case: AssertedCase) -> list[str]:
    return []


def _output_is_transient(case: AssertedCase) -> list[str]:
    return [
        "assert all(entry in store for entry in encoded)",
        "assert all(steps <= 1 for steps in store.values())",
    ]


def _store_is_ledger(case: AssertedCase) -> list[str]:
    return [f"assert set(store) == {case.resident}"]


def _no_gather_misses(case: AssertedCase) -> list[str]:
    return [f"assert set(store).issuperset({literal(case.gathered)})  # what the step reads"]


def _within_capacity(case: AssertedCase) -> list[str]:
    return ["assert sum(SIZE[entry] for entry in store) <= manager.cache_size"]


def _frees_before_encodes(case: AssertedCase) -> list[str]:
    return [
        "assert all(entry in before or entry not in encoded for entry in notices)",
        f"read = {literal(case.gathered)}",
        "assert all(entry in encoded or entry not in notices for entry in read)",
    ]


def _inputs_were_sent(case: AssertedCase) -> list[str]:
    return ["assert not engine.lacking  # items to encode that the worker has not been given"]


_CLAIMS: dict[str, Callable[[AssertedCase], list[str]]] = {
    "EC-1": _capacity_conserved,
    "EC-2": _reclaimable_conserved,
    "EC-3": _in_bounds,
    "EC-4": _queue_is_unheld,
    "EC-5": _one_size,
    "EC-6": _keeps_needed,
    "EC-6a": _needed_is_held,
    "EC-7": _evicts_oldest_first,
    "EC-8a": _evicts_shortest_prefix,
    "EC-9": _notices_are_exact,
    "EC-10": _unchanged,
    "EC-11": _refusal_is_clean,
    "EC-12": _stated_by_the_call,
    "EC-13": _stated_by_the_call,
    "EC-15": _makes_room,
    "EC-16": _stated_by_the_call,
    "EC-17": _stated_by_the_call,
    "EC-18": _stated_by_the_call,
    "ED-1": _in_bounds,
    "ED-2": _unchanged,
    "ED-3": _output_is_transient,
    "ED-4": _stated_by_the_call,
    "SC-9": _inputs_were_sent,
    "WM-1": _store_is_ledger,
    "WM-2": _no_gather_misses,
    "WM-3": _within_capacity,
    "WM-4": _frees_before_encodes,
}
