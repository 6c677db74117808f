"""Drives the block hashing of a release: requests arrive, decode, and their keys are asked for.

Beside the keys that a request has as it grew, every outcome holds those that a second request of
the same content gets when all of its tokens are hashed at once.
"""

from collections.abc import Callable
from typing import Any

from .block_hash_faults import BLOCK_HASH_FAULTS
from .protocol import Event
from .session import NoCalls


class BlockHashSession:
    """One trace. `make(event, hasher)` returns a request of the system under test, which asks
    `hasher` for its keys as it grows when there is one; it may raise Illegal."""

    def __init__(
        self,
        make: Callable[[Event, Any], Any],
        hasher: Callable[[Any], Any],
        block_size: int,
        fault: str | None = None,
    ) -> None:
        self.recorder = NoCalls()
        self._make = make
        self._hasher = hasher if fault is None else BLOCK_HASH_FAULTS[fault](hasher, block_size)
        self._prompts: dict[str, Event] = {}
        self._requests: dict[str, Any] = {}
        self._decoded: dict[str, list[int]] = {}
        self._handlers: dict[str, Callable[[Event], Any]] = {
            "prompt": self._prompt,
            "decode": self._decode,
        }

    def apply(self, event: Event) -> Any:
        return self._handlers[event["event"]](event)

    def _prompt(self, event: Event) -> Any:
        name = event["request"]
        if name in self._prompts:
            return None
        self._requests[name] = self._make(_with_own_strings(event), self._hasher)
        self._prompts[name], self._decoded[name] = event, []
        return self._keys(name)

    def _decode(self, event: Event) -> Any:
        name = event["request"]
        if name not in self._prompts:
            return None
        self._decoded[name] += event["tokens"]
        for token in event["tokens"]:
            self._requests[name].append_output_token_ids([token])
        return self._keys(name)

    def _keys(self, name: str) -> dict[str, list[str]]:
        fresh = self._make(_with_own_strings(self._prompts[name]), None)
        fresh.append_output_token_ids(self._decoded[name])
        return {
            "grown": [_hex(key) for key in self._requests[name].block_hashes],
            "fresh": [_hex(key) for key in self._hasher(fresh)],
        }


def _hex(key: Any) -> str:
    return key.hex() if isinstance(key, bytes) else str(key)


def _with_own_strings(event: Event) -> Event:
    """The event with string objects of its own: pickles tell shared objects from equal ones, so
    which are shared must not depend on where an event comes from. `one_object` makes equal
    identifiers the same object."""
    made: dict[str, str] = {}
    items = []
    for item in event["items"]:
        name = _own(item["identifier"])
        if event["one_object"]:
            name = made.setdefault(name, name)
        items.append({**item, "identifier": name})
    lora = event["lora"] and {
        name: _own(value) if isinstance(value, str) else value
        for name, value in event["lora"].items()
    }
    return {**event, "items": items, "lora": lora, "salt": event["salt"] and _own(event["salt"])}


def _own(text: str) -> str:
    return text.encode().decode()
