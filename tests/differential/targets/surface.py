"""What the reference offers of what vLLM's classes offer: methods, their arguments, attributes.

Both are read off the text, so that no release need run. What the reference leaves out stands in
surface.toml, each name with a reason.
"""

import ast
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cacheproof import reference

CLASSES = (
    "EncoderCacheManager",
    "EncoderDecoderCacheManager",
    "KVCacheManager",
    "KVCacheBlocks",
    "KVCacheCoordinator",
    "KVCacheCoordinatorNoPrefixCache",
    "UnitaryKVCacheCoordinator",
    "HybridKVCacheCoordinator",
    "SingleTypeKVCacheManager",
    "FullAttentionManager",
    "SlidingWindowManager",
    "ChunkedLocalAttentionManager",
    "CrossAttentionManager",
    "BlockPool",
    "KVCacheBlock",
    "FreeKVCacheBlockQueue",
    "KVCacheMetricsCollector",
    "KVCacheEvictionEvent",
    "BlockStored",
    "BlockRemoved",
    "AllBlocksCleared",
    "PrefixCacheStats",
    "Scheduler",
)
"""The reference's classes that stand in for vLLM's of the same name."""

_TEXTS = ("vllm/v1/core/**/*.py", "vllm/distributed/kv_events.py", "vllm/v1/metrics/stats.py")
_INIT = "__init__"
_RECORDS = ("dataclass", "Struct")
"""What makes a class of annotated fields, which are then its arguments too."""


@dataclass(frozen=True)
class Argument:
    """One argument of a method."""

    name: str
    has_default: bool
    by_name_only: bool = False


@dataclass(frozen=True)
class Surface:
    """The public names of a class and of those that it inherits from.

    Attributes:
        lineage: the class, then its bases.
        takes_more: methods that take arguments of any name.
    """

    lineage: tuple[str, ...]
    methods: Mapping[str, tuple[Argument, ...]]
    attributes: frozenset[str]
    takes_more: frozenset[str]


class Refusal(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Names that the reference leaves out of these classes and of their subclasses, and why.

    A name is an attribute or a method, or `method(argument)`, or `method()` for the order of its
    arguments.
    """

    classes: tuple[str, ...]
    names: tuple[str, ...]
    reason: str


def refusals() -> list[Refusal]:
    """The table."""
    text = Path(__file__).with_name("surface.toml").read_text()
    return msgspec.convert(tomllib.loads(text)["refused"], list[Refusal])


def of_reference() -> dict[str, Surface]:
    """Class -> what the reference offers."""
    return _surfaces(Path(reference.__file__).parent.rglob("*.py"))


def of_release(tree: Path) -> dict[str, Surface]:
    """Class -> what the release offers, of those that it has."""
    return _surfaces(path for text in _TEXTS for path in tree.glob(text))


def departures(
    theirs: Mapping[str, Surface], ours: Mapping[str, Surface], *, is_newest: bool
) -> Iterator[tuple[str, str]]:
    """(class, name) of what a release offers and the reference does not, or otherwise.

    A call by names of the release must be one of the reference: it has these arguments, in this
    order among others, and asks for no others. With `is_newest` so must a call by places.
    """
    for name in theirs:
        there, here = theirs[name], ours[name]
        offered = here.attributes | here.methods.keys()
        missing = (there.attributes | there.methods.keys()) - offered
        yield from ((name, one) for one in sorted(missing))
        for method in sorted(there.methods.keys() & here.methods.keys()):
            if method not in there.takes_more:
                for one in _arguments_that_part(there, here, method, is_newest=is_newest):
                    yield name, f"{method}({one})"


def _arguments_that_part(
    there: Surface, here: Surface, method: str, *, is_newest: bool
) -> Iterator[str]:
    """Names of arguments, and an empty one where their order is another."""
    theirs = {one.name: one for one in there.methods[method]}
    ours = {one.name: one for one in here.methods[method]}
    takes_more = method in here.takes_more
    for name, one in theirs.items():
        if name not in ours:
            if not takes_more:
                yield name
        elif one.has_default and not ours[name].has_default:
            yield name
    yield from (name for name, one in ours.items() if name not in theirs and not one.has_default)
    places = [name for name, one in theirs.items() if not one.by_name_only and name in ours]
    own = [name for name, one in ours.items() if not one.by_name_only]
    if places != (own[: len(places)] if is_newest else [one for one in own if one in places]):
        yield ""


def _surfaces(paths: Iterable[Path]) -> dict[str, Surface]:
    classes = {
        node.name: node
        for path in sorted(paths)
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    }
    return {name: _surface(classes[name], classes) for name in CLASSES if name in classes}


def _surface(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> Surface:
    """With what it inherits. Attributes that a base's `__init__` sets are there if that runs."""
    methods: dict[str, ast.FunctionDef] = {}
    attributes: set[str] = set()
    fields: dict[str, Argument] = {}
    lineage = list(_lineage(node, classes))
    for one in reversed(lineage):
        for part in one.body:
            match part:
                case ast.FunctionDef():
                    methods[part.name] = part
                case ast.AnnAssign(target=ast.Name(id=name)):
                    attributes.add(name)
                    if not name.startswith("_"):
                        fields[name] = Argument(name, part.value is not None)
                case ast.Assign(targets=[ast.Name(id=name)]):
                    attributes.add(name)
    attributes |= {name for name, method in methods.items() if _is_property(method)}
    attributes |= set(_set_at_first(lineage))
    called = {
        name: method
        for name, method in methods.items()
        if name not in attributes and (name == _INIT or not name.startswith("_"))
    }
    arguments = {name: tuple(_arguments(method)) for name, method in called.items()}
    if any(_is_record(one) for one in lineage) and _INIT not in arguments:
        arguments[_INIT] = tuple(fields.values())
    return Surface(
        tuple(one.name for one in lineage),
        arguments,
        frozenset(name for name in attributes if not name.startswith("_")),
        frozenset(name for name, method in called.items() if method.args.kwarg is not None),
    )


def _lineage(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> Iterator[ast.ClassDef]:
    yield node
    for base in node.bases:
        name = ast.unparse(base)
        if name in classes:
            yield from _lineage(classes[name], classes)


def _is_record(node: ast.ClassDef) -> bool:
    words = [*node.decorator_list, *node.bases]
    return any(kind in ast.unparse(word) for word in words for kind in _RECORDS)


def _is_property(method: ast.FunctionDef) -> bool:
    words = [ast.unparse(one) for one in method.decorator_list]
    return any("property" in word or word.endswith(".setter") for word in words)


def _set_at_first(lineage: Iterable[ast.ClassDef]) -> Iterator[str]:
    """What `__init__` sets on the object, on to the base's for as long as one calls the next."""
    for node in lineage:
        for part in node.body:
            if isinstance(part, ast.FunctionDef) and part.name == _INIT:
                yield from _stored(part)
                if "super()" not in ast.unparse(part):
                    return


def _stored(method: ast.FunctionDef) -> Iterator[str]:
    for one in ast.walk(method):
        match one:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


def _arguments(method: ast.FunctionDef) -> Iterator[Argument]:
    given = method.args
    is_static = any(ast.unparse(one) == "staticmethod" for one in method.decorator_list)
    places = [*given.posonlyargs, *given.args]
    without = len(places) - len(given.defaults)
    for number, one in enumerate(places):
        if number or is_static:
            yield Argument(one.arg, number >= without)
    for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield Argument(one.arg, default is not None, by_name_only=True)
