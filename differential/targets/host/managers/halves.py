"""Both halves of the cache of processed media, run in every way in which their caches can answer.

Each half's cache is an oracle. It records what it is told, and answers what it is asked by a
script, and all scripts are gone through. What a half knows but for these answers is opaque: names,
items and sizes raise Unmodelled whatever is done to them, so nothing can depend on them.

Two caches of one class and one capacity, told the same since they were equal, answer alike. So the
receiver is answered what the sender was, and a question that the sender did not ask is open. What a
cache says of a name depends on all that it was told before, and whether a size fits on that alone.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, ClassVar, NamedTuple, Protocol

ITEMS_MAX = 3
"""Items of the longest message that is run."""
ITEMS_LEARNED = 2
"""Items of the longest message from which is learned what is called for one."""
LOOKS_MAX = 2
"""How often a sender looks for all names of a message before the first item, at most."""
Call = tuple[str, ...]
"""A question with its answer, or a change: its name, then the name or the size that it is about."""
Way = tuple[bool, tuple[Call, ...]]
"""What may be called for an item, as if its name were a and its size 0; and of a sender whether it
was told before that it has the item, of a receiver whether the item came with data."""
_SPECIAL = (
    *("__bool__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__"),
    *("__len__", "__iter__", "__next__", "__reversed__", "__contains__", "__getitem__"),
    *("__setitem__", "__delitem__", "__call__", "__str__", "__format__", "__bytes__"),
    *("__int__", "__index__", "__float__", "__complex__", "__round__", "__trunc__", "__floor__"),
    *("__ceil__", "__neg__", "__pos__", "__abs__", "__invert__", "__enter__", "__exit__"),
    *("__reduce__", "__reduce_ex__", "__setattr__", "__delattr__", "__dir__", "__sizeof__"),
    *(
        f"__{side}{name}__"
        for side in ("", "r", "i")
        for name in (
            *("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow"),
            *("lshift", "rshift", "and", "xor", "or"),
        )
    ),
)


class Unmodelled(BaseException):
    """Something was done of which nothing is known here. No Exception, which a half may catch; and
    where one is caught all the same, it was `seen`."""

    seen: ClassVar[list[str]] = []

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.seen.append(what)


class Token:
    """What nothing may be done to but to hand it on, and what `may` answers, by name. `says` is for
    the oracles alone."""

    __slots__ = ("may", "says")

    def __init__(self, says: str, **may: Any) -> None:
        object.__setattr__(self, "says", says)
        object.__setattr__(self, "may", may)

    def __getattribute__(self, name: str) -> Any:
        may = object.__getattribute__(self, "may")
        if name in may:
            return may[name]
        raise Unmodelled(f"{name} of {object.__getattribute__(self, 'says')}")

    def __repr__(self) -> str:
        return "opaque"  # of all alike: it tells nothing


def _answer(name: str) -> Callable[..., Any]:
    def answer(self: Token, *args: object, **kwargs: object) -> Any:
        return getattr(self, name)(*args, **kwargs)

    return answer


for _name in _SPECIAL:
    setattr(Token, _name, _answer(_name))


class Name(Token):
    """An item's name: a text that is not empty."""

    __slots__ = ()

    def __init__(self, says: str, **may: Any) -> None:
        super().__init__(says, __bool__=lambda: True, **may)


class Size(Token):
    """An item's bytes. Whether they fit is asked of a cache, or of its capacity by `fits`."""

    __slots__ = ()


class Item(Token):
    """A processed item."""

    __slots__ = ()


def said(token: Any, kind: type[Token]) -> str:
    """What an oracle is told of. Raises Unmodelled where it is told of anything else."""
    if type(token) is not kind:
        raise Unmodelled(f"a {type(token).__name__} in the place of a {kind.__name__}")
    text: str = object.__getattribute__(token, "says")
    return text


class World:
    """One script: how everything is answered that is asked of either half. What the script leaves
    open is answered with no."""

    def __init__(self, script: Sequence[tuple[object, bool]]) -> None:
        self._script = script
        self.taken: list[tuple[object, bool]] = []
        self._known: dict[object, bool] = {}

    def ask(self, asked: object) -> bool:
        """The answer, which is another for each question, and the same for one that was asked."""
        if asked not in self._known:
            answer = False
            if len(self.taken) < len(self._script):
                before, answer = self._script[len(self.taken)]
                if before != asked:
                    raise Unmodelled(f"asks {asked}, and with the same answers {before}")
            self.taken.append((asked, answer))
            self._known[asked] = answer
        return self._known[asked]


class Oracle:
    """A half's cache. `size_of` gives the size of a value; `earlier` what is kept under a name
    since before. `told` has all changes, `calls` also the questions with their answers."""

    def __init__(
        self, world: World, size_of: Callable[[Any], Size], earlier: Callable[[str], Any]
    ) -> None:
        self._world = world
        self._size_of = size_of
        self._earlier = earlier
        self._kept: dict[str, Any] = {}
        self.told: list[Call] = []
        self.calls: list[Call] = []
        self.maxsize = self.capacity = Token("capacity")

    def fits(self, size: Any) -> bool:
        """Whether a value of that size is no larger than the cache."""
        known = said(size, Size)
        return self._asked(("fits", known), "fits", known)  # whatever else is kept

    def __contains__(self, name: Any) -> bool:
        known = said(name, Name)
        return self._asked((tuple(self.told), known), "has", known)

    def get(self, name: Any, default: Any = None) -> Any:
        if name not in self:
            return default
        return self._used(name)

    def __getitem__(self, name: Any) -> Any:
        if name not in self:
            raise KeyError(name)
        return self._used(name)

    def _used(self, name: Any) -> Any:
        self._changed("use", said(name, Name))
        return self._value(name)

    def touch(self, name: Any) -> None:
        self._changed("touch", said(name, Name))

    def __setitem__(self, name: Any, value: Any) -> None:
        size = self._size_of(value)
        if not self.fits(size):
            raise ValueError("value too large")
        self._changed("set", said(name, Name), said(size, Size))
        self._kept[said(name, Name)] = value

    put = __setitem__

    def put_if_fits(self, name: Any, value: Any) -> bool:
        try:
            self[name] = value
        except ValueError:
            return False
        return True

    def pop(self, name: Any, default: Any = None) -> Any:
        if name not in self:
            return default
        value = self._value(name)
        self._changed("drop", said(name, Name))
        self._kept.pop(said(name, Name), None)
        return value

    drop = pop

    def clear(self) -> None:
        self._changed("clear")

    def getsizeof(self, value: Any) -> Size:
        return self._size_of(value)

    @property
    def cache(self) -> "_Looked":
        return _Looked(self)

    def _value(self, name: Any) -> Any:
        known = said(name, Name)
        return self._kept[known] if known in self._kept else self._earlier(known)

    def _asked(self, asked: object, question: str, about: str) -> bool:
        answer = self._world.ask(asked)
        self.calls.append((question, about, "yes" if answer else "no"))
        return answer

    def _changed(self, *change: str) -> None:
        self.told.append(change)
        self.calls.append(change)

    def _other(self, *args: object) -> Any:
        raise Unmodelled(f"another use of a cache: {args}")

    __getattr__ = __iter__ = __len__ = __bool__ = __delitem__ = __eq__ = _other  # type: ignore[assignment]
    __hash__ = _other  # type: ignore[assignment]


class _Looked:
    """A cache's view of what it keeps: to look there counts as no use."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle

    def __contains__(self, name: Any) -> bool:
        return name in self._oracle

    def __getitem__(self, name: Any) -> Any:
        if name not in self._oracle:
            raise KeyError(name)
        return self._oracle._value(name)

    def __getattr__(self, name: str) -> Any:
        raise Unmodelled(f"{name} of a view")


class Halves(Protocol):
    """A sender and a receiver, whose caches are oracles."""

    sender: Oracle
    receiver: Oracle

    def send(self, names: Sequence[Name]) -> list[str | None]:
        """Have the sender process items of these names; the number of what it sends with data, as a
        text. Raises REFUSALS."""

    def receive(self, names: Sequence[Name]) -> list[str]:
        """Have the receiver take the message that was sent last. Of each item that is handed on,
        the name that it was processed under."""

    def clear(self) -> None:
        """Have both forget all."""


REFUSALS = (AssertionError, KeyError, ValueError)
"""How a sender says that a request cannot be sent."""
MakeHalves = Callable[[World], Halves]


class Run(NamedTuple):
    """A message that was sent and received: names, which items went with data, and the calls of
    either half."""

    names: tuple[str, ...]
    with_data: tuple[bool, ...]
    sent: tuple[Call, ...]
    received: tuple[Call, ...]


@dataclass
class Found:
    """What came of all scripts.

    Attributes:
        scripts: how many there are; `asked`: the decisions in them together.
        sent: those whose message is sent; `alone` and `kept`: items of these that went without
            data, and that were new and kept.
        refused: by exception those whose request is refused; `refused_halfway`: those of them in
            which the sender's cache has changed by then.
        parted: the first message after which the halves are not alike, in one line; or "".
        unknown: what was done that is not modelled, in one line; or "".
        uneven: a message whose calls are not those of its items, one after the other; or "".
        shape: how often a sender looks for all names first, and whether all are touched then.
    """

    scripts: int = 0
    asked: int = 0
    sent: int = 0
    alone: int = 0
    kept: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    refused_halfway: int = 0
    parted: str = ""
    unknown: str = ""
    uneven: str = ""
    shape: str = ""


def explored(make: MakeHalves, items_max: int = ITEMS_MAX) -> Found:
    """Run all messages of up to so many items, with names repeated in each way, in all scripts."""
    found = Found()
    runs: list[Run] = []
    Unmodelled.seen.clear()
    try:
        for names in _messages(items_max):
            for world in _worlds(found):
                _play(make(world), names, found, runs)
                if Unmodelled.seen:
                    raise Unmodelled(Unmodelled.seen[0])
        halves = make(World([]))
        halves.clear()
        if not halves.sender.told == halves.receiver.told == [("clear",)]:
            found.parted = found.parted or "a reset clears one half, and not the other alike"
        if Unmodelled.seen:
            raise Unmodelled(Unmodelled.seen[0])
    except Unmodelled as error:
        found.unknown = str(error)
        return found
    found.shape, found.uneven = _shape(runs)
    return found


def _messages(items_max: int) -> Iterator[tuple[str, ...]]:
    """Names of messages: each way in which some of so many can be the same; those of which none are
    come first."""
    letters = "abcdefgh"
    for count in range(1, items_max + 1):
        ways = product(letters[:count], repeat=count)
        yield from sorted(
            (one for one in ways if letters.startswith("".join(dict.fromkeys(one)))),
            key=lambda one: -len({*one}),
        )


def _worlds(found: Found) -> Iterator[World]:
    """A world of each script; a script begins as the one before, up to its last open answer."""
    script: list[tuple[object, bool]] | None = []
    while script is not None:
        world = World(script)
        yield world
        found.scripts += 1
        found.asked += len(world.taken)
        script = world.taken
        while script and script[-1][1]:
            script.pop()
        script = [*script[:-1], (script[-1][0], True)] if script else None


def _play(halves: Halves, names: tuple[str, ...], found: Found, runs: list[Run]) -> None:
    try:
        payload = halves.send([Name(name) for name in names])
    except REFUSALS as error:
        kind = type(error).__name__
        found.refused[kind] = found.refused.get(kind, 0) + 1
        found.refused_halfway += bool(halves.sender.told)
        return
    if any(one not in (None, str(number)) for number, one in enumerate(payload)):
        raise Unmodelled(f"sends {payload}")
    found.sent += 1
    found.alone += payload.count(None)
    found.kept += sum(change[0] == "set" for change in halves.sender.told)
    told = " ".join(
        name if data is None else f"{name}+data" for name, data in zip(names, payload, strict=True)
    )
    try:
        handed = halves.receive([Name(name) for name in names])
    except Exception as error:
        why = f"{told}: the receiver ends with {type(error).__name__}"
        found.parted = found.parted or f"{why}, after {_told(halves.sender.calls)} of the sender"
        return
    if handed != list(names):
        found.parted = found.parted or f"{told}: hands on {' '.join(handed)}"
    if halves.sender.told != halves.receiver.told:
        sender, receiver = _told(halves.sender.told), _told(halves.receiver.told)
        found.parted = found.parted or f"{told}: the sender {sender}, the receiver {receiver}"
    with_data = tuple(one is not None for one in payload)
    runs.append(Run(names, with_data, tuple(halves.sender.calls), tuple(halves.receiver.calls)))


def _told(calls: Sequence[Call]) -> str:
    return "[" + ", ".join(" ".join(call) for call in calls) + "]"


# An induction over the items of a message: what is done for one does not depend on the others.


def _shape(runs: Sequence[Run]) -> tuple[str, str]:
    """How messages begin, and a message whose calls are not those of its items; or ""."""
    uneven = "no message of one item is sent"
    for looks, touches in product(range(LOOKS_MAX + 1), (0, 1)):
        uneven = _uneven(runs, looks, touches)
        if not uneven:
            return f"looks {looks}, touches {touches}", ""
    return "", uneven


def _uneven(runs: Sequence[Run], looks: int, touches: int) -> str:
    """The first run that does not begin with so many looks and touches of all its names, and go on
    item by item; or "". What can be called for an item is learned from messages of two."""
    of_sender: set[Way] = set()
    of_receiver: set[Way] = set()
    for is_learned in (True, False):
        for run in runs:
            if is_learned and (
                len(run.names) > ITEMS_LEARNED or len({*run.names}) < len(run.names)
            ):
                continue
            cached = [_had(run, number, looks) for number in range(len(run.names))]
            sides = (
                ("sender", _after(run.sent, run.names, looks, touches), cached, of_sender),
                (
                    "receiver",
                    _after(run.received, run.names, 0, touches),
                    run.with_data,
                    of_receiver,
                ),
            )
            for side, calls, keys, ways in sides:
                if calls is not None and is_learned:
                    ways |= _ways(calls, run.names, keys)
                if calls is None or not _is_item_by_item(calls, run.names, keys, ways):
                    all_calls = run.sent if side == "sender" else run.received
                    return f"{' '.join(run.names)}: the {side} {_told(all_calls)}"
    return "" if runs else "nothing is sent"


def _ways(calls: tuple[Call, ...], names: Sequence[str], keys: Sequence[bool]) -> set[Way]:
    """What is called for each item, as if its name were a and its size 0."""
    return {
        (
            key,
            tuple(
                tuple({name: "a", str(number): "0"}.get(word, word) for word in call)
                for call in calls
                if call[1] in (name, str(number))
            ),
        )
        for number, (name, key) in enumerate(zip(names, keys, strict=True))
    }


def _after(
    calls: tuple[Call, ...], names: Sequence[str], looks: int, touches: int
) -> tuple[Call, ...] | None:
    """The calls after a message's beginning; None where it begins otherwise."""
    looked = [("has", name) for name in names] * looks
    begun = looked + [("touch", name) for name in names] * touches
    rest = calls[len(begun) :]
    if [call[:2] for call in calls[: len(begun)]] != begun:
        return None
    return rest


def _had(run: Run, number: int, looks: int) -> bool:
    """Whether a sender that looks for all names first was told that it has that one."""
    return bool(looks) and run.sent[number][2] == "yes"


def _is_item_by_item(
    calls: tuple[Call, ...], names: Sequence[str], keys: Sequence[bool], learned: set[Way]
) -> bool:
    """Whether the calls are, for each item in turn, one of the ways that were learned."""
    for number, (name, key) in enumerate(zip(names, keys, strict=True)):
        renamed = {"a": name, "0": str(number)}
        found = (
            tuple(tuple(renamed.get(word, word) for word in call) for call in way)
            for known, way in learned
            if known is key
        )
        way = max((one for one in found if calls[: len(one)] == one), key=len, default=None)
        if way is None:
            return False
        calls = calls[len(way) :]
    return not calls
