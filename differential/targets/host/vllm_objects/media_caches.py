"""The two caches of processed media, of whichever system, as a session drives them."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

SENDERS = ("LruKeyReplicatedSenderCache", "MultiModalProcessorSenderCache")
RECEIVERS = ("LruKeyReplicatedReceiverCache", "MultiModalReceiverCache")
SHARED_SENDERS = ("ShmObjectStoreSenderCache",)
SHARED_RECEIVERS = ("ShmObjectStoreReceiverCache",)
"""What the halves are called in vLLM, and were, the newest first."""

Content = tuple[str, int]
"""What an item says, and its bytes."""


MODALITIES = ("image", "audio", "video")
"""In the order in which a server of chats hands the items of a request to its processor."""


class Asked(NamedTuple):
    """What a request has: names, what they say and are, in the order of its prompt; how often its
    message is to be sent, the number of the API server that it comes to, whether that one's cache
    is left out, and whether the processor raises an error."""

    names: tuple[str, ...]
    contents: tuple[Content, ...]
    modalities: tuple[str, ...]
    samples: int
    server: int
    skips_cache: bool
    fails: bool


class Message(NamedTuple):
    """The items of a request as they are sent: what only the caches look into, of what was asked
    for."""

    asked: Asked
    payload: Any


class Caches(Protocol):
    """Both halves, of whichever system."""

    def process(self, asked: Asked) -> tuple[Any, list[str | None]]:
        """What is sent, and what of it says what; None for an item without data. Raises
        ProcessorError where the request's processor does."""

    def receive(self, message: Message, worker: int) -> list[str]:
        """What is handed on, to that worker where each reads for itself. Raises Lacking where
        items are not there."""

    def withdraw(self, message: Message) -> None:
        """The message is never sent."""

    def forget(self, names: Sequence[str]) -> None:
        """The front end hears that these were lacking."""

    def reset(self, half: str, server: int) -> None:
        """That API server is told to have a half forget all, or both."""

    def state(self) -> list[tuple[list[str], int]]:
        """Of sender, receiver and each further API server: names, what was used longest ago first,
        and bytes counted. Of shared memory: names, and bytes in use; then of each chunk its name,
        how often it was read, and how often it is to be read."""

    def close(self) -> None:
        """Give back what is not this process's alone."""


class NeverEnds(Exception):
    """A half would evict for ever: what it evicts makes no room."""


class ProcessorError(Exception):
    """A processor cannot process an item."""


class Lacking(Exception):
    """Items that came without data are not there; those that are told of."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(*names)
        self.names = tuple(names)
