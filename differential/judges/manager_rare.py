"""Which rare states of an encoder cache manager a trace meets, as far as its calls tell."""

from collections.abc import Callable, Collection, Mapping, Sequence

from cacheproof.differential.judges.requests import JudgedRequest
from cacheproof.differential.traces.outcomes import StepOutcome
from cacheproof.differential.traces.records import CallRecord
from cacheproof.spec.ghost import Ghost
from cacheproof.spec.records import EncoderCacheState


class ManagerRareStates:
    """Told of every call and step in turn; `meet` counts a state by its name."""

    def __init__(self, meet: Callable[[str], None]) -> None:
        self._meet = meet
        self.forget()

    def forget(self) -> None:
        """Forget what came before: the judge goes on elsewhere."""
        self._evicted: set[str] = set()
        self._evicted_before: set[str] = set()
        self._decoded: set[tuple[str, str]] = set()

    def next_step(self) -> None:
        """A step has ended."""
        self._evicted_before |= self._evicted
        self._evicted = set()

    # requests

    def sizes(self, request: JudgedRequest, known: Mapping[str, int]) -> None:
        """A request brings items; `known` has the size of those that were encoded."""
        for identifier, size in zip(request.identifiers, request.sizes, strict=True):
            if known.get(identifier, size) != size:
                self._meet("identifier with another size")

    def early_occurrence(self, request: JudgedRequest, name: str, ghost: Ghost) -> None:
        """A step of a request that repeats an identifier is confirmed."""
        passed = {
            request.identifiers[number]
            for number, end in enumerate(request.ends)
            if end <= request.computed
        }
        if any(
            identifier in passed and name in ghost.needed.get(identifier, ())
            for number, identifier in enumerate(request.identifiers)
            if request.offsets[number] < request.computed < request.ends[number]
        ):
            self._meet("first occurrence consumed, later one pending")

    def stops(self, request: JudgedRequest | None, how: str) -> None:
        """A request is preempted or aborted."""
        if request is not None and request.inside_an_item():
            self._meet(f"{how} inside an item")

    # calls

    def decoder_call(
        self, call: CallRecord, identifier: str, size: int, debits: Collection[tuple[str, int]]
    ) -> None:
        """A call of an encoder-decoder's manager; `debits` are those before it."""
        if call.operation == "release" and (call.request, call.input) not in debits:
            self._meet("decoder item released again")
        elif call.operation == "can" and call.answer is not True:
            self._meet("refused by budget" if size > (call.budget or 0) else "refused by space")
        elif call.operation == "can" and call.pending:
            self._meet("admitted beside pending items")
        elif call.operation == "allocate":
            decoded = call.request or "", identifier
            if decoded in self._decoded:
                self._meet("decoder item encoded again")
            self._decoded.add(decoded)

    def admission(
        self, call: CallRecord, size: int, pre: EncoderCacheState, evicted: Sequence[str]
    ) -> None:
        """An admission that `evicted` entries, or none."""
        if evicted:
            self._meet("eviction")
            self._evicted.update(evicted)
            if len(evicted) > 1:
                self._meet("several evictions at once")
        if call.answer is True:
            if call.pending:
                self._meet("admitted beside pending items")
        elif call.budget is not None and size > call.budget:
            self._meet("refused by budget")
        else:
            self._meet("refused by space")
            if call.pending and size <= pre.freeable_slots:
                self._meet("pending items fill the cache")

    def allocation(
        self, request: JudgedRequest, number: int, post: EncoderCacheState, ghost: Ghost
    ) -> None:
        """An item is allocated."""
        identifier = request.identifiers[number]
        if identifier in self._evicted:
            self._meet("evicted and encoded again in one step")
        if identifier in self._evicted_before:
            self._meet("encoded anew after an eviction")
            self._evicted_before.discard(identifier)
        if request.sizes[number] == post.capacity:
            self._meet("item as large as the cache")
        if post.free_slots == 0:
            self._meet("full")
        if request.masks[number] is not None:
            self._meet("sparse item")
        self._claim(request, identifier, ghost)

    def hit(
        self, request: JudgedRequest, number: int, pre: EncoderCacheState, ghost: Ghost
    ) -> None:
        """An item is found in the cache."""
        identifier = request.identifiers[number]
        if identifier in pre.queue:
            self._meet("rescue")
        self._claim(request, identifier, ghost)

    def _claim(self, request: JudgedRequest, identifier: str, ghost: Ghost) -> None:
        if len(ghost.needed[identifier]) > 1:
            self._meet("shared")
        if request.repeats:
            self._meet("repeated item")

    # steps

    def transfers(self, outcome: StepOutcome, loaded: Collection[str]) -> None:
        """A step has entries `loaded` from elsewhere."""
        if outcome.get("awaiting"):
            self._meet("waits for a transfer")
        loads = outcome.get("loads")
        if not loads:
            return
        if loaded:
            self._meet("loaded from elsewhere")
        if loads.keys() - outcome["computed"].keys():
            self._meet("preempted after a load in the same step")
        if not self._evicted.isdisjoint(loaded):
            self._meet("evicted and loaded in one step")
