"""Drives the block hashing of a release: requests arrive, decode and go on, and their keys are
asked for.

Beside the keys that a request has as it grew, every outcome holds those that a second request of
the same content gets when all of its tokens are hashed at once.
"""

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from ..faults.block_hash import BLOCK_HASH_FAULTS
from ..protocol import Event, Json
from ..session import NoCalls
from ..vllm_objects.requests import BlockHasher


class GrowingRequest(Protocol):
    """A request that has the keys of its blocks, and asks for more as it grows."""

    @property
    def block_hashes(self) -> Sequence[object]: ...
    def append_output_token_ids(self, token_ids: list[int], /) -> None: ...


Hashed = TypeVar("Hashed", bound=GrowingRequest)


class BlockHashSession(Generic[Hashed]):
    """One trace. `make(event, hasher)` returns a request of the system under test, which asks
    `hasher` for its keys as it grows when there is one; `go_on(request, chunk)` continues a request
    that has stopped with the prompt of another. Both may raise Illegal."""

    def __init__(
        self,
        make: Callable[[Event, BlockHasher | None], Hashed],
        go_on: Callable[[Hashed, Hashed], None],
        hasher: BlockHasher,
        block_size: int,
        fault: str | None = None,
    ) -> None:
        self.recorder = NoCalls()
        self._make = make
        self._go_on = go_on
        self._hasher = hasher if fault is None else BLOCK_HASH_FAULTS[fault](hasher, block_size)
        self._texts: dict[str, _Text] = {}
        self._requests: dict[str, Hashed] = {}
        self._handlers: dict[str, Callable[[Event], Json]] = {
            "prompt": self._prompt,
            "decode": self._decode,
            "continue": self._continue,
        }

    def apply(self, event: Event) -> Json:
        return self._handlers[event["event"]](event)

    def _prompt(self, event: Event) -> Json:
        name = event["request"]
        if name in self._texts:
            return None
        text = _Text(event)
        self._requests[name] = self._make(text.prompt(), self._hasher)
        self._texts[name] = text
        return self._keys(name)

    def _decode(self, event: Event) -> Json:
        name = event["request"]
        if name not in self._texts:
            return None
        self._texts[name].decoded += event["tokens"]
        for token in event["tokens"]:
            self._requests[name].append_output_token_ids([token])
        return self._keys(name)

    def _continue(self, event: Event) -> Json:
        name = event["request"]
        if name not in self._texts or not self._texts[name].can_go_on:
            return None
        self._go_on(self._requests[name], self._make(self._texts[name].chunk(event), None))
        self._texts[name].go_on(event)
        return self._keys(name)

    def _keys(self, name: str) -> dict[str, Json]:
        fresh = self._make(self._texts[name].prompt(), None)
        fresh.append_output_token_ids(self._texts[name].decoded)
        return {
            "grown": [_hex(key) for key in self._requests[name].block_hashes],
            "fresh": [_hex(key) for key in self._hasher(fresh)],
        }


class _Text:
    """The content of a request: its prompt, the prompts that continued it, and what it has decoded
    since.

    Each time it is asked for, it comes with string objects of its own: pickles tell shared objects
    from equal ones, so which are shared must not depend on where an event comes from. `one_object`
    makes equal identifiers of one event the same object.
    """

    def __init__(self, event: Event) -> None:
        self.decoded: list[int] = []
        self._event = event
        self._tokens = list(event["tokens"])
        self._shown = [(0, event["items"])]

    @property
    def can_go_on(self) -> bool:
        """Whether an engine would continue it: it has decoded, and vLLM refuses embeddings here."""
        return bool(self.decoded) and self._event["embeds"] is None

    def go_on(self, event: Event) -> None:
        """Continue the request: all but the last decoded token becomes prompt, and then the event's
        tokens."""
        self._tokens += self.decoded[:-1]
        self._shown.append((len(self._tokens), event["items"]))
        self._tokens += event["tokens"]
        self.decoded = []

    def prompt(self) -> Event:
        """The whole prompt, as if the request arrived with it."""
        items = [
            {**item, "offset": start + item["offset"]}
            for start, shown in self._shown
            for item in self._own_items(shown)
        ]
        return self._own(self._tokens, items)

    def chunk(self, event: Event) -> Event:
        """The event's tokens and items, as a prompt of its own."""
        return self._own(event["tokens"], self._own_items(event["items"]))

    def _own(self, tokens: list[int], items: list[Event]) -> Event:
        salt, lora = self._event["salt"], self._event["lora"]
        lora = lora and {
            name: _own(value) if isinstance(value, str) else value for name, value in lora.items()
        }
        own = {"tokens": tokens, "items": items, "lora": lora, "salt": salt and _own(salt)}
        return {**self._event, **own}

    def _own_items(self, shown: list[Event]) -> list[Event]:
        made: dict[str, str] = {}
        items = []
        for item in shown:
            name = _own(item["identifier"])
            if self._event["one_object"]:
                name = made.setdefault(name, name)
            items.append({**item, "identifier": name})
        return items


def _own(text: str) -> str:
    return text.encode().decode()


def _hex(key: object) -> str:
    return key.hex() if isinstance(key, bytes) else str(key)
