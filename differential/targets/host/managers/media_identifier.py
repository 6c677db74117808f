"""Has front ends name the items of requests, in lives of engines.

A digest is told by its number: the first that is met is #1. Which contents have one digest is a
media hash's matter; here it is which items have one name.
"""

import re
from collections.abc import Callable, Sequence

from ..protocol import Event, Json
from ..session import NoCalls
from ..vllm_objects.media_names import Item, Name

_DIGEST = re.compile(r"[0-9a-f]{64}")


def key_of(identifier: str) -> str:
    """An identifier without what stands before it, an adapter's name say."""
    return identifier.rpartition(":")[2]


def settings_of(settings: Sequence[int], engine: int) -> int:
    """The options that an engine gives its processor where a request has none; 0 for none."""
    return settings[engine] if engine < len(settings) else 0


class MediaIdentifierSession:
    """One trace. `apply` takes an event and returns its outcome, None for a no-op."""

    def __init__(self, make: Callable[[int, int], Name]) -> None:
        """`make` makes what names the items that come to a server, of the numbers of its engine
        and of its own."""
        self.recorder = NoCalls()
        self._make = make
        self._namers: dict[tuple[int, int], Name] = {}
        self._given: list[str] = []
        self._digests: dict[str, str] = {}

    def apply(self, event: Event) -> dict[str, Json] | None:
        if event["event"] == "restart":
            servers = [one for one in self._namers if one[0] == event["engine"]]
            for one in servers:
                del self._namers[one]
            return {}
        uuids = [item["uuid"] for item in event["items"]]
        if any(isinstance(one, int) and one >= len(self._given) for one in uuids):
            return None
        texts = [key_of(self._given[one]) if isinstance(one, int) else one for one in uuids]
        items = [
            Item(item["modality"], item["content"], text)
            for item, text in zip(event["items"], texts, strict=True)
        ]
        where = event["engine"], event["server"]
        if where not in self._namers:
            self._namers[where] = self._make(*where)
        try:
            given = self._namers[where](event["request"], items, event["adapter"], event["options"])
        except Exception as error:
            return {"raises": type(error).__name__}
        self._given += given
        return {"identifiers": [_DIGEST.sub(self._numbered, one) for one in given]}

    def _numbered(self, digest: re.Match[str]) -> str:
        return self._digests.setdefault(digest[0], f"#{len(self._digests) + 1}")
