"""The ghost state: what the requests are owed, folded from events alone.

A ghost is told what was asked and what was answered: a request claimed an item (it was scheduled or
hit), its progress was confirmed, it was withdrawn (preempted, aborted, finished, put back to wait),
a worker was told to drop entries. It never sees a manager, nor a record of a manager's state, so
what it calls needed is independent evidence against one.

The life of one entry, in the words used here:

    needed    a running request has claimed it and has not got past its last claimed occurrence
    idle      it was claimed once and is needed no more; `idle_since` says since which event
    reported  the worker was told to drop it; until then it is `stored`
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Ghost:
    """What the events so far imply. Identifiers and request ids are strings; sizes are embeddings.

    Attributes:
        needed: identifier -> the requests that need it; no empty sets.
        idle_since: identifier -> number of the event by which it became idle.
        size: identifier -> embeddings it was debited when it was last encoded.
        stored: identifier -> rows, encoded and not yet reported.
        debits: (request, input id) -> embeddings debited and not yet released.
        steps_since_encode: stored identifier -> steps since it was last encoded.
        claimed_end: request -> identifier -> the token behind the last occurrence that it claimed
            and has not got past; no empty map but while one is told.
    """

    needed: dict[str, set[str]] = field(default_factory=dict)
    idle_since: dict[str, int] = field(default_factory=dict)
    size: dict[str, int] = field(default_factory=dict)
    stored: dict[str, int] = field(default_factory=dict)
    debits: dict[tuple[str, int], int] = field(default_factory=dict)
    steps_since_encode: dict[str, int] = field(default_factory=dict)
    claimed_end: dict[str, dict[str, int]] = field(default_factory=dict)
    _clock: int = 0

    def claim(self, request: str, identifier: str, end: int) -> None:
        """The request was scheduled for, or hit, an item whose occurrence ends at token `end`."""
        ends = self.claimed_end.setdefault(request, {})
        if ends.get(identifier, -1) < end:
            ends[identifier] = end
        self.needed.setdefault(identifier, set()).add(request)
        self.idle_since.pop(identifier, None)

    def encode(self, request: str, input_id: int, identifier: str, size: int) -> None:
        """The item was debited `size` embeddings and is encoded in this step."""
        self.size[identifier] = size
        self.debits[request, input_id] = size

    def release(self, request: str, input_id: int) -> None:
        """The request's debit for the item was given back."""
        self.debits.pop((request, input_id), None)

    def consume(self, request: str, progress: int) -> None:
        """The request's progress is confirmed up to token `progress`."""
        ends = self.claimed_end.get(request)
        if ends:
            self._clock += 1
            for identifier in [h for h, end in ends.items() if end <= progress]:
                del ends[identifier]
                self._unneed(request, identifier)

    def withdraw(self, request: str) -> None:
        """The request stopped running: what it claimed it needs no more."""
        for debit in [debit for debit in self.debits if debit[0] == request]:
            del self.debits[debit]
        ends = self.claimed_end.pop(request, None)
        if ends:
            self._clock += 1
            for identifier in ends:
                self._unneed(request, identifier)

    def owed(self) -> set[str]:
        """The requests that need an entry, or have been debited one."""
        return set(self.claimed_end).union([request for request, _ in self.debits])

    def reset(self) -> None:
        """The encoder cache was reset on both sides; running requests claim afresh."""
        self.claimed_end.clear()
        self.needed.clear()
        self.idle_since.clear()
        self.size.clear()
        self.stored.clear()
        self.debits.clear()
        self.steps_since_encode.clear()

    def step(self, notices: tuple[str, ...], encoded: dict[str, int]) -> None:
        """A worker executed a step: it dropped what the notices name, then encoded."""
        for identifier in notices:
            self.stored.pop(identifier, None)
            self.steps_since_encode.pop(identifier, None)
        for identifier in self.steps_since_encode:
            self.steps_since_encode[identifier] += 1
        for identifier, size in encoded.items():
            self.stored[identifier] = size
            self.steps_since_encode[identifier] = 0

    def _unneed(self, request: str, identifier: str) -> None:
        requests = self.needed[identifier]
        requests.discard(request)
        if not requests:
            del self.needed[identifier]
            self.idle_since[identifier] = self._clock
