"""Makes a failing trace small: few events first, then few items and names, then small numbers.

Candidates are judged in whole batches, because over a pipe a round trip costs more than a trace.
Hypothesis would shrink too, but asks for one candidate at a time: a round trip each.

Everything is deterministic. A candidate is taken only when it is cheaper than what it replaces
(`edits.cost`), so the search ends; `batches` bounds it where a trace resists.
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

from cacheproof.differential.depths import DEPTHS, part
from cacheproof.differential.findings.shrinking import edits
from cacheproof.differential.findings.shrinking.edits import (
    Cost,
    cost,
    edited,
    put,
    remove,
    without,
)
from cacheproof.differential.traces.trace import Trace

StillFails = Callable[[list[Trace]], Sequence[bool]]

BATCH = 64
BATCHES_MAX = 600
ROUNDS_MAX = 12
CUTS = 8
PAIRS_UP_TO = 24
"""Longest trace, in events, of which every pair of events is tried."""


class Shrunk(NamedTuple):
    """What shrinking came to."""

    trace: Trace
    """The cheapest trace found that still fails."""
    is_whole: bool
    """Whether every edit was tried on it: neither batches, time nor rounds ran out."""


def shrink(
    trace: Trace,
    still_fails: StillFails,
    *,
    batch: int = BATCH,
    batches: int = BATCHES_MAX,
    until: float = math.inf,
) -> Shrunk:
    """Look for the cheapest trace that still fails.

    `still_fails` answers for each candidate whether it fails as `trace` does. It is asked at most
    `batch` candidates at once, `batches` times, and not after the moment `until` of the monotonic
    clock; then up to three times more, one candidate each, whether names may change. `trace`
    itself is taken to fail and is not asked about.
    """
    # Few at once at depths where the run of a trace takes long.
    batch = min(batch, DEPTHS[trace.depth].candidates)
    search = _Search(trace, still_fails, batch, batches, until)
    # What takes most away at once: all later edits make fewer candidates of what is left.
    search.cut_end()
    search.drop_requests()
    for _ in range(ROUNDS_MAX):
        before = search.cost
        search.drop_events()
        search.drop_items()
        search.simplify()
        search.lower_numbers()
        search.reorder()
        # Last, since it makes the most candidates: for each event, each number of the others.
        search.drop_with_a_change()
        # Every edit was tried on this very trace, and none was taken.
        if search.cost == before:
            is_whole = not search.is_over()
            break
    else:
        is_whole = False
    # After all rounds: plain names cost no less, so no round would take them.
    search.rename()
    return Shrunk(search.trace, is_whole)


def _edits(trace: Trace) -> Sequence[Callable[[Trace], Iterable[Trace | None]]]:
    """The edits that may be tried at the trace's depth alone."""
    module = DEPTHS[trace.depth].edits
    return () if module is None else part(module).EDITS


class _Search:
    """The best trace so far and what may be tried on it."""

    def __init__(
        self, trace: Trace, still_fails: StillFails, batch: int, batches: int, until: float
    ) -> None:
        self.trace = trace
        self.cost = cost(trace)
        self._still_fails = still_fails
        self._batch = batch
        self._batches_left = batches
        self._until = until

    # asking

    def _failing(
        self, candidates: Iterable[Trace | None], *, every: bool
    ) -> list[tuple[Cost, Trace]]:
        """Candidates that are cheaper and fail, cheapest first: all with `every`, else those of the
        first batch that has any. Once nothing can be asked, none are made: that costs more than the
        run of a trace."""
        if self.is_over():
            return []
        # Equal costs keep their order: traces do not compare, and chance must not decide.
        ranked = sorted(
            ((cost(c), number, c) for number, c in enumerate(candidates) if c is not None),
            key=lambda entry: entry[:2],
        )
        cheaper = [(price, c) for price, _, c in ranked if price < self.cost]
        failing: list[tuple[Cost, Trace]] = []
        for start in range(0, len(cheaper), self._batch):
            if self.is_over() or (failing and not every):
                break
            self._batches_left -= 1
            part = cheaper[start : start + self._batch]
            answers = self._still_fails([candidate for _, candidate in part])
            failing += [entry for entry, fails in zip(part, answers, strict=True) if fails]
        return failing

    def is_over(self) -> bool:
        if time.monotonic() >= self._until:
            self._batches_left = 0
        return self._batches_left == 0

    def _try(self, candidates: Iterable[Trace | None]) -> bool:
        """Take the cheapest candidate that still fails; returns whether there was one."""
        if failing := self._failing(candidates, every=False):
            self.cost, self.trace = failing[0]
            return True
        return False

    def _try_without(self, groups: Sequence[frozenset[int]]) -> bool:
        """Take out as many of these groups of events, given by position, as can go together;
        returns whether any could."""
        pairs = ((without(self.trace, group), group) for group in groups)
        kept = [] if self.is_over() else [(one, group) for one, group in pairs if one]
        failing = self._failing((candidate for candidate, _ in kept), every=True)
        if not failing:
            return False
        origin, (self.cost, self.trace) = self.trace, failing[0]
        group_of = {id(candidate): group for candidate, group in kept}
        removable = [group_of[id(candidate)] for _, candidate in failing]
        # Each of them can go alone; whether several can together is open, so fewer and fewer.
        counts = [len(removable) >> halvings for halvings in range(len(removable).bit_length())]
        # Positions are those of `origin`: the trace that was taken has others.
        self._try(without(origin, frozenset().union(*removable[:count])) for count in counts)
        return True

    def _drop_runs(self, units: Callable[[Trace], list[frozenset[int]]]) -> None:
        """Take out runs of neighbouring units of events, from half of them down to one."""
        length = max(1, len(units(self.trace)) // 2)
        while True:
            # Anew each time: what was taken out has moved the positions.
            ours = units(self.trace)
            starts = range(0, len(ours), length)
            runs = [frozenset().union(*ours[start : start + length]) for start in starts]
            # After a success the same length again: a run may go only once another has.
            if not self._try_without(runs):
                if length == 1:
                    return
                length //= 2

    # fewer events

    def cut_end(self) -> None:
        """Drop what comes after the failure: a prefix fails from there on."""
        passes, events = 0, self.trace.events
        # `passes` is the longest prefix known to pass; no cut is left between it and the trace.
        while len(self.trace.events) - passes > 1:
            length = len(self.trace.events)
            stride = max(1, (length - passes) // CUTS)
            cuts = range(passes + stride, length, stride)
            self._try(self.trace.with_events(events[:cut]) for cut in cuts)
            passes = max(cut for cut in (passes, *cuts) if cut < len(self.trace.events))
            # Nothing was asked, so these cuts are not known to pass.
            if self._batches_left == 0:
                return

    def drop_requests(self) -> None:
        """Drop requests with all their events."""
        self._drop_runs(
            lambda trace: [
                frozenset(
                    number
                    for number, event in enumerate(trace.events)
                    if getattr(event, "request", None) == request
                )
                for request in edits.request_names(trace)
            ]
        )

    def drop_events(self) -> None:
        """Drop runs of events, then pairs of events, and melt walks and requests together."""
        self._drop_runs(lambda trace: [frozenset((n,)) for n in range(len(trace.events))])
        # The number of pairs grows with the square of the events.
        while len(self.trace.events) <= PAIRS_UP_TO and self._try(
            without(self.trace, frozenset(pair))
            for pair in combinations(range(len(self.trace.events)), 2)
        ):
            pass
        while self._try(edits.fewer_steps(self.trace)):
            pass
        while self._try(edits.merged_walks(self.trace)) or self._try(
            edits.merged_requests(self.trace)
        ):
            pass

    def drop_with_a_change(self) -> None:
        """Drop an event and change a number that the others then need to be different."""
        while len(self.trace.events) <= PAIRS_UP_TO and self._try(
            edits.dropped_and_changed(self.trace)
        ):
            pass

    # fewer and simpler items

    def drop_items(self) -> None:
        """Shorter lists: of items, groups, models, and all else that a trace lists."""
        while self._try(edited(self.trace, remove(path)) for path in edits.elements(self.trace)):
            pass

    def simplify(self) -> None:
        """Dense masks, fewer identifiers, defaults, and a small cache of small items."""
        while self._try(edits.simpler_items(self.trace)):
            pass
        while self._try(edits.plainer(self.trace)):
            pass
        for edit in _edits(self.trace):
            while self._try(edit(self.trace)):
                pass
        self._try(edits.scaled(self.trace))

    # smaller numbers

    def lower_numbers(self) -> None:
        self._try(edits.closed(self.trace))
        for path, ladder in list(edits.lower(self.trace)):
            self._try(edited(self.trace, put(path, lower)) for lower in ladder)
        for identifier in edits.lengths(self.trace):
            self._lower_length(identifier)

    def _lower_length(self, identifier: str) -> None:
        longest = edits.lengths(self.trace)[identifier]
        self._try(
            edited(self.trace, edits.cap_length(length, identifier), *also)
            for length in edits.lower_values(longest, 1)
            for also in ((), (edits.close_gaps,))
        )

    # order and names

    def reorder(self) -> None:
        """Move arrivals to the front and each kind of event to where it is expected."""
        events = self.trace.events
        # No order is more swaps of neighbours away.
        for _ in range(len(events) ** 2):
            events = self.trace.events
            if not self._try(
                [
                    *(
                        self.trace.with_events(
                            (*events[:i], events[i + 1], events[i], *events[i + 2 :])
                        )
                        for i in range(len(events) - 1)
                    ),
                    *edits.plainer_kinds(self.trace),
                ]
            ):
                return

    def rename(self) -> None:
        """Call requests a, b, c and identifiers x, y, z, if the trace still fails."""
        requests = edits.numbered(edits.request_names(self.trace), edits.REQUEST_NAMES)
        identifiers = edits.numbered(list(edits.lengths(self.trace)), edits.IDENTIFIER_NAMES)
        # The fault may hang on the names of one kind: then the others are renamed alone.
        for renames in (
            (edits.rename("request", requests), edits.rename("identifier", identifiers)),
            (edits.rename("identifier", identifiers),),
            (edits.rename("request", requests),),
        ):
            renamed = edited(self.trace, *renames)
            if renamed is not None and self._still_fails([renamed])[0]:
                self.trace = renamed
                return
