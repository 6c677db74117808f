"""Scopes: which requests may arrive, what the engine may do, and how large all of it is."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Literal

from msgspec import to_builtins
from msgspec.structs import replace

from cacheproof.differential.search.explore.symmetry import Renaming
from cacheproof.differential.targets.host.managers.manager import item_size
from cacheproof.differential.traces.base import SCHEMA, Item
from cacheproof.differential.traces.manager import (
    Add,
    Finish,
    ManagerConfig,
    ManagerEvent,
    ManagerHeader,
    Notices,
    Preempt,
    Release,
    Reset,
    Stall,
    Update,
    Walk,
)
from cacheproof.differential.traces.scheduler import (
    Abort,
    Schedule,
    SchedulerConfig,
    SchedulerEvent,
    SchedulerHeader,
)
from cacheproof.differential.traces.trace import AnyEvent

Prompt = tuple[Item, ...]
"""Items that follow one another and are all of a prompt."""
ANY = "?"
"""Stands for the name of a request."""


@dataclass(frozen=True)
class Scope(ABC):
    """All traces, of any length, over a few names.

    Requests have the names `requests`; a name may be used again once it is forgotten. `lane` is the
    lane of a campaign whose known faults count here. A scope that is not closed within
    `transitions_max` may have no end on a target that breaks rules.
    """

    name: str
    lane: str
    requests: str
    transitions_max: int = field(default=50_000, kw_only=True)

    @property
    @abstractmethod
    def subject(self) -> str:
        """The kind of manager that is explored, or "scheduler"."""

    @property
    @abstractmethod
    def header(self) -> ManagerHeader | SchedulerHeader:
        """The first line of the scope's traces."""

    @property
    @abstractmethod
    def alphabet(self) -> tuple[AnyEvent, ...]:
        """Every event that is tried in every state."""

    @property
    @abstractmethod
    def shows(self) -> frozenset[AnyEvent]:
        """The ways in which requests may arrive, under any name."""

    @property
    def identifiers(self) -> tuple[str, ...]:
        """Every identifier that a request shows."""
        return tuple(sorted({item.identifier for one in self.shows for item in _items(one)}))

    @property
    def renamings(self) -> tuple[Renaming, ...]:
        """Renamings of requests and identifiers that leave the scope as it is."""
        return tuple(
            dict(zip((*self.requests, *self.identifiers), (*requests, *identifiers), strict=True))
            for identifiers in self._orders
            if self._shows_the_same(dict(zip(self.identifiers, identifiers, strict=True)))
            for requests in permutations(self.requests)
        )

    @property
    def _orders(self) -> Iterable[tuple[str, ...]]:
        """Orders of the identifiers into which they may be renamed."""
        return permutations(self.identifiers)

    @property
    def sentence(self) -> str:
        """The scope's size in words."""
        return (
            f"{len(self.identifiers)} identifiers x {len(self.requests)} requests x "
            f"capacity {self.header.config.capacity}"
        )

    def _shows_the_same(self, renaming: Renaming) -> bool:
        renamed = {
            replace(
                one,
                items=tuple(
                    replace(item, identifier=renaming[item.identifier]) for item in _items(one)
                ),
            )
            for one in self.shows
        }
        return renamed == self.shows


@dataclass(frozen=True)
class ManagerScope(Scope):
    """The scope of an encoder cache manager: each request has one of the `prompts`; `strides` are
    the tokens of a request that a step may schedule. Sizes are in embeddings."""

    manager: Literal["encoder_cache", "encoder_decoder"]
    capacity: int
    compute_budget: int
    prompts: tuple[Prompt, ...]
    strides: tuple[int, ...]

    @property
    def subject(self) -> str:
        return self.manager

    @property
    def header(self) -> ManagerHeader:
        config = ManagerConfig(self.capacity, self.compute_budget)
        return ManagerHeader(SCHEMA, self.manager, config)

    @property
    def shows(self) -> frozenset[AnyEvent]:
        return frozenset(Add(ANY, _end(prompt), prompt) for prompt in self.prompts)

    @property
    def alphabet(self) -> tuple[ManagerEvent, ...]:
        events: list[ManagerEvent] = []
        for request in self.requests:
            events += [Add(request, _end(prompt), prompt) for prompt in self.prompts]
            events += [Walk(request, tokens) for tokens in self.strides]
            events += [Stall(request, max(self.strides)), Preempt(request), Finish(request)]
            events += [Release(request, number) for number in range(max(map(len, self.prompts)))]
        return (*events, Notices(), Update(), Reset())


@dataclass(frozen=True)
class SchedulerScope(Scope):
    """The scope of a scheduler: each request arrives in one of the `arrivals`, under any name. All
    decode one text, so that what a request decodes does not depend on its name.

    Raises:
        ValueError: an item is larger than the cache or the budget: a release would enlarge both.
    """

    config: SchedulerConfig
    arrivals: tuple[Add, ...]
    further: tuple[SchedulerEvent, ...]

    def __post_init__(self) -> None:
        items = [item for one in self.arrivals for item in one.items]
        largest = max((item_size(to_builtins(item), True) for item in items), default=0)
        if largest > min(self.config.capacity, self.config.compute_budget):
            raise ValueError(f"scope {self.name}: an item of {largest} is larger than what is")

    @property
    def subject(self) -> str:
        return "scheduler"

    @property
    def header(self) -> SchedulerHeader:
        return SchedulerHeader(SCHEMA, "encoder_cache", replace(self.config, one_text=True))

    @property
    def shows(self) -> frozenset[AnyEvent]:
        return frozenset(self.arrivals)

    @property
    def alphabet(self) -> tuple[SchedulerEvent, ...]:
        return tuple(self._alphabet())

    def _alphabet(self) -> Iterator[SchedulerEvent]:
        yield from (Schedule(), Update())
        for request in self.requests:
            yield from (replace(one, request=request) for one in self.arrivals)
            yield Abort(request)
        yield from self.further

    @property
    def _orders(self) -> Iterable[tuple[str, ...]]:
        """As in every scope; only the own order with prefix caching, where a block key is made of
        identifiers and does not show them, so that a state cannot be renamed."""
        return [self.identifiers] if self.config.prefix_caching else super()._orders

    @property
    def sentence(self) -> str:
        config = self.config
        return (
            f"{super().sentence} x {config.num_blocks - 1} blocks of {config.block_size} x "
            f"{config.max_num_batched_tokens} tokens a step"
        )


def prompt(*items: tuple[str, int] | tuple[str, int, tuple[bool, ...]]) -> Prompt:
    """A prompt of items one after the other, each an identifier, a length in tokens, and a mask of
    the tokens that are embedded where not all are."""
    placed: list[Item] = []
    for identifier, length, *mask in items:
        placed.append(Item(identifier, _end(placed), length, None, *mask))
    return tuple(placed)


def _end(items: Sequence[Item]) -> int:
    return items[-1].offset + items[-1].length if items else 0


def _items(event: AnyEvent) -> tuple[Item, ...]:
    assert isinstance(event, Add)
    return event.items
