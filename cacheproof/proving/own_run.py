"""The third witness of what is proved of a release's keys: the release itself.

Such a row speaks of the reference's text under the release's semantics. Here the release's own
classes, in their interpreter, make the digests and the keys of the scopes' contents; the text that
is proved must make the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from blake3 import blake3

from cacheproof.differential.media.descriptions import Description, call
from cacheproof.differential.media.values import mapping, none, sequence, text
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.host.protocol import HASH_SEED
from cacheproof.differential.traces.base import SCHEMA, Adapter, Item
from cacheproof.differential.traces.block_hash import (
    BlockHashConfig,
    BlockHashHeader,
    Decode,
    Prompt,
)
from cacheproof.differential.traces.media_hash import Hash, MediaHashConfig, MediaHashHeader
from cacheproof.differential.traces.trace import AnyEvent, Trace
from cacheproof.proofs.keys import scopes
from cacheproof.proofs.keys.exploration import Explore, explored
from cacheproof.proofs.keys.running import BlockTexts, Requested, StreamOfRelease
from cacheproof.reference.hash_functions import Algorithm, hash_function
from cacheproof.reference.semantics import Semantics

ALGORITHM: Algorithm = "sha256_cbor"
FLOATS = 2
"""How often the bytes of a scope's row stand in a release's, which are floats of four bytes."""
DECODED = (1, 0, 1)
"""Tokens that each request decodes, one by one."""

Keys = Mapping[tuple[int, int], Sequence[Sequence[object]]]
"""(Block size, look-ahead) in tokens -> for each request, the keys after its arrival and after its
last token."""


@dataclass(frozen=True)
class OwnRun:
    """What a release makes of the contents of the scopes, each asked once.

    Raises:
        HarnessError: where the release's host breaks.
    """

    target: Target
    semantics: Semantics

    @property
    def of_frames(self) -> Explore:
        """Compare the release's digests with those that a text gives."""
        return explored(partial(self._other_digests, self._digests), "digests")

    @property
    def of_growth(self) -> Explore:
        """Compare the release's keys of requests that arrive and decode with those of a text."""
        return explored(partial(self._other_keys, self._keys), "requests")

    def _other_digests(self, digests: Sequence[object], read: str) -> Iterator[str | None]:
        stream = StreamOfRelease(read, self.semantics.media)
        for made, theirs in zip(scopes.framed(), digests, strict=True):
            ours = {"digest": blake3(stream.of_call({"x": made.value})).hexdigest()}
            yield None if theirs == ours else f"{made}: {theirs} of the release, {ours} of the text"

    def _other_keys(self, keys_of: Keys, read: str) -> Iterator[str | None]:
        keyed = self.semantics.block_keys
        blocks, hash_of = BlockTexts(read, keyed), hash_function(keyed, ALGORITHM)
        for (size, ahead), found in keys_of.items():
            for asked, theirs in zip(self._asked, found, strict=True):
                later = Requested(**{**vars(asked), "tokens": (*asked.tokens, *DECODED)})
                for requested, outcome in zip((asked, later), theirs, strict=True):
                    keys = blocks.keys(requested, size, ahead, hash_of=hash_of, seed=HASH_SEED)
                    ours = [key.hex() for key in keys]
                    alike = outcome == {"grown": ours, "fresh": ours}
                    yield None if alike else f"other keys of {requested} in blocks of {size}"

    @cached_property
    def _digests(self) -> Sequence[object]:
        events = tuple(Hash(call(x=_described(made.value))) for made in scopes.framed())
        (outcomes,) = self._outcomes([Trace(MediaHashHeader(SCHEMA, MediaHashConfig()), events)])
        return outcomes

    @cached_property
    def _keys(self) -> Keys:
        events = tuple(
            event
            for number, requested in enumerate(self._asked)
            for event in _prompt(f"r{number}", requested)
        )
        traces = [
            Trace(BlockHashHeader(SCHEMA, BlockHashConfig(*one, ALGORITHM)), events)
            for one in scopes.SIZES
        ]
        return {
            one: [*zip(outcomes[::2], outcomes[1::2], strict=True)]
            for one, outcomes in zip(scopes.SIZES, self._outcomes(traces), strict=True)
        }

    @cached_property
    def _asked(self) -> Sequence[Requested]:
        """The requests of the scope. Where all embeddings are given a release has no tokens."""
        found = []
        for requested in scopes.requests():
            rows = requested.rows and tuple(row and row * FLOATS for row in requested.rows)
            tokens = requested.tokens if rows is None else (0,) * len(rows)
            found.append(Requested(**{**vars(requested), "rows": rows, "tokens": tokens}))
        return found

    def _outcomes(self, traces: Sequence[Trace]) -> Iterator[list[object]]:
        for result in self.target.run(traces):
            yield [record.outcome for record in result.records]


def _described(value: Any) -> Description:
    """None, a text, or what is nested of these, in the words of a trace."""
    match value:
        case None:
            return none()
        case str():
            return text(value)
        case dict():
            return mapping(*((name, _described(entry)) for name, entry in value.items()))
    return sequence(*map(_described, value), kind=type(value).__name__)


def _prompt(name: str, requested: Requested) -> Iterator[AnyEvent]:
    adapter = requested.adapter
    yield Prompt(
        name,
        requested.tokens,
        tuple(Item(*item) for item in requested.items),
        adapter and Adapter(adapter[0], 1, adapter[1]),
        requested.salt,
        requested.rows and tuple(row and row.hex() for row in requested.rows),
    )
    yield Decode(name, DECODED)
