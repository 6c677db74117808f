"""Judges the caches of processed media: what is handed on, and whether both halves agree."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.judges.rules import Subject, about, by_subject
from cacheproof.differential.judges.violation import Violation, first_of_each
from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.traces.base import tag_of
from cacheproof.differential.traces.front_end import (
    Deliver,
    FrontEndConfig,
    FrontEndEvent,
    Given,
    Process,
    Report,
    ResetMedia,
    Withdraw,
)
from cacheproof.differential.traces.outcomes import FrontEndOutcome
from cacheproof.differential.traces.records import StepRecord
from cacheproof.differential.traces.trace import Trace
from cacheproof.spec.processed_media import (
    FRONT_END,
    Addressed,
    Answer,
    AtRest,
    Claimed,
    Emptied,
    Half,
    Handed,
    Quiet,
)
from cacheproof.spec.registry import contracts

UNDER_WAY = "overtaken"
WITHDRAWN = "never sent"
REFUSED = "of a refused request"
FAILED = "of a request that failed"
EMPTIED = "emptied alone"
EVICTED = "evicted"
"""Why an item is not there, by what came of the message that brought it."""
UNDISTURBED = "though nothing was lost"
MIXED = "of items in two orders"
LEFT_OUT = "of what the front end leaves out"
"""The same, where that was among the messages."""
CAME = "though its data came"
AFTER_A_RESET, NEVER_RESET = "after a reset", "though nothing was reset"
"""What a reset has left behind in shared memory shows later as well: counts that are not its."""
DOES_NOT_END = "does not end"
ONE_TOO_LARGE, TOGETHER_TOO_LARGE = "one too large", "together too large"


Span = tuple[int, int]
"""The numbers of the first and the last reset after which something may have been processed."""


@dataclass
class Message:
    """A request's items, and what of them was sent: what each says, None without data. `fate` is
    what came of it, in the words above; empty once it has arrived. `span` says when it was
    processed, and `emptied` how many halves had been emptied by then."""

    items: tuple[Given, ...]
    sent: Sequence[str | None]
    span: Span
    emptied: int
    fate: str = UNDER_WAY


class Resets:
    """What was processed, and after which reset. One is over when both halves have been emptied;
    what is processed while one of them alone has been may be of before or after it."""

    def __init__(self) -> None:
        self._over = 0
        self._emptied: set[str] = set()
        self._processed: dict[str, set[tuple[int, str]]] = {}

    @property
    def now(self) -> Span:
        """Of what is processed now."""
        return self._over, self._over + bool(self._emptied)

    def process(self, name: str, says: str, span: Span) -> None:
        """Something is processed under a name."""
        first, last = span
        self._processed.setdefault(name, set()).update((at, says) for at in range(first, last + 1))

    def empty(self, half: str) -> None:
        """A half is emptied, or both."""
        self._emptied |= {"sender", "receiver"} if half == "both" else {half}
        if len(self._emptied) == 2:
            self._emptied.clear()
            self._over += 1

    def processed(self, name: str, span: Span) -> frozenset[str]:
        """What was processed under a name after the same resets."""
        first, last = span
        known = self._processed.get(name, ())
        return frozenset(says for at, says in known if first <= at <= last)


@dataclass
class Kept:
    """What one half is to keep: bytes by name. Those of names that are unsure are not known."""

    names: Sequence[str] = ()
    _sizes: dict[str, int] = field(default_factory=dict)
    _unsure: set[str] = field(default_factory=set)
    _used: int | None = 0
    _has_new: bool = False

    def put(self, name: str, size: int) -> None:
        """So many bytes are kept under a name."""
        self._sizes[name] = size
        self._unsure.discard(name)
        self._has_new = True

    def doubt(self, name: str) -> None:
        """How many bytes are kept under a name is not known."""
        self._unsure.add(name)
        self._has_new = True

    def now(self, names: Sequence[str]) -> int | None:
        """The bytes of these names, which are all that are kept now; None where not known."""
        if self._has_new or names != self.names:  # most events leave one of two halves as it was
            self._sizes = {name: self._sizes.get(name, 0) for name in names}
            self._unsure &= set(names)
            self._used = None if self._unsure else sum(self._sizes.values())
            self.names, self._has_new = names, False
        return self._used


class FrontEndJudge:
    """Judges one trace. `by_kind` holds the first violation of each contract and kind;
    `calls_judged` counts records that were judged."""

    state = None
    stored: Mapping[str, int] = {}
    resident_sum = 0

    def __init__(self, trace: Trace, release: str | None, reach: Reachability) -> None:
        config = trace.header.config
        assert isinstance(config, FrontEndConfig)
        self.by_kind: dict[tuple[str, str], Violation] = {}
        self.calls_judged = 0
        self._capacity, self._reach = config.capacity, reach
        self._sizes = {
            f"{item.name}/{number}": size
            for item in config.items
            for number, size in enumerate(item.sizes)
        }
        self._says_of = {
            item.name: [f"{item.name}/{number}" for number in range(len(item.sizes))]
            for item in config.items
        }
        self._modalities = {item.name: item.modality for item in config.items}
        self._rules = by_subject(contracts(FRONT_END, release))
        self._messages: dict[str, Message] = {}
        self._brought: dict[str, Message] = {}
        self._resets = Resets()
        servers = config.servers if config.store == "processor" else 1
        self._senders, self._receiver = [Kept() for _ in range(servers)], Kept()
        self._disturbed, self._parted = False, ""
        self._emptied = 0
        self._workers = config.workers if config.store == "shm" else 1
        self._left: dict[str, int] = {}
        self._where = 0, "", ""

    @property
    def violations(self) -> dict[str, Violation]:
        """The first violation of each contract, of any kind."""
        return first_of_each(self.by_kind)

    def judge(self, number: int, event: FrontEndEvent, record: StepRecord) -> None:
        """Judge the record of event number `number`."""
        outcome: FrontEndOutcome | None = record.outcome
        self._where = number, tag_of(type(event)), getattr(event, "request", "")
        if record.raised is not None:
            self._judge(Answer(record.raised.message), kind=record.raised.type)
        if outcome is None:
            return
        self.calls_judged += 1
        if "refused" in outcome:
            self._disturbed = True
            self._judge(
                Answer(outcome["refused"]), kind=self._why_refused(event, outcome["refused"])
            )
        match event:
            case Process():
                self._take_processed(event, outcome)
            case Withdraw():
                self._messages.pop(event.request).fate = WITHDRAWN
                del self._left[event.request]
                self._disturbed = True
                self._reach.meet("processed and never sent")
            case Deliver():
                self._take_delivered(event.request, outcome)
            case Report():
                self._disturbed = True
                self._reach.meet("told of a miss")
            case ResetMedia() if "refused" not in outcome:
                self._take_reset(event, outcome)
        self._judge_halves(outcome)

    def _take_processed(self, event: Process, outcome: FrontEndOutcome) -> None:
        """What was processed, what of it the sender takes for sent, and by which message."""
        if event.fails:
            self._reach.meet("error of a processor")
            return
        if len({self._modalities[item.name] for item in event.items}) > 1:
            self._reach.meet("items of several modalities")
            self._parted = MIXED
        if event.skips_cache:
            self._reach.meet("front end's cache left out")
            self._parted = LEFT_OUT
        given = [self._says(item) for item in event.items]
        sent = outcome.get("sent")
        now, sender = self._resets.now, self._senders[event.server]
        message = Message(event.items, given if sent is None else sent, now, self._emptied)
        several = len({*given}) > len({item.name for item in event.items})
        if sent is None:
            message.fate = REFUSED
        else:
            self._messages[event.request] = message
            self._left[event.request] = event.samples * self._workers
        for item, own, says in zip(event.items, given, message.sent, strict=False):
            is_kept = sent is not None or item.name not in sender.names
            if says is not None and is_kept:
                self._judge_handed(item, says, now)
                self._resets.process(item.name, own, now)
                self._brought[item.name] = message
                was_kept = item.name in sender.names
                sender.put(item.name, self._sizes.get(says, 0))
                is_unlooked = sent is None or event.skips_cache
                if (several and is_unlooked) or (was_kept and event.skips_cache):
                    sender.doubt(item.name)
            if says is not None and self._sizes.get(says, 0) > self._capacity:
                self._reach.meet("larger than the cache of processed media")

    def _take_delivered(self, name: str, outcome: FrontEndOutcome) -> None:
        if next(iter(self._messages)) != name:
            self._disturbed = True
            self._reach.meet("message overtaken")
        message = self._taken(name)
        names = [item.name for item in message.items]
        bare = [name for name, says in zip(names, message.sent, strict=False) if says is None]
        handed = outcome.get("handed")
        if handed is None:
            self._take_failed(message, names, bare, outcome)
            return
        message.fate = ""
        is_late = message.emptied < self._emptied
        for item, says in _each(message.items, handed):
            name = item.name
            self._judge_handed(item, says, message.span)
            if says == self._says(item):
                self._resets.process(name, says, message.span)
            self._receiver.put(name, self._sizes.get(says, 0))
            if is_late:
                self._receiver.doubt(name)

    def _taken(self, name: str) -> Message:
        """The message of a request, which is no longer under way once all have taken it."""
        message = self._messages[name]
        self._left[name] -= 1
        if not self._left[name]:
            del self._messages[name], self._left[name]
        return message

    def _take_failed(
        self, message: Message, names: list[str], bare: list[str], outcome: FrontEndOutcome
    ) -> None:
        """The engine core says what it lacks, or nothing more than that it cannot go on."""
        message.fate = FAILED
        if "lacking" in outcome:
            self._reach.meet("engine core lacks an item")
            absent = [name for name in bare if name not in self._receiver.names]
            for name in outcome["lacking"] or absent or bare:
                kind = self._why_lacking(name) if name in bare else CAME
                self._judge(Claimed(is_there=False), item=name, kind=kind)
            self._disturbed = True
        for name, says in zip(names, message.sent, strict=False):
            if says is not None and name in self._receiver.names:
                self._receiver.doubt(name)
            elif says is not None:
                self._receiver.put(name, self._sizes.get(says, 0))

    def _judge_handed(self, item: Given, says: str, span: Span) -> None:
        processed = self._resets.processed(item.name, span)
        kind = self._why_handed(item, says)
        self._judge(Handed(says, self._says(item), processed), item=item.name, kind=kind)

    def _why_handed(self, item: Given, says: str) -> str:
        return "across a reset" if says in self._says_of[item.name] else "of another item"

    def _why_lacking(self, name: str) -> str:
        """What became of the item's data; a miss that nothing of that explains is of its own."""
        brought = self._brought.get(name)
        if brought is None or not self._disturbed:
            return self._parted or UNDISTURBED
        return brought.fate or EVICTED

    def _why_refused(self, event: FrontEndEvent, refused: str) -> str:
        """Whether there was room for the items of the request, one by one and together."""
        if refused == DOES_NOT_END:
            return refused
        request = getattr(event, "request", "")
        items = event.items if isinstance(event, Process) else self._messages[request].items
        largest = {
            item.name: max(self._sizes[one] for one in self._says_of[item.name]) for item in items
        }
        if max(largest.values()) > self._capacity:
            return ONE_TOO_LARGE
        together = sum(largest.values())
        return TOGETHER_TOO_LARGE if together > self._capacity else "though there is room"

    def _take_reset(self, event: ResetMedia, outcome: FrontEndOutcome) -> None:
        self._disturbed = event.half != "both" or bool(self._messages)
        if not self._disturbed:
            self._parted = ""
        self._emptied += 1
        if event.half != "both":
            self._reach.meet("one half emptied alone")
        sender = 0 if event.half == "receiver" else sum(map(len, _senders(outcome)))
        receiver = 0 if event.half == "sender" else len(outcome["receiver"])
        self._judge(Emptied(sender, receiver))
        self._resets.empty(event.half)
        if event.half != "sender":
            for message in self._brought.values():
                message.fate = message.fate or EMPTIED

    def _judge_halves(self, outcome: FrontEndOutcome) -> None:
        halves = [self._senders[0], self._receiver, *self._senders[1:]]
        first, *others = _senders(outcome)
        names_of = [first, outcome["receiver"], *others]
        for half, names, counted in zip(halves, names_of, outcome["counted"], strict=True):
            used = half.now(names)
            if used is not None:
                self._judge(Half(used, counted, self._capacity))
        if not self._messages:
            self._judge_quiet(outcome)

    def _judge_quiet(self, outcome: FrontEndOutcome) -> None:
        self._judge(Quiet(tuple(outcome["sender"]), tuple(outcome["receiver"]), self._disturbed))

    def _says(self, item: Given) -> str:
        return self._says_of[item.name][item.content]

    def _judge(self, subject: Subject, *, item: str = "", kind: str = "") -> None:
        for rule in self._rules.get(type(subject), ()):
            if not rule.predicate(subject):
                why = rule.explain(**about(rule, subject))
                violation = Violation(rule, *self._where, item, why, kind)
                self.by_kind.setdefault((rule.id, kind), violation)


class ProcessorOnlyJudge(FrontEndJudge):
    """Judges one trace of caches that have no counterpart."""

    def _take_reset(self, event: ResetMedia, outcome: FrontEndOutcome) -> None:
        if len(self._senders) > 1:
            self._reach.meet("reset of one of several API servers")
        super()._take_reset(event, outcome)
        self._resets.empty("receiver")

    def _judge_quiet(self, outcome: FrontEndOutcome) -> None:
        """There is nothing that could be the same."""


class SharedMediaJudge(FrontEndJudge):
    """Judges one trace of a store in shared memory, where each worker reads each message."""

    def __init__(self, trace: Trace, release: str | None, reach: Reachability) -> None:
        super().__init__(trace, release, reach)
        self._known: frozenset[str] = frozenset()

    def _take_delivered(self, name: str, outcome: FrontEndOutcome) -> None:
        if next(iter(self._messages)) != name:
            self._reach.meet("message overtaken")
        message = self._taken(name)
        kind = AFTER_A_RESET if self._emptied else NEVER_RESET
        handed = outcome.get("handed")
        self._judge(Addressed(is_its_own=handed is not None), kind=kind)
        for item, says in () if handed is None else _each(message.items, handed):
            self._judge_handed(item, says, message.span)

    def _why_handed(self, item: Given, says: str) -> str:
        return AFTER_A_RESET if self._emptied else "of another item"

    def _take_processed(self, event: Process, outcome: FrontEndOutcome) -> None:
        now = self._resets.now
        for item, says in zip(event.items, outcome.get("sent", ()), strict=False):
            if says is None and item.name not in self._known:
                self._resets.process(item.name, self._says(item), now)
        self._known = frozenset(outcome["sender"])
        super()._take_processed(event, outcome)
        if not event.skips_cache and any(says is not None for says in outcome.get("sent", ())):
            self._reach.meet("no room in shared memory")

    def _take_reset(self, event: ResetMedia, outcome: FrontEndOutcome) -> None:
        if self._messages:
            self._reach.meet("reset while messages are under way")
        if event.half == "receiver":
            return  # a worker has nothing that it could forget
        self._emptied += 1
        self._disturbed = True
        self._resets.empty("both")
        self._known = frozenset()
        self._judge(Emptied(len(outcome["sender"]), 0))

    def _judge_halves(self, outcome: FrontEndOutcome) -> None:
        used, _ = outcome["counted"]
        self._judge(Half(used, used, self._capacity))
        for chunk in () if self._messages else outcome["receiver"]:
            name, read, _, due = chunk.rsplit(" ", 3)
            kind = "never read" if int(read) < int(due) else "read too often"
            self._judge(AtRest(int(read), int(due)), item=name, kind=kind)


def _senders(outcome: FrontEndOutcome) -> list[list[str]]:
    """The names that each API server keeps."""
    return [outcome["sender"], *outcome.get("others", ())]


def _each(items: Sequence[Given], handed: Sequence[str]) -> Iterator[tuple[Given, str]]:
    """Each item with what was handed on for it: nothing where there is less than there was sent."""
    for at, item in enumerate(items):
        yield item, handed[at] if at < len(handed) else ""


def judge_of(
    trace: Trace, release: str | None, protocol: Protocol, reach: Reachability
) -> FrontEndJudge:
    """The judge for a trace; `release` is the target's, None where it is no release."""
    config = trace.header.config
    assert isinstance(config, FrontEndConfig)
    if config.store == "shm":
        return SharedMediaJudge(trace, release, reach)
    if config.store == "processor":
        return ProcessorOnlyJudge(trace, release, reach)
    return FrontEndJudge(trace, release, reach)
