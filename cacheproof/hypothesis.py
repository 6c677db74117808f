"""Hypothesis strategies of traces, and a judge of any class that has the interface of a manager.

    from hypothesis import given
    from cacheproof.hypothesis import judged, manager_traces

    @given(manager_traces())
    def test_contracts(trace):
        judged(MyManager, trace)

A trace says what an engine does, and a driver makes of it the calls of a correct scheduler. So
every trace is legal, whatever the manager answers, and whatever Hypothesis takes out of it.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from hypothesis import strategies as st

from cacheproof.differential.judges.examination import Examination, examine
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.traces.base import SCHEMA, Item
from cacheproof.differential.traces.manager import (
    Add,
    Finish,
    ManagerConfig,
    ManagerHeader,
    Notices,
    Preempt,
    Release,
    Reset,
    Stall,
    Update,
    Walk,
)
from cacheproof.differential.traces.trace import AnyEvent, Trace
from cacheproof.differential.traces.wording import program

Kind = Literal["encoder_cache", "encoder_decoder"]
Manager = Callable[..., Any]
"""A class, or what makes a manager: called with `cache_size=`, in embeddings."""
METHODS = (
    "can_allocate",
    "allocate",
    "free_encoder_input",
    "free",
    "get_cached_input_ids",
    "get_freed_mm_hashes",
)
CAPACITY_MAX = 10
RUNNING_MAX = 4
CHUNKS_MAX = 24
COMMANDS_OF_CHUNK = 5
"""Hypothesis draws five chunks on average: lists of single commands would be too short."""
_DECODER = "encoder_decoder"
_FIRST_EDGE, _FIRST_TOKEN, _NOT_WALKED = 1, 4, 10
"""A stride: 0 is the rest of the prompt, then come an item's edges, then numbers of tokens."""

_Mask = tuple[bool, ...]


class _Arrival(NamedTuple):
    """A request shows items, each a number of a template and the tokens before it; `behind` are
    tokens after the last."""

    items: list[tuple[int, int]]
    behind: int


class _Repeated(NamedTuple):
    """A request shows one item several times."""

    item: int
    times: int
    gap: int


class _Step(NamedTuple):
    """A step: how far each request is walked, and whether its output arrives before the next."""

    strides: tuple[int, ...]
    output_arrives: bool


class _Within(NamedTuple):
    """One request is walked, stalls or is preempted, and the step goes on."""

    what: str
    which: int
    stride: int


class _Between(NamedTuple):
    """Between two steps a request ends or an input of it is released once more, or a reset."""

    what: str
    which: int
    number: int


_Command = _Arrival | _Repeated | _Step | _Within | _Between | None
"""What is drawn; None says that nothing happens."""
_NUMBERS = st.integers(0, 5)
_STRIDES = st.integers(0, _NOT_WALKED)
_SIZES = st.integers(1, 6)
_BLANKS = st.sampled_from((*("none",) * 8, "before", "within", "within", "all"))
_TEMPLATES = st.lists(st.tuples(_SIZES, _BLANKS), min_size=2, max_size=6)
_COMMANDS = st.one_of(
    st.none(),
    st.builds(_Step, st.tuples(*[_STRIDES] * RUNNING_MAX), st.just(True)),
    st.builds(
        _Arrival,
        st.lists(st.tuples(_NUMBERS, st.integers(0, 1)), min_size=1, max_size=4),
        st.integers(0, 2),
    ),
    st.builds(_Repeated, _NUMBERS, st.integers(2, 3), st.integers(0, 2)),
    st.builds(
        _Between,
        st.sampled_from((*("finish",) * 4, *("release",) * 3, "reset")),
        _NUMBERS,
        _NUMBERS,
    ),
    st.builds(_Within, st.sampled_from(("walk", "walk", "preempt", "stall")), _NUMBERS, _STRIDES),
    st.builds(_Step, st.tuples(*[_STRIDES] * RUNNING_MAX), st.booleans()),
)
_CHUNKS = st.lists(st.tuples(*[_COMMANDS] * COMMANDS_OF_CHUNK), max_size=CHUNKS_MAX)
_SPARE_SIZES = st.lists(_SIZES, min_size=1, max_size=2)
_CAPACITIES = st.integers(1, CAPACITY_MAX)
_BUDGETS = st.sampled_from(("twice", "capacity", "largest"))


@st.composite
def manager_traces(
    draw: st.DrawFn, manager: Kind = "encoder_cache", *, resized: bool = False
) -> Trace:
    """Traces for a manager alone, of caches that hold few items.

    Args:
        draw: Hypothesis gives it.
        manager: the kind; that of encoder-decoders has inputs that are no part of the prompt.
        resized: an identifier may come back with another size, as a reused media id does.
    """
    capacity = draw(_CAPACITIES)
    masks = [_mask(size, capacity, blanks) for size, blanks in draw(_TEMPLATES)]
    if manager == _DECODER:
        masks = [(True,) * min(len(mask), capacity) for mask in masks]
    identifiers = [f"h{number}" for number in range(len(masks))]
    if resized:
        spare = [_mask(size, capacity, "none") for size in draw(_SPARE_SIZES)]
        masks, identifiers = [*masks, *spare], [*identifiers, *("h0",) * len(spare)]
    largest = max(map(sum, masks))
    budgets = {"twice": 2 * capacity, "capacity": capacity, "largest": max(1, largest)}
    budget = budgets[draw(_BUDGETS)]
    engine = _Engine([*zip(identifiers, masks, strict=True)], is_decoder=manager == _DECODER)
    for chunk in draw(_CHUNKS):
        for command in chunk:
            engine.do(command)
    engine.end_step()
    header = ManagerHeader(SCHEMA, manager, ManagerConfig(capacity, budget))
    return Trace(header, tuple(engine.events))


def _mask(size: int, capacity: int, blanks: str) -> _Mask:
    """Which tokens of an item receive an embedding."""
    dense = (True,) * min(size, capacity)
    middle = len(dense) // 2
    return {
        "none": dense,
        "before": (False, False, *dense),
        "within": (*dense[:middle], False, False, False, *dense[middle:]),
        "all": (False,) * len(dense),
    }[blanks]


class _Engine:
    """Turns commands into events, `events` so far. Supposes that every walk is granted."""

    def __init__(self, templates: Sequence[tuple[str, _Mask]], *, is_decoder: bool) -> None:
        self.events: list[AnyEvent] = []
        self._templates = templates
        self._is_decoder = is_decoder
        self._live: dict[str, Add] = {}
        self._computed: dict[str, int] = {}
        self._met: set[str] = set()
        self._in_flight: set[str] = set()
        self._arrived = 0

    def do(self, command: _Command) -> None:
        """Add the events of a command; of one that no engine can do now, none."""
        match command:
            case _Arrival(items, behind):
                self._arrive(items, behind)
            case _Repeated(item, times, gap):
                self._arrive([(item, gap)] * times, 0)
            case _Step(strides, output_arrives):
                for name, stride in zip([*self._live], strides, strict=False):
                    self._walk(name, stride)
                self.end_step(output_arrives=output_arrives)
            case _Within(what, which, stride):
                self._within(what, which, stride)
            case _Between(what, which, number):
                self.end_step()
                self._between(what, which, number)

    def end_step(self, *, output_arrives: bool = True) -> None:
        """End a step, if one is under way."""
        if self._met:
            self._met.clear()
            self.events.append(Notices())
            if output_arrives and self._in_flight:
                self._in_flight.clear()
                self.events.append(Update())

    def _arrive(self, items: list[tuple[int, int]], behind: int) -> None:
        if len(self._live) == RUNNING_MAX:
            return
        name = f"r{self._arrived}"
        self._arrived += 1
        position, shown = 0, []
        for number, gap in items:
            identifier, mask = self._templates[number % len(self._templates)]
            offset = 0 if self._is_decoder else position + gap
            is_embed = None if all(mask) else mask
            shown.append(Item(identifier, offset, len(mask), is_embed=is_embed))
            position = offset + len(mask)
        prompt = 1 + behind if self._is_decoder else position + behind
        self._live[name] = Add(name, prompt, tuple(shown))
        self._computed[name] = 0
        self.events.append(self._live[name])

    def _walk(self, name: str, stride: int) -> None:
        tokens = self._tokens(name, stride)
        if name not in self._met and tokens and stride != _NOT_WALKED:
            self._met.add(name)
            self._in_flight.add(name)
            self._computed[name] += tokens
            self.events.append(Walk(name, tokens))

    def _tokens(self, name: str, stride: int) -> int:
        """The tokens of a stride, at most the rest of the prompt."""
        add, computed = self._live[name], self._computed[name]
        rest = add.prompt - computed
        if stride >= _FIRST_TOKEN:
            return min(1 + stride - _FIRST_TOKEN, rest)
        edges = [edge - computed for item in add.items for edge in _edges(item)]
        edges = [edge for edge in edges if 0 < edge < rest]
        return edges[stride % len(edges)] if stride >= _FIRST_EDGE and edges else rest

    def _within(self, what: str, which: int, stride: int) -> None:
        may = {
            "walk": lambda name: self._computed[name] < self._live[name].prompt,
            "stall": lambda name: self._computed[name] == 0,
            "preempt": lambda name: self._computed[name] > 0,
        }[what]
        names = [name for name in self._live if name not in self._met and may(name)]
        if not names:
            return
        name = names[which % len(names)]
        if what == "walk":
            self._walk(name, stride)
            return
        self._met.add(name)
        if what == "stall":
            self.events.append(Stall(name, self._tokens(name, stride)))
        else:
            self._computed[name] = 0
            self._in_flight.discard(name)
            self.events.append(Preempt(name))

    def _between(self, what: str, which: int, number: int) -> None:
        if what == "reset":
            self.events.append(Reset())
        elif what == "finish" and self._live:
            name = [*self._live][which % len(self._live)]
            del self._live[name]
            self._in_flight.discard(name)
            self.events.append(Finish(name))
        elif what == "release" and (passed := self._passed()):
            self.events.append(Release(*passed[number % len(passed)]))

    def _passed(self) -> list[tuple[str, int]]:
        """Inputs that their requests have passed, as far as outputs have arrived."""
        return [
            (name, number)
            for name, add in self._live.items()
            for number, item in enumerate(add.items)
            if name not in self._in_flight and item.offset + item.length <= self._computed[name]
        ]


def _edges(item: Item) -> tuple[int, int, int]:
    """Tokens where the rules of an item change."""
    return item.offset, item.offset + 1, item.offset + item.length


def judged(
    manager: Manager,
    trace: Trace,
    *,
    release: str | None = None,
    passes_resized: bool = False,
    reach: Reachability | None = None,
) -> None:
    """Drive a manager with a trace, and judge every call.

    Args:
        manager: a class with the interface of vLLM's EncoderCacheManager.
        trace: of a manager alone.
        release: the vLLM release whose contracts it is held to; None: the newest's.
        passes_resized: drive it as schedulers do that do not end a request whose item has another
            size than the manager knows.
        reach: counts which rare states were met, if it is given.

    Raises:
        AssertionError: a contract is broken; the message says both sides, and the trace up to it.
        TypeError: the class lacks a method that the driver calls.
    """
    found = _examined(manager, trace, release, passes_resized, reach)
    if found.violations:
        first = min(violation.event for violation in found.violations.values())
        raise AssertionError(_told(found, first, trace))


def _examined(
    manager: Manager,
    trace: Trace,
    release: str | None,
    passes_resized: bool,
    reach: Reachability | None,
) -> Examination:
    assert isinstance(trace.header, ManagerHeader)
    capacity = trace.header.config.capacity
    made = manager(cache_size=capacity)
    lacking = [name for name in METHODS if not callable(getattr(made, name, None))]
    if lacking:
        raise TypeError(
            f"{_name(manager)} has no {', '.join(lacking)}; expected the methods of vLLM's "
            "EncoderCacheManager"
        )
    target = ReferenceTarget(
        name=_name(manager),
        release=release,
        protocol=Protocol(
            refuses_resized=not passes_resized and hasattr(made, "get_cached_num_encoder_embeds"),
            resets=hasattr(made, "reset"),
        ),
        managers={trace.header.manager: lambda *_: made},
    )
    return examine(trace, target.run([trace])[0], target, reach=reach)


def _name(manager: Manager) -> str:
    return getattr(manager, "__name__", type(manager).__name__)


def _told(found: Examination, event: int, trace: Trace) -> str:
    """What the first wrong event breaks, and the program of the trace up to it."""
    lines = []
    for violation in found.violations.values():
        if violation.event == event:
            lines += [violation.sentence, f"  {violation.contract.title}"]
    return "\n".join([*lines, "", *program(trace.with_events(trace.events[: event + 1]))])
