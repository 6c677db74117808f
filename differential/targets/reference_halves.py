"""Sender and receiver of the reference, with oracles in the place of their caches."""

from collections.abc import Callable, Sequence
from typing import Any

from cacheproof.differential.targets.host.managers.halves import (
    Found,
    Item,
    Name,
    Oracle,
    Size,
    Unmodelled,
    World,
    explored,
    said,
)
from cacheproof.reference.processor_cache import Receiver, Sender
from cacheproof.reference.semantics.front_end import FrontEndSemantics


def explored_reference(
    sender: FrontEndSemantics, receiver: FrontEndSemantics | None = None
) -> Found:
    """What came of all scripts; the receiver has the semantics of the sender, or others."""
    return explored(lambda world: _ReferenceHalves(world, sender, receiver or sender))


class _ReferenceHalves:
    """A sender and a receiver of the reference."""

    def __init__(
        self, world: World, sender: FrontEndSemantics, receiver: FrontEndSemantics
    ) -> None:
        self.sender = _oracle(world)
        self.receiver = _oracle(world)
        self._sender = Sender(1, sender)
        self._receiver = Receiver(1, receiver)
        self._sender.cache = self.sender  # type: ignore[assignment]
        self._receiver.cache = self.receiver  # type: ignore[assignment]

    def send(self, names: Sequence[Name]) -> list[str | None]:
        asked = [_named(name) for name in names]
        self._message = self._sender.send(asked, _process(self.sender))
        return [None if item is None else said(item, Item)[1:] for _, item in self._message.items]

    def receive(self, names: Sequence[Name]) -> list[str]:
        again = _process(self.receiver)
        # another process has items and names of its own
        came: Any = tuple(
            sent._replace(
                name=_named(sent.name),
                item=None if sent.item is None else again(int(said(sent.item, Item)[1:])),
            )
            for sent in self._message.items
        )
        handed = self._receiver.receive(self._message._replace(items=came), again)
        told = [said(item, Item) for item in handed]
        return [said(names[int(one[1:])], Name) if one[0] == "#" else one for one in told]

    def clear(self) -> None:
        self._sender.clear()
        self._receiver.clear()


def _process(oracle: Oracle) -> Callable[[int], Any]:
    return lambda number: _item(f"#{number}", str(number), oracle)


def _oracle(world: World) -> Oracle:
    made: list[Oracle] = []
    made.append(
        Oracle(world, lambda item: item.size, lambda name: _item(name, f"of {name}", made[0]))
    )
    return made[0]


def _named(name: Any) -> Any:
    """A name of another object. Python hashes what it looks for in an empty dictionary too."""
    return Name(said(name, Name), __hash__=lambda: 0)


def _item(says: str, size: str, oracle: Oracle) -> Item:
    """An item: a record, which is never empty, and whose size is compared with the capacity."""

    def fits(capacity: object) -> bool:
        if capacity is not oracle.capacity:
            raise Unmodelled("a size is compared with something else than the capacity")
        return oracle.fits(counted)

    counted = Size(size, __le__=fits)
    return Item(says, __bool__=lambda: True, size=counted)
