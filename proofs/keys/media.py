"""The media hash of the reference: what each kind of value is fed to the digest as.

The functions of `media_content` and `media_stream` are run on one symbolic value of each kind; the
kinds and what tells their values apart are stated here, the layouts come from the text.
"""

import ast
from collections import abc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import z3

from cacheproof.proofs.keys import paths
from cacheproof.proofs.keys.readings import Layout
from cacheproof.proofs.keys.source import run_text, symbolic_type, text_of
from cacheproof.proofs.keys.symbolic import (
    CONTENT,
    EMPTY,
    Data,
    Field,
    Many,
    Nested,
    Number,
    Piece,
    Repeated,
    Run,
    Symbol,
    Text,
    collect,
    content_of,
    data,
    fresh,
    spread,
)
from cacheproof.reference import media_content, media_stream

Constructed = tuple[str, tuple[Any, ...], Any]
"""What a value is, the terms that tell it from others that are the same, and the value."""
FLOAT_FORMATS = {"d": 8}


@dataclass(frozen=True)
class Texts:
    """The texts of which the layouts are made."""

    content: str = field(default_factory=lambda: text_of(media_content))
    stream: str = field(default_factory=lambda: text_of(media_stream))


class Open(Symbol):
    """A value of any kind, or None."""

    def __init__(self, name: str) -> None:
        self.value = content_of(name)
        self.content = (self.value,)

    def as_text(self) -> Text:
        """Different values can read alike."""
        return Text(z3.Function("str", CONTENT, CONTENT)(self.value))


class Float(Symbol):
    types = frozenset({"float"})

    def __init__(self) -> None:
        self.bits = z3.Int(fresh("bits"))
        self.content = (self.bits,)
        paths.assume(self.bits >= 0, self.bits < 2**64)


class Mapping(Symbol):
    """A mapping of any values, or of texts; its entries have an order of their own."""

    types = frozenset({"Mapping", "dict"})

    def __init__(self, key: Symbol) -> None:
        self._value = Open("value")
        self._entries = Many((key, self._value), (*key.content, *self._value.content), ())
        self.content, self.count = self._entries.content, self._entries.count

    def items(self) -> Many:
        return self._entries

    def keys_in_order(self) -> Iterator[Any]:
        return (key for key, _ in self._entries)

    def __getitem__(self, key: Any) -> Open:
        return self._value


class _Encoded:
    """The encoding of a node, as a key of a dict; `loop` is where it was made."""

    def __init__(self, node: Any) -> None:
        self.node = node
        self.loop = paths.open_loops()[-1]


def _sorted(entries: Any) -> Any:
    """Keys in order. Of a mapping's entries the order is part of the content."""
    if isinstance(entries, Mapping):
        return entries.keys_in_order()
    (key,) = entries
    return spread((Repeated(key.loop, (key,)),))


def _pack(form: str, value: Float) -> Data:
    order = "big" if form[0] == ">" else "little"
    return Data(Field(value.bits, FLOAT_FORMATS[form[1:]], order))


def _json(value: Symbol) -> Text:
    """JSON of what can be written in it tells what was written."""
    (of,) = value.content
    written = z3.Function("json", CONTENT, CONTENT)(of)
    paths.assume(z3.Function("what is json", CONTENT, CONTENT)(written) == of)
    return Text(written)


def kinds() -> dict[str, Callable[[], Constructed]]:
    """Every kind of value whose content the reference knows, each as a maker of a symbolic one."""
    return {
        "None": lambda: ("none", (), None),
        "False": lambda: ("bool", (z3.IntVal(0),), False),
        "True": lambda: ("bool", (z3.IntVal(1),), True),
        "int": lambda: _plain("int", Number(z3.Int(fresh("int")))),
        "float": lambda: _plain("float", Float()),
        "str": lambda: _plain("str", Text(content_of("text"))),
        "bytes": lambda: _plain("bytes", data("bytes")),
        "bytearray": lambda: _plain("bytes", data("bytes", "bytearray")),
        "memoryview": lambda: _plain("bytes", data("bytes", "memoryview")),
        "list": lambda: _plain("sequence", _sequence("list")),
        "tuple": lambda: _plain("sequence", _sequence("tuple")),
        "mapping": lambda: _plain("mapping", Mapping(Open("key"))),
        "array": lambda: _array("str", None),
        "array of fields": lambda: _array("descr", ("field",)),
        "tensor": _tensor,
        "image": lambda: _image(None),
        "image with palette": lambda: _image(_palette(None)),
        "image with a raw palette": lambda: _image(_palette("raw mode")),
        "image with an id": _image_with_id,
    }


def _plain(constructor: str, symbol: Symbol) -> Constructed:
    return constructor, symbol.content, symbol


def _sequence(kind: str) -> Many:
    element = Open("element")
    return Many(element, element.content, (kind,))


def _shape() -> Many:
    axis = Number(z3.Int(fresh("axis")))
    return Many(axis, axis.content, ("tuple",))


class Library(Symbol):
    """An object of a library, by module and class, with the attributes that are read of it."""

    def __init__(self, *classes: tuple[str, str], **attributes: Any) -> None:
        self.classes = frozenset(classes)
        self.__dict__.update(attributes)


def is_of(value: Any, module: str, name: str) -> bool:
    """In place of the reference's: it asks the library."""
    return isinstance(value, Library) and (module, name) in value.classes


def image_id(image: Library) -> Data | None:
    """In place of the reference's: it asks Pillow."""
    return image.identity  # type: ignore[attr-defined,no-any-return]


def _array(described_by: str, names: Any) -> Constructed:
    dtype, elements, shape = content_of("dtype"), data("elements", "memoryview"), _shape()
    array = Library(
        ("numpy", "ndarray"),
        dtype=SimpleNamespace(hasobject=False, names=names, **{described_by: Text(dtype)}),
        shape=shape,
        nbytes=elements.nbytes,
        flags=SimpleNamespace(c_contiguous=True),
    )
    array.reshape = lambda _: array  # type: ignore[attr-defined]
    array.view = lambda _: SimpleNamespace(data=elements)  # type: ignore[attr-defined]
    return "array", (dtype, *shape.content, *elements.content), array


class Dtype(Symbol):
    """Written with the name of its library in front."""

    def __init__(self, of: z3.ExprRef) -> None:
        self.of = of

    def as_text(self) -> Text:
        return Text(self.of)


def _tensor() -> Constructed:
    dtype, elements, shape = content_of("dtype"), data("elements", "memoryview"), _shape()
    tensor = Library(
        ("torch", "Tensor"), layout="strided", is_quantized=False, dtype=Dtype(dtype), shape=shape
    )
    for name in ("detach", "cpu", "resolve_conj", "resolve_neg", "contiguous"):
        setattr(tensor, name, lambda: tensor)
    tensor.reshape = lambda _: tensor  # type: ignore[attr-defined]
    tensor.view = lambda _: tensor  # type: ignore[attr-defined]
    tensor.numel = lambda: elements.nbytes  # type: ignore[attr-defined]
    tensor.numpy = lambda: SimpleNamespace(data=elements)  # type: ignore[attr-defined]
    return "tensor", (dtype, *shape.content, *elements.content), tensor


def _palette(raw_mode: str | None) -> Any:
    mode = Text(content_of("palette mode"))
    raw = None
    if raw_mode is not None:
        raw = Text(content_of(raw_mode))
        paths.assume(raw.of != EMPTY)
    shown = mode if raw is None else raw
    return SimpleNamespace(rawmode=raw, mode=mode, palette=data("colours"), shown=shown)


def _image(palette: Any) -> Constructed:
    mode, pixels, transparency = Text(content_of("mode")), data("pixels"), Open("transparency")
    width, height = (Number(z3.Int(fresh(name))) for name in ("width", "height"))
    image = Library(
        ("PIL.Image", "Image"),
        identity=None,
        mode=mode,
        size=(width, height),
        palette=palette,
        info={"transparency": transparency},
        tobytes=lambda: pixels,
    )
    terms = [mode, width, height, pixels, transparency]
    if palette is not None:
        terms += [palette.shown, palette.palette]
    constructor = "image" if palette is None else "image with palette"
    return constructor, tuple(term for one in terms for term in one.content), image


def _image_with_id() -> Constructed:
    identity = data("id")
    (run,) = identity.pieces
    assert isinstance(run, Run)
    paths.assume(run.length == 16)
    return "image id", identity.content, Library(("PIL.Image", "Image"), identity=identity)


class Encoding:
    """The encoding that the texts define."""

    def __init__(self, texts: Texts) -> None:
        stream = run_text(texts.stream, media_stream)
        self._chunks = stream["chunks"]
        stream["chunks"] = self._chunks_of
        content = run_text(
            texts.content,
            media_content,
            Node=stream["Node"],
            Mapping=symbolic_type(abc.Mapping),
            encode=_Encoded,
            sorted=_sorted,
            is_of=is_of,
            image_id=image_id,
            struct=SimpleNamespace(pack=_pack),
            json=SimpleNamespace(dumps=_json),
            sys=SimpleNamespace(modules={"torch": SimpleNamespace(strided="strided", uint8="u1")}),
        )
        self._content = content["content"]
        content["content"] = self._content_of
        self._call = content["call"]

    def layouts(self) -> list[Layout]:
        """What each kind of value and a call are encoded as."""
        made = [(kind, make, self._content) for kind, make in kinds().items()]
        return [
            layout
            for kind, make, tree in (*made, ("call", _call, self._call))
            for layout in self._layouts(kind, make, tree)
        ]

    def media_with_bytes(self) -> bool:
        """Whether media with the bytes that they came from are encoded as the media alone."""

        def run() -> tuple[Any, Any]:
            media = Open("media")
            wrapper = type(media_content.MEDIA_WRAPPER, (Symbol,), {"media": media})()
            return self._content(wrapper), media

        return all(path.result[0] is path.result[1] for path in paths.paths(run))

    def _layouts(
        self, kind: str, make: Callable[[], Constructed], tree: Callable[[Any], Any]
    ) -> Iterator[Layout]:
        def run() -> tuple[Constructed, tuple[Piece, ...]]:
            made = make()
            return made, pieces(collect(self._chunks_of(tree(made[2]))))

        for path in paths.paths(run):
            (constructor, terms, _), written = path.result
            yield Layout(kind, constructor, terms, written, path.conditions)

    def _content_of(self, value: Any) -> Any:
        return value if isinstance(value, Open) else self._content(value)

    def _chunks_of(self, node: Any) -> Iterator[Any]:
        match node:
            case Open():
                yield Nested(node.value)
            case Repeated():
                for one in spread((node,)):
                    yield from self._chunks_of(one)
            case _:
                yield from self._chunks(node)


def pieces(written: tuple[Any, ...]) -> tuple[Piece, ...]:
    """What was written, in pieces."""
    found: list[Piece] = []
    for one in written:
        match one:
            case Data():
                found += one.pieces
            case Repeated():
                found.append(Repeated(one.loop, pieces(one.pieces)))
            case _:
                found.append(one)
    return tuple(found)


def _call() -> Constructed:
    arguments = Mapping(Text(content_of("name")))
    return "call", arguments.content, arguments


PLAIN_TAGS = {"leaf": ("X", "S"), "list": ("l", "m")}


def merged_tags(node: ast.AST) -> list[tuple[str, ast.AST]]:
    """A tag becomes that of bytes, or of a sequence; theirs become those of text and mappings."""
    match node:
        case ast.Call(func=ast.Name(id="ord"), args=[ast.Constant(value=str(tag))]):
            leaves, lists = PLAIN_TAGS.values()
            plain, other = leaves if ord(tag) in media_stream.LEAVES else lists
            put = other if tag == plain else plain
            return [(f"tag {put} for {tag}", ast.Constant(ord(put)))]
    return []
