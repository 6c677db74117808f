"""Scopes: which requests may arrive, what the engine may do, and how large all of it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Literal

from msgspec.structs import replace

from cacheproof.differential.trace import (
    SCHEMA,
    Add,
    Finish,
    Item,
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
from cacheproof.proofs.explore.symmetry import Renaming

Prompt = tuple[Item, ...]
"""Items that follow one another and are all of a prompt."""


@dataclass(frozen=True)
class Scope:
    """All traces, however long, over a few names.

    Requests bear the names `requests`, any number of them one after the other, and each has one of
    the `prompts`; `strides` are the tokens that a step may schedule of one. Sizes in embeddings.
    `lane` is the lane of a campaign whose known faults count here. What is not closed within
    `transitions_max` has, of a target that breaks rules, perhaps no end.
    """

    name: str
    manager: Literal["encoder_cache", "encoder_decoder"]
    lane: str
    capacity: int
    compute_budget: int
    requests: str
    prompts: tuple[Prompt, ...]
    strides: tuple[int, ...]
    transitions_max: int = 50_000

    @property
    def header(self) -> ManagerHeader:
        """The first line of its traces."""
        config = ManagerConfig(self.capacity, self.compute_budget)
        return ManagerHeader(SCHEMA, self.manager, config)

    @property
    def identifiers(self) -> tuple[str, ...]:
        """Every identifier that a prompt shows."""
        return tuple(sorted({item.identifier for prompt in self.prompts for item in prompt}))

    @property
    def alphabet(self) -> tuple[ManagerEvent, ...]:
        """Every event that is tried in every state."""
        events: list[ManagerEvent] = []
        for request in self.requests:
            events += [Add(request, _end(prompt), prompt) for prompt in self.prompts]
            events += [Walk(request, tokens) for tokens in self.strides]
            events += [Stall(request, max(self.strides)), Preempt(request), Finish(request)]
            events += [Release(request, number) for number in range(max(map(len, self.prompts)))]
        return (*events, Notices(), Update(), Reset())

    @property
    def renamings(self) -> tuple[Renaming, ...]:
        """Those of requests and identifiers that leave the scope as it is."""
        return tuple(
            dict(zip((*self.requests, *self.identifiers), (*requests, *identifiers), strict=True))
            for identifiers in permutations(self.identifiers)
            if self._shows_the_same(dict(zip(self.identifiers, identifiers, strict=True)))
            for requests in permutations(self.requests)
        )

    @property
    def sentence(self) -> str:
        """Its size in words."""
        return (
            f"{len(self.identifiers)} identifiers x {len(self.requests)} requests x "
            f"capacity {self.capacity}"
        )

    def _shows_the_same(self, renaming: Renaming) -> bool:
        renamed = {
            tuple(replace(item, identifier=renaming[item.identifier]) for item in prompt)
            for prompt in self.prompts
        }
        return renamed == set(self.prompts)


def prompt(*items: tuple[str, int] | tuple[str, int, tuple[bool, ...]]) -> Prompt:
    """Items one behind the other: identifiers, lengths in tokens, and which of them are embedded
    where not all are."""
    placed: list[Item] = []
    for identifier, length, *mask in items:
        placed.append(Item(identifier, _end(placed), length, None, *mask))
    return tuple(placed)


def _end(items: Sequence[Item]) -> int:
    return items[-1].offset + items[-1].length if items else 0
