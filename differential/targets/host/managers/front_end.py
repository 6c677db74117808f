"""Drives the two caches of processed media as a front end and an engine core do."""

from collections.abc import Sequence

from ..protocol import Event, Illegal, Json
from ..session import NoCalls
from ..vllm_objects.media_caches import (
    Asked,
    Caches,
    Content,
    Lacking,
    Message,
    NeverEnds,
    ProcessorError,
)

HEADER = 8
"""Bytes of a chunk's header in shared memory."""
NOT_THERE = (AssertionError, KeyError)
"""How either half says that an item is not where it was taken to be."""


def check(config: Event) -> None:
    """Raises Illegal for shared memory that has no room for the largest chunk."""
    if config["store"] == "shm" and config["largest"] + HEADER > config["capacity"]:
        raise Illegal(
            f"shared memory of {config['capacity']} bytes; expected room for a chunk of "
            f"{config['largest']} and its header of {HEADER}"
        )


class FrontEndSession:
    """One trace. A half that would never end ends the trace: nothing after it is answered."""

    def __init__(self, config: Event, caches: Caches) -> None:
        self.recorder = NoCalls()
        self._caches = caches
        self._sizes = {item["name"]: item["sizes"] for item in config["items"]}
        self._modalities = {item["name"]: item["modality"] for item in config["items"]}
        self._messages: dict[str, Message] = {}
        self._workers = range(config["workers"] if config["store"] == "shm" else 1)
        self._servers = range(config["servers"] if config["store"] == "processor" else 1)
        self._to_read: dict[str, dict[int, int]] = {}
        self._lacking: dict[str, Sequence[str]] = {}
        self._is_stuck = False

    def apply(self, event: Event) -> Json:
        if self._is_stuck:
            return None
        try:
            outcome = getattr(self, f"_{event['event']}")(event)
        except NeverEnds:
            self._is_stuck = True
            outcome = {"refused": "does not end"}
        if outcome is None:
            return None
        kept, counted = zip(*self._caches.state(), strict=True)
        sender, receiver, *others = kept
        outcome |= {"sender": sender, "receiver": receiver, "counted": list(counted)}
        return outcome | {"others": others} if others else outcome

    def close(self) -> None:
        """Close the caches."""
        self._caches.close()

    def _process(self, event: Event) -> dict[str, Json] | None:
        is_under_way = event["request"] in self._messages or event["request"] in self._lacking
        is_known = event["server"] in self._servers and all(map(self._is_there, event["items"]))
        if is_under_way or not is_known:
            return None
        contents = tuple(map(self._content, event["items"]))
        names = tuple(item["name"] for item in event["items"])
        modalities = tuple(self._modalities[name] for name in names)
        of_all = (event[of] for of in ("samples", "server", "skips_cache", "fails"))
        asked = Asked(names, contents, modalities, *of_all)
        try:
            payload, told = self._caches.process(asked)
        except ProcessorError:
            return {}
        except NOT_THERE:
            return {"refused": "evicted by its own items"}
        except ValueError:
            return {"refused": "too large"}
        self._messages[event["request"]] = Message(asked, payload)
        self._to_read[event["request"]] = dict.fromkeys(self._workers, asked.samples)
        return {"sent": told}

    def _withdraw(self, event: Event) -> dict[str, Json] | None:
        message = self._messages.get(event["request"])
        if message is None or any(
            left != message.asked.samples for left in self._to_read[event["request"]].values()
        ):
            return None
        del self._to_read[event["request"]], self._messages[event["request"]]
        self._caches.withdraw(message)
        return {}

    def _deliver(self, event: Event) -> dict[str, Json] | None:
        name, worker = event["request"], event["worker"]
        if not self._to_read.get(name, {}).get(worker):
            return None
        message = self._messages[name]
        self._to_read[name][worker] -= 1
        if not any(self._to_read[name].values()):
            del self._to_read[name], self._messages[name]
        try:
            return {"handed": self._caches.receive(message, worker)}
        except Lacking as error:
            self._lacking[event["request"]] = error.names
            return {"lacking": list(error.names)}
        except NOT_THERE:
            self._lacking[name] = ()
            return {"lacking": []}
        except ValueError:
            return {"refused": "too large"}

    def _report(self, event: Event) -> dict[str, Json] | None:
        lacking = self._lacking.pop(event["request"], None)
        if lacking is None:
            return None
        self._caches.forget(lacking)
        return {}

    def _reset_media(self, event: Event) -> dict[str, Json] | None:
        if event["server"] not in self._servers:
            return None
        self._caches.reset(event["half"], event["server"])
        return {}

    def _is_there(self, item: Event) -> bool:
        return item["content"] < len(self._sizes.get(item["name"], ()))

    def _content(self, item: Event) -> Content:
        name, number = item["name"], item["content"]
        return f"{name}/{number}", self._sizes[name][number]
