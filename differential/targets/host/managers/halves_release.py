"""Sender and receiver of this vLLM, run with oracles in the place of their caches, and what that
rests on: of the caches themselves, and of the sizes that either half counts."""

import ast
import inspect
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import CodeType, FrameType, SimpleNamespace
from typing import Any

import torch
import vllm
from vllm.multimodal.inputs import (
    MultiModalBatchedField,
    MultiModalFeatureSpec,
    MultiModalFieldElem,
    MultiModalKwargsItem,
    PlaceholderRange,
)
from vllm.multimodal.processing import BaseMultiModalProcessor

from ..faults.halves import TWINS, Pair
from ..protocol import Json, Plain
from ..vllm_objects.media_caches import RECEIVERS, SENDERS, NeverEnds
from .front_end_release import (
    class_of,
    end_endless_evictions,
    item_of,
    model_of,
)
from .halves import Item, Name, Oracle, Size, Unmodelled, World, explored, said
from .processor_release import bare, called, nothing

_SENDER, _RECEIVER = class_of(SENDERS), class_of(RECEIVERS)
_BASE: Any = sys.modules[_RECEIVER.__mro__[1].__module__]
_METADATA: Any = _BASE.MultiModalProcessorCacheItemMetadata
_ROOT = str(Path(vllm.__file__).parent)
_PROCESSOR: Any = bare(BaseMultiModalProcessor, _recompute_cached_prompt_update=nothing)
_OF_FEATURE = frozenset(inspect.signature(MultiModalFeatureSpec).parameters)
_HIDDEN = frozenset({"id", "type", "vars", "globals", "locals", "eval", "exec", "dir"})
"""Builtins that tell of an object what it cannot refuse to tell."""
_CAPACITY = 3
_LARGE = 4
_ROOM = 1 << 20
"""Bytes of a cache that each item fits."""
_CALLS = 3
"""Calls of the longest sequence that is made of the caches themselves."""


class HalvesHost:
    """Answers what is asked of the halves of this vLLM."""

    def hello(self, plug_in: str | None) -> dict[str, Json]:
        return {"python": sys.version.split()[0], "vllm": vllm.__version__, "protocol": {}}

    def halves(self, request: Plain) -> dict[str, Json]:
        """What came of all scripts, under a change of the halves or none."""
        pair = Pair(_SENDER, _RECEIVER, _METADATA)
        if request["twin"] is not None:
            pair = TWINS[request["twin"]](pair)
        with _watched() as codes, _stood_in():
            found = explored(lambda world: ReleaseHalves(world, pair, request["modalities"]))
        if not found.unknown:
            found.unknown = next(_unread(codes), "")
        if found.asked and not (found.parted or found.unknown):
            found.parted = next(itertools.chain(_unlike_caches(pair), _unlike_sizes(pair)), "")
        return {"found": asdict(found)}

    def modalities(self, request: Plain) -> dict[str, Json]:
        """What the receiver lacks in the end where a message with items of two modalities, and
        three more, come to both halves in the same order; nothing is lost."""
        sender, receiver = _SENDER(model_of(_CAPACITY)), _RECEIVER(model_of(_CAPACITY))
        lacking: list[str] = []
        for items in ("image a, audio b, image c", "image d", "image e", "audio b"):
            asked = [(one.split()[0], one.split()[1]) for one in items.split(", ")]
            try:
                features = _features(asked, _sent(sender, asked, lambda _: item_of(("x", 1))))
                receiver.get_and_update_features(features)
            except Exception as error:
                lacking.append(f"{items}: {type(error).__name__}")
        return {"lacking": lacking}


class ReleaseHalves:
    """A sender and a receiver with oracles for caches. Of several `modalities` the items of a
    message have one after the other, and then the first again."""

    def __init__(self, world: World, pair: Pair, modalities: Sequence[str]) -> None:
        self._modalities = modalities
        self.sender = Oracle(world, _size_of, _metadata)
        self.receiver = Oracle(world, _size_of, _earlier)
        self._sender = _held(pair.sender, self.sender)
        self._receiver = _held(pair.receiver, self.receiver)
        self._payload: list[Any] = []

    def send(self, names: Sequence[Name]) -> list[str | None]:
        asked = self._asked(names)
        self._payload = _sent(self._sender, asked, _item)
        return [None if one is None else said(one, Item)[1:] for one in self._payload]

    def receive(self, names: Sequence[Name]) -> list[str]:
        # another process has items and names of its own
        came = [None if one is None else _item(int(said(one, Item)[1:])) for one in self._payload]
        features = _features(self._asked(names), came)
        told = self._receiver.get_and_update_features(features)
        return [self._name_of(said(feature.data, Item), names) for feature in told]

    def clear(self) -> None:
        self._sender.clear_cache()
        self._receiver.clear_cache()

    def _asked(self, names: Sequence[Name]) -> list[tuple[str, Name]]:
        return list(zip(itertools.cycle(self._modalities), names, strict=False))

    def _name_of(self, item: str, names: Sequence[Name]) -> str:
        return said(names[int(item[1:])], Name) if item[0] == "#" else item


def _item(number: int) -> Item:
    return _sized(f"#{number}", str(number))


def _sized(says: str, size: str) -> Item:
    return Item(says, _cacheproof_size=Size(size))


def _earlier(name: str) -> Item:
    """What a receiver has kept under a name since before."""
    return _sized(name, f"of {name}")


def _metadata(name: str) -> Any:
    """What a sender has kept under a name since before."""
    return _METADATA(_earlier(name), [])


def _size_of(value: Any) -> Size:
    if type(value) is _METADATA:
        size: Size = value.item_size
        return size
    if type(value) is Item:
        found: Size = value._cacheproof_size  # type: ignore[attr-defined]
        return found
    raise Unmodelled(f"a {type(value).__name__} is kept")


def _held(kind: Any, oracle: Oracle) -> Any:
    """A half whose cache is an oracle, and which can keep nothing else. Raises Unmodelled where it
    has something else."""
    half = kind(model_of(_CAPACITY))
    if set(vars(half)) != {"_cache"}:
        raise Unmodelled(f"a half that has {sorted(vars(half))}")
    half._cache = oracle
    half.__class__ = type("Held", (kind,), {"__setattr__": _keep_nothing})
    return half


def _keep_nothing(half: Any, name: str, value: object) -> None:
    raise Unmodelled(f"a half keeps {name}")


def _sent(
    sender: Any, asked: Sequence[tuple[str, Any]], processed: Callable[[int], Any]
) -> list[Any]:
    """The items of a message as the sender sends them, in the order of the message."""
    places: dict[str, list[int]] = {}
    for number, (modality, _) in enumerate(asked):
        places.setdefault(modality, []).append(number)
    named = {one: [asked[at][1] for at in numbers] for one, numbers in places.items()}
    cached = {one: sender.is_cached(names) for one, names in named.items()}
    missing = {
        one: [processed(places[one][at]) for at, is_known in enumerate(known) if not is_known]
        for one, known in cached.items()
    }
    try:
        merged, _ = called(
            _PROCESSOR._merge_mm_kwargs,
            cache=sender,
            mm_hashes=named,
            mm_is_cached=cached,
            mm_missing_kwargs=missing,
            mm_missing_prompt_updates={one: [[] for _ in items] for one, items in missing.items()},
        )
    finally:
        getattr(sender, "release_sender_touches", nothing)()
    payload: list[Any] = [None] * len(asked)
    for one, numbers in places.items():
        for at, item in zip(numbers, merged[one], strict=True):
            payload[at] = item
    return payload


def _features(asked: Sequence[tuple[str, Any]], payload: Sequence[Any]) -> list[Any]:
    """A message as it reaches an engine core, in the order in which its items stand in the prompt.
    Where items have a name for this cache of their own, their identifier is another."""
    has_own_name = "mm_hash" in _OF_FEATURE
    features = []
    for number, ((modality, name), data) in enumerate(zip(asked, payload, strict=True)):
        is_opaque = has_own_name and type(name) is Name
        values = {
            "data": data,
            "modality": modality,
            "identifier": Name(f"identifier of {said(name, Name)}") if is_opaque else name,
            "mm_position": PlaceholderRange(offset=number, length=1),
            "mm_hash": name,
        }
        features.append(
            MultiModalFeatureSpec(**{key: values[key] for key in _OF_FEATURE & {*values}})
        )
    return features


@contextmanager
def _stood_in() -> Iterator[None]:
    """Sizes are asked of the items, and nothing is logged: what is told to a log is left out."""
    modules = [
        sys.modules[name]
        for name in {kind.__module__ for half in (_SENDER, _RECEIVER) for kind in half.__mro__}
        if name.startswith("vllm.")
    ]
    counted = vars(_BASE.MultiModalCache)["get_item_size"]
    before = [(one, dict(vars(one))) for one in modules]
    for one in modules:
        vars(one)["logger"] = SimpleNamespace(warning_once=_nothing)
        vars(one)["format_gib"] = _nothing
        vars(one)["int"] = lambda value: value  # it is called for the log alone
    _BASE.MultiModalCache.get_item_size = staticmethod(_size_of)
    try:
        yield
    finally:
        _BASE.MultiModalCache.get_item_size = counted
        for one, names in before:
            for name in ("logger", "format_gib", "int"):
                if name in names:
                    vars(one)[name] = names[name]
                else:
                    vars(one).pop(name)


def _nothing(*args: object, **kwargs: object) -> None:
    """What is told to a log."""


# What a half may do without that its oracle or a token notices it.


@contextmanager
def _watched() -> Iterator[set[CodeType]]:
    """The code of this vLLM that is run."""
    codes: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_ROOT):
            codes.add(frame.f_code)

    sys.setprofile(note)
    try:
        yield codes
    finally:
        sys.setprofile(None)


def _unread(codes: Iterable[CodeType]) -> Iterator[str]:
    """Where the code asks which object one is, or keeps something."""
    places = {(one.co_filename, one.co_firstlineno) for one in codes}
    for file in sorted({name for name, _ in places}):
        for function in ast.walk(ast.parse(Path(file).read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            first = min([function.lineno, *(one.lineno for one in function.decorator_list)])
            if (file, first) in places:
                for node in ast.walk(function):
                    if why := _refused(node, function.name):
                        yield f"{Path(file).name}:{getattr(node, 'lineno', first)}: {why}"


def _refused(node: ast.AST, function: str) -> str:
    match node:
        case ast.Compare(ops=ops, comparators=others):
            for op, other in zip(ops, others, strict=True):
                is_none = isinstance(other, ast.Constant) and other.value is None
                if isinstance(op, ast.Is | ast.IsNot) and not is_none:
                    return "is"
        case ast.Call(func=ast.Name(id=name)) if name in _HIDDEN:
            return name
        case ast.Global() | ast.Nonlocal():
            return "a name of the module is set"
        case ast.Attribute(ctx=ast.Store() | ast.Del(), attr=name) if function != "__init__":
            return "" if name == "data" else f"{name} is set"
    return ""


# The caches themselves: what they are told is all that tells them apart.


def _unlike_caches(pair: Pair) -> Iterator[str]:
    """What differs between both halves' caches, in the longest sequences of calls that are made; or
    is changed by what is taken for a question."""
    sender, receiver = pair.sender(model_of(_CAPACITY)), pair.receiver(model_of(_CAPACITY))
    if type(sender._cache) is not type(receiver._cache):
        yield "the halves have caches of two classes"
    if sender._cache.maxsize != receiver._cache.maxsize:
        yield "the halves have caches of two capacities"
    names, sizes = ("a", "b", "c"), (1, 2, _LARGE)
    ways = [(what, name, 0) for what in ("get", "touch", "pop") for name in names]
    ways += [("set", name, size) for name in names for size in sizes]
    for calls in itertools.product(ways, repeat=_CALLS):
        ours = _after(pair.sender, calls, names, _METADATA)
        theirs = _after(pair.receiver, calls, names, None)
        if ours != theirs:
            yield f"{calls}: {ours} of the sender's cache, {theirs} of the receiver's"
        if ours and ours[-1]:
            yield f"{calls}: a question changes {ours[0]}"


def _after(
    kind: Any, calls: Sequence[tuple[str, str, int]], names: Sequence[str], metadata: Any
) -> tuple[object, object, bool] | None:
    """The state of a half's cache after these calls, what they answered, and whether a question
    changes the state then. It keeps items, or their metadata. None where it evicts for ever."""
    cache = kind(model_of(_CAPACITY))._cache
    end_endless_evictions(cache)
    answers: list[object] = []
    for what, name, size in calls:
        if what == "set":
            item: Any = item_of(("x", size))
            try:
                cache[name] = metadata(item, []) if metadata else item
            except ValueError as error:
                answers.append(str(error))
            except NeverEnds:
                return None
        elif what == "touch":
            cache.touch(name)
        else:
            answers.append(getattr(cache, what)(name, None) is not None)
    before = _state(cache)
    for name in names:
        if name not in cache:
            cache.get(name)
            cache.pop(name, None)
    return before, answers, _state(cache) != before


def _state(cache: Any) -> object:
    return list(cache.order), sorted(cache), cache.currsize


def _unlike_sizes(pair: Pair) -> Iterator[str]:
    """Items of which the halves count other sizes, the receiver's as they come to it."""
    for number, data in enumerate(_data()):
        values = {
            "modality": "image",
            "key": "x",
            "data": data,
            "field": MultiModalBatchedField(),
        }
        parameters = inspect.signature(MultiModalFieldElem).parameters
        element = MultiModalFieldElem(**{one: values[one] for one in parameters if one in values})
        item = (
            MultiModalKwargsItem.from_elems([element])
            if hasattr(MultiModalKwargsItem, "from_elems")
            else MultiModalKwargsItem({"x": element})
        )
        sender, receiver = pair.sender(model_of(_ROOM)), pair.receiver(model_of(_ROOM))
        sender.get_and_update_item((item, []), "a")
        receiver.get_and_update_item(_transported(item), "a")
        ours, theirs = sender._cache.currsize, receiver._cache.currsize
        if ours != theirs or not ours:
            yield f"item {number} has {ours} bytes for the sender, {theirs} for the receiver"


def _data() -> Iterator[Any]:
    for dtype in (torch.uint8, torch.float32, torch.bfloat16, torch.int64, torch.bool):
        for shape in ((3,), (2, 3), (1, 2, 3)):
            yield torch.ones(shape, dtype=dtype)
    yield torch.ones((4, 4))[:, ::2]
    yield torch.ones(3).expand(4, 3)
    yield torch.tensor(5)
    yield from (5, 2.5, True)
    yield [torch.ones(2), torch.ones(3)]
    yield [[torch.ones(2)], [torch.ones((3, 1)), torch.ones(1)]]


def _transported(item: Any) -> Any:
    """The item as it comes to the engine core."""
    from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

    return MsgpackDecoder(MultiModalKwargsItem).decode(MsgpackEncoder().encode(item))


HOST = HalvesHost
