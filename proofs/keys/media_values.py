"""The kinds of values that the media hash knows, as symbols, and what tells two of a kind apart."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import z3

from cacheproof.proofs.keys import paths
from cacheproof.proofs.keys.paths import Unread
from cacheproof.proofs.keys.symbolic import (
    CONTENT,
    EMPTY,
    BytesRun,
    Data,
    Field,
    Many,
    Number,
    Repeated,
    Symbol,
    SymbolicText,
    content_of,
    data,
    fresh,
    spread,
)

Constructed = tuple[str, tuple[z3.ExprRef, ...], object]
"""What a value is, the terms that tell it from others that are the same, and the value."""
FLOAT_FORMATS = {"d": 8}


class Open(Symbol):
    """A value of any kind, or None."""

    types = None

    def __init__(self, name: str) -> None:
        self.value = content_of(name)
        self.content = (self.value,)

    def as_text(self) -> SymbolicText:
        """Different values can read alike."""
        return SymbolicText(z3.Function("str", CONTENT, CONTENT)(self.value))


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
        self._key, self._value = key, Open("value")
        self._entries = Many((key, self._value), (*key.content, *self._value.content), ())
        self.content, self.count = self._entries.content, self._entries.count

    def items(self) -> Many:
        return self._entries

    def keys_in_order(self) -> Iterator[Symbol]:
        return (key for key, _ in self._entries)

    def __bool__(self) -> bool:
        return bool(self._entries)

    def __getitem__(self, key: object) -> Open:
        if key is not self._key:
            raise Unread("a value of a mapping that is not that of the round's key")
        return self._value


class EncodedNode(Symbol):
    """The encoding of a node; those of two nodes are the same only if the nodes are."""

    def __init__(self, node: object) -> None:
        self.node = node


class Entries(Symbol):
    """What a text collects of a mapping, an entry a round, by the encoding of the round's key."""

    def __init__(self) -> None:
        self._put: tuple[paths.SequenceLoop, EncodedNode, object] | None = None

    @property
    def count(self) -> z3.ArithRef:  # type: ignore[override]
        """The number of entries: as many as there were rounds."""
        return self._entry[0].count

    def __setitem__(self, key: object, value: object) -> None:
        loops = paths.open_loops()
        if self._put is not None or len(loops) != 1 or not isinstance(key, EncodedNode):
            raise Unread("an entry that is not put once a round under the encoding of a key")
        if not isinstance(key.node, Open) or key.node.value is not loops[0].each[0]:
            raise Unread("an entry under the encoding of something else than the round's key")
        self._put = loops[0], key, value

    def __getitem__(self, key: object) -> object:
        _, put, value = self._entry
        if key is not put:
            raise Unread("an entry that is not the round's")
        return value

    def keys_in_order(self) -> Iterator[object]:
        loop, key, _ = self._entry
        return spread((Repeated(loop, (key,)),))

    @property
    def _entry(self) -> tuple[paths.SequenceLoop, EncodedNode, object]:
        if self._put is None:
            raise Unread("entries of which none was put")
        return self._put


def in_order(entries: object) -> Iterator[object]:
    """Keys in order, which for a mapping's entries is part of the content.

    Raises:
        Unread: of something else.
    """
    if isinstance(entries, Mapping | Entries):
        return entries.keys_in_order()
    raise Unread("the order of what is no mapping")


def pack(form: str, value: object) -> Data:
    if form[0] not in "<>" or form[1:] not in FLOAT_FORMATS or not isinstance(value, Float):
        raise Unread(f"struct.pack of the format {form}")
    order = "big" if form[0] == ">" else "little"
    return Data(Field(value.bits, FLOAT_FORMATS[form[1:]], order))


def dumps(value: object) -> SymbolicText:
    """JSON of what can be written in it tells what was written."""
    if not isinstance(value, SymbolicText):
        raise Unread("json.dumps of what may not be told by it")
    (of,) = value.content
    written = z3.Function("json", CONTENT, CONTENT)(of)
    paths.assume(z3.Function("what is json", CONTENT, CONTENT)(written) == of)
    return SymbolicText(written)


def kinds() -> dict[str, Callable[[], Constructed]]:
    """Every kind of value whose content the reference knows, each as a maker of a symbolic one."""
    return {
        "None": lambda: ("none", (), None),
        "False": lambda: ("bool", (z3.IntVal(0),), False),
        "True": lambda: ("bool", (z3.IntVal(1),), True),
        "int": lambda: _plain("int", Number(z3.Int(fresh("int")))),
        "float": lambda: _plain("float", Float()),
        "str": lambda: _plain("str", SymbolicText(content_of("text"))),
        "bytes": lambda: _plain("bytes", data("bytes")),
        "bytearray": lambda: _plain("bytes", data("bytes", "bytearray")),
        "memoryview": lambda: _plain("bytes", data("bytes", "memoryview")),
        "list": lambda: _plain("sequence", _sequence("list")),
        "tuple": lambda: _plain("sequence", _sequence("tuple")),
        "mapping": lambda: _plain("mapping", Mapping(Open("key"))),
        "array": lambda: _array("str", None),
        "array that lies otherwise": lambda: _array("str", None, is_contiguous=False),
        "array of fields": lambda: _array("descr", ("field",)),
        "scalar": lambda: _array("str", None, SCALAR, types=("float",)),
        "tensor": _tensor,
        "image": lambda: _image(None),
        "image with palette": lambda: _image(_palette(None)),
        "image with a raw palette": lambda: _image(_palette("raw mode")),
        "image with an id": _image_with_id,
    }


def refused_kinds() -> dict[str, Callable[[], object]]:
    """Values that have no content of their own, each as a maker of a symbolic one."""
    return {
        "array of objects": lambda: _array("str", None, has_objects=True)[2],
        "array of a foreign dtype": lambda: _array("str", None, is_foreign=True)[2],
        "masked array": lambda: _array("str", None, NDARRAY, MASKED)[2],
        "tensor that is not dense": lambda: _tensor("sparse")[2],
        "quantized tensor": lambda: _tensor(is_quantized=True)[2],
        "any other object": lambda: Library(("somewhere", "Else")),
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

    def __init__(
        self, *classes: tuple[str, str], types: Iterable[str] = (), **attributes: object
    ) -> None:
        self.classes, self.types = frozenset(classes), frozenset(types)
        self.__dict__.update(attributes)


NDARRAY, SCALAR = ("numpy", "ndarray"), ("numpy", "generic")
MASKED = ("numpy.ma", "MaskedArray")
TENSOR, IMAGE = ("torch", "Tensor"), ("PIL.Image", "Image")
LIBRARIES = frozenset({NDARRAY, SCALAR, MASKED, TENSOR, IMAGE})


def is_of(value: object, module: str, name: str) -> bool:
    """Whether a value is of a class, in place of the reference's function, which asks the library.

    Raises:
        Unread: it is not known of what class the value is, or which values are of that class.
    """
    if (module, name) not in LIBRARIES or getattr(value, "types", ()) is None:
        raise Unread(f"whether a value is of {module}.{name}")
    return isinstance(value, Library) and (module, name) in value.classes


def is_numpys(dtype: Library) -> bool:
    """Whether numpy has the dtype, in place of the reference's function, which asks numpy."""
    return not dtype.is_foreign  # type: ignore[attr-defined]


def image_id(image: Library) -> Data | None:
    """The id of an image, in place of the reference's function, which asks Pillow."""
    return image.identity  # type: ignore[attr-defined,no-any-return]


def _array(
    described_by: str,
    names: tuple[str, ...] | None,
    *classes: tuple[str, str],
    types: Iterable[str] = (),
    has_objects: bool = False,
    is_foreign: bool = False,
    is_contiguous: bool = True,
) -> Constructed:
    dtype, elements, shape = content_of("dtype"), data("elements", "memoryview"), _shape()
    if not is_contiguous:  # what is empty lies in any order
        paths.assume(elements.nbytes.term > 0)

    def reshape(axes: int) -> Library:
        _asked("reshape", axes, -1)
        return Library(view=view)

    def view(element: str) -> Library:
        _asked("view", element, "u1")
        return Library(data=elements)

    def copy(*, order: str) -> Library:
        _asked("copy", order, "C")
        return array

    described: dict[str, Any] = {described_by: SymbolicText(dtype)}
    array = Library(
        *(classes or (NDARRAY,)),
        types=types,
        dtype=Library(hasobject=has_objects, is_foreign=is_foreign, names=names, **described),
        shape=shape,
        nbytes=elements.nbytes,
        flags=Library(c_contiguous=is_contiguous),
        reshape=reshape,
        copy=copy,
    )
    return "array", (dtype, *shape.content, *elements.content), array


def _asked(what: str, given: object, known: object) -> None:
    """A method of a library has a meaning for one argument."""
    if type(given) is not type(known) or given != known:
        raise Unread(f"{what} of something else than {known!r}")


class Dtype(Symbol):
    """Written with the name of its library in front."""

    def __init__(self, of: z3.ExprRef) -> None:
        self.of = of

    def as_text(self) -> SymbolicText:
        return _Prefixed(self.of)


class _Prefixed(SymbolicText):
    def removeprefix(self, prefix: str) -> SymbolicText:
        """The text without the prefix of torch, which all of them have."""
        _asked("removeprefix", prefix, "torch.")
        return SymbolicText(self.of)


TORCH = SimpleNamespace(strided="strided", uint8="uint8")


def _tensor(layout: str = TORCH.strided, *, is_quantized: bool = False) -> Constructed:
    dtype, elements, shape = content_of("dtype"), data("elements", "memoryview"), _shape()

    def tensor(*done: str) -> Library:
        """A tensor with what was `done` of what it takes to see its bytes."""

        def doing(what: str) -> Callable[[], Library]:
            return lambda: tensor(*done, what)

        steps = ("detach", "cpu", "resolve_conj", "resolve_neg", "contiguous")
        made = Library(
            TENSOR,
            layout=layout,
            is_quantized=is_quantized,
            dtype=Dtype(dtype),
            shape=shape,
            numel=lambda: elements.nbytes,
            reshape=lambda axes: flat(axes, done),
        )
        made.__dict__.update({name: doing(name) for name in steps})
        return made

    def flat(axes: int, done: Sequence[str]) -> Library:
        _asked("reshape", axes, -1)
        if not {"resolve_conj", "resolve_neg"} <= {*done}:
            raise Unread("the bytes of a tensor that are not those of its elements")
        return Library(view=view)

    def view(element: str) -> Library:
        _asked("view", element, TORCH.uint8)
        return Library(numpy=lambda: Library(data=elements))

    return "tensor", (dtype, *shape.content, *elements.content), tensor()


def _palette(raw_mode: str | None) -> SimpleNamespace:
    mode = SymbolicText(content_of("palette mode"))
    raw = None
    if raw_mode is not None:
        raw = SymbolicText(content_of(raw_mode))
        paths.assume(raw.of != EMPTY)
    shown = mode if raw is None else raw
    return SimpleNamespace(rawmode=raw, mode=mode, palette=data("colours"), shown=shown)


def _image(palette: SimpleNamespace | None) -> Constructed:
    mode, pixels, transparency = (
        SymbolicText(content_of("mode")),
        data("pixels"),
        Open("transparency"),
    )
    width, height = (Number(z3.Int(fresh(name))) for name in ("width", "height"))
    image = Library(
        IMAGE,
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
    assert isinstance(run, BytesRun)
    paths.assume(run.length == 16)
    return "image id", identity.content, Library(IMAGE, identity=identity)
