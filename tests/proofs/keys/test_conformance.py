"""Texts in which one construct of Python matters: what Python breaks is never said to hold.

Each is a change of the reference's text, with inputs on which Python itself breaks the contract.
The proof must refute the text or refuse it with file and line. Beside them stand changes by which
nothing is confused and that stay within the language: those must hold.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import PIL.Image
import pytest

from cacheproof.proofs.keys.claim import Claim
from cacheproof.proofs.keys.media import Texts
from cacheproof.proofs.keys.prove import claims
from cacheproof.proofs.keys.running import (
    BlockTexts,
    MediaTexts,
    Requested,
    StandIn,
    identifier_by,
)
from cacheproof.proofs.keys.scopes import Named
from cacheproof.proofs.keys.texts import text_of
from cacheproof.reference import block_hash, media_content, media_identifier, media_stream
from cacheproof.reference.media_identifier import ItemName
from cacheproof.reference.semantics.block_keys import BlockKeySemantics
from cacheproof.reference.semantics.media import MediaSemantics
from cacheproof.spec.evidence import Outcome

IDEAL = BlockKeySemantics()
Broken = Callable[[dict[str, str]], bool]
"""Whether Python breaks the contract, with these texts, on the inputs of a case."""
TEXTS = {
    "content": text_of(media_content),
    "stream": text_of(media_stream),
    "identifier": text_of(media_identifier),
    "block": text_of(block_hash),
}
PLACE = re.compile(r"^reference/\w+\.py:\d+: ")


@dataclass(frozen=True)
class Case:
    """Changes of one text, `old` for `new`; `head` is put behind its imports."""

    name: str
    contract: str
    text: str
    breaks: Broken
    changes: tuple[tuple[str, str], ...] = ()
    head: str = ""

    @property
    def texts(self) -> dict[str, str]:
        text = TEXTS[self.text]
        for old, new in self.changes:
            assert text.count(old) == 1, (text.count(old), old)
            text = text.replace(old, new)
        mark = {
            "content": "EXIF_IMAGE_ID = 0x800D\n",
            "stream": 'Body: TypeAlias = "bytes | memoryview | tuple[Node, ...]"\n',
            "identifier": "class ItemName(NamedTuple):\n",
            "block": "BlockHasher = Callable[[TokenRequest], list[bytes]]\n",
        }[self.text]
        assert text.count(mark) == 1
        return {**TEXTS, self.text: text.replace(mark, self.head + mark)}


def never(_: dict[str, str]) -> bool:
    return False


def one_stream(*values: Callable[[], object]) -> Broken:
    """The contents of two values are fed to the digest alike."""

    def breaks(texts: dict[str, str]) -> bool:
        media = MediaTexts(Texts(texts["content"], texts["stream"]))
        one, other = (media.stream(media.tree({"x": make()})) for make in values)
        return one == other

    return breaks


def one_stream_of_calls(first: dict[str, object], second: dict[str, object]) -> Broken:
    def breaks(texts: dict[str, str]) -> bool:
        media = MediaTexts(Texts(texts["content"], texts["stream"]))
        return media.stream(media.tree(first)) == media.stream(media.tree(second))

    return breaks


def values(one: object, other: object) -> Broken:
    return one_stream(lambda: one, lambda: other)


def not_decoded(make: Callable[[], object]) -> Broken:
    """The stream of a value is decoded to something else."""

    def breaks(texts: dict[str, str]) -> bool:
        media = MediaTexts(Texts(texts["content"], texts["stream"]))
        tree = media.tree({"x": make()})
        return bool(media.decoded(media.stream(tree)) != tree)

    return breaks


def one_identifier(first: Named, second: Named) -> Broken:
    def breaks(texts: dict[str, str]) -> bool:
        identifier, ideal = identifier_by(texts["identifier"]), MediaSemantics()
        return identifier(*first, ideal) == identifier(*second, ideal)

    return breaks


def one_key(first: Requested, second: Requested, size: int = 2, lookahead: int = 0) -> Broken:
    """The last blocks of two requests, which differ, have one key."""

    def breaks(texts: dict[str, str]) -> bool:
        block = BlockTexts(texts["block"], IDEAL)
        one, other = (block.keys(request, size, lookahead) for request in (first, second))
        return one[-1:] == other[-1:]

    return breaks


def other_keys_when_grown(request: Requested, size: int = 2, lookahead: int = 0) -> Broken:
    def breaks(texts: dict[str, str]) -> bool:
        block = BlockTexts(texts["block"], IDEAL)
        fresh = block.keys(request, size, lookahead)
        return block.keys_one_by_one(request, size, lookahead) != fresh

    return breaks


def misses_keys(request: Requested, size: int = 2) -> Broken:
    """A full block gets no key."""

    def breaks(texts: dict[str, str]) -> bool:
        keys = BlockTexts(texts["block"], IDEAL).keys(request, size)
        return len(keys) != len(request.tokens) // size

    return breaks


def scope(value: object) -> Callable[[], object]:
    return lambda: value


def array(*elements: object, dtype: str = "u1") -> Callable[[], np.ndarray]:
    return lambda: np.array(elements, dtype)


def masked(*mask: bool) -> Callable[[], np.ma.MaskedArray]:
    return lambda: np.ma.MaskedArray(np.array([1, 2], "u1"), mask)


def tensor(
    *elements: int, quantized: bool = False, layout: str = "strided"
) -> Callable[[], StandIn]:
    def make() -> StandIn:
        made = StandIn(np.array(elements, "u1"), "uint8")
        made.is_quantized, made.layout = quantized, layout
        return made

    return make


def image(
    mode: str, size: tuple[int, int], colour: int | tuple[int, ...] = 0, **info: object
) -> Callable[[], PIL.Image.Image]:
    def make() -> PIL.Image.Image:
        made = PIL.Image.new(mode, size, colour)
        made.info.update(info)
        return made

    return make


def sequence(*elements: object) -> Callable[[], list[object]]:
    return lambda: list(elements)


def in_words() -> memoryview:
    return memoryview(b"abcd").cast("H")


def as_nodes() -> memoryview:
    return memoryview(b"abxx").cast("H")


LIST = 'return Node(ord("l"), tuple(content(element) for element in value))'
ENTRIES = 'return Node(ord("m"), tuple(node for entry in ordered for node in entry))'
BYTES = 'return Node(ord("X"), bytes(value))'
FLOAT = 'return Node(ord("D"), struct.pack(">d", value))'
INT = 'return Node(ord("I"), value.to_bytes(size, "big", signed=True))'
TEXT = '    return Node(ord("S"), text.encode("utf-8", "surrogatepass"))'
CHILDREN = "        for child in body:\n            yield from chunks(child)\n"
ORDERED = "    ordered = (entries[key] for key in sorted(entries))\n"
ONE_EACH = ("    if len(entries) != len(mapping):\n", "    if not entries and mapping:\n")
NANS = float("nan"), float("nan")
CALL = "    parts = ((_text(name), content(arguments[name])) for name in sorted(arguments))\n"
NAMED = "        case Mapping():\n            return _mapping(value)\n"
TRANSPARENCY = '    transparency = content(image.info.get("transparency"))\n'
ELEMENTS = '    in_order = array if array.flags.c_contiguous else array.copy(order="C")\n'
DECODED = "    return Node(tag, tuple(children)), end\n"
LONG = tuple(range(70))
MEDIA = (
    # loops are run for one element
    Case("a place in a loop", "MH-3", "content", values([1] * 5, [1] * 4),
         ((LIST, LIST.replace("element) for element in value",
                              "e) for i, e in enumerate(value) if i < 4")),)),
    Case("the place of a child", "MH-3", "stream", values([[1] * 5, 2], [[1] * 5, 3]),
         ((CHILDREN, "        for i, child in enumerate(body):\n"
                     "            if i < 1:\n                yield from chunks(child)\n"),)),
    Case("a loop that breaks off", "MH-3", "stream", values([[1] * 5, 2], [[1] * 5, 3]),
         ((CHILDREN, CHILDREN + "            break\n"),)),
    Case("a loop that goes on early", "MH-3", "stream", values([1, 2], [1, 3]),
         ((CHILDREN, "        for child in body:\n            if len(body) > 1:\n"
                     "                continue\n            yield from chunks(child)\n"),)),
    Case("a loop that returns", "MH-3", "stream", values([1, 2], [1, 3]),
         ((CHILDREN, CHILDREN + "            return\n"),)),
    Case("the end of a loop", "MH-3", "stream", values([1, 2], [1, 3]),
         ((CHILDREN, "        for child in ():\n            pass\n        else:\n"
                     "            return\n" + CHILDREN),)),
    Case("a flag of the round before", "MH-3", "stream", values([1, 2], [1, 3]),
         ((CHILDREN, "        done = False\n        for child in body:\n"
                     "            if not done:\n                yield from chunks(child)\n"
                     "            done = True\n"),)),
    Case("the last element after a loop", "MH-3", "content", values([1, 2], [3, 2]),
         ((f"            {LIST}\n", "            last = None\n            for last in value:\n"
           '                pass\n            return Node(ord("l"), (content(last),))\n'),)),
    Case("a filter by kind", "MH-3", "content", values([None, 1], [1]),
         ((LIST, LIST.replace("in value)", "in value if element is not None)")),)),
    Case("a filter by truth", "MH-3", "content", values([0, 1], [1]),
         ((LIST, LIST.replace("in value)", "in value if element)")),)),
    Case("a filter by value", "MH-3", "content", values([7, 1], [1]),
         ((LIST, LIST.replace("in value)", "in value if element != 7)")),)),
    Case("an element by its kind", "MH-3", "content", values([1.5], [1]),
         ((LIST, LIST.replace("content(element)",
                              "content(int(element) if isinstance(element, float) "
                              "else element)")),)),
    Case("elements as a set", "MH-3", "content", values([1, 2], [2, 1]),
         ((LIST, LIST.replace("in value)", "in set(value))")),)),
    Case("elements in order", "MH-3", "content", values([1, 2], [2, 1]),
         ((LIST, LIST.replace("in value)", "in sorted(value))")),)),
    Case("elements as keys of a dict", "MH-3", "content", values([1, 1], [1]),
         ((LIST, LIST.replace("in value)", "in dict.fromkeys(value))")),)),
    Case("a list that is collected and counted", "MH-3", "content", values([1] * 5, [2] * 5),
         ((f"            {LIST}\n", "            found = []\n            for element in value:\n"
           "                found.append(element)\n            if len(found) > 4:\n"
           '                return Node(ord("l"), ())\n' f"            {LIST}\n"),)),
    Case("a part of a list", "MH-3", "content", values([1, 2, 3], [1, 2, 4]),
         ((LIST, LIST.replace("in value)", "in value[:2])")),)),
    # what any object answers
    Case("the truth of bytes", "MH-3", "content", values(b"", None),
         ((BYTES, 'return Node(ord("X"), bytes(value)) if value else Node(ord("N"), b"")'),)),
    Case("the truth of a list", "MH-3", "content", values([], None),
         ((LIST, LIST + ' if value else Node(ord("N"), b"")'),)),
    Case("the truth of a mapping", "MH-3", "content", values({}, None),
         (("            return _mapping(value)\n",
           '            return _mapping(value) if value else Node(ord("N"), b"")\n'),)),
    Case("the truth of a float", "MH-3", "content", values(0.0, -0.0),
         ((FLOAT, 'return Node(ord("D"), struct.pack(">d", value if value else 0.0))'),)),
    Case("a text that equals another", "MH-3", "content", values("a", "b"),
         (("            return _text(value)\n",
           '            return _text("b" if value == "a" else value)\n'),)),
    Case("a text within another", "MH-3", "content", values("xa", "b"),
         (("            return _text(value)\n",
           '            return _text("b" if "x" in value else value)\n'),)),
    Case("a float that equals another", "MH-3", "content", values(0.0, -0.0),
         ((FLOAT, FLOAT.replace("value)", "0.0 if value == 0.0 else value)")),)),
    Case("None by identity", "MH-3", "content",
         one_stream(image("L", (1, 1)), image("L", (1, 1), transparency=0)),
         ((TRANSPARENCY, '    given = image.info.get("transparency")\n'
           "    transparency = content(0 if given is None else given)\n"),)),
    Case("None by a pattern", "MH-3", "content",
         one_stream(image("L", (1, 1)), image("L", (1, 1), transparency=0)),
         ((TRANSPARENCY, '    given = image.info.get("transparency")\n    match given:\n'
           "        case None:\n            given = 0\n    transparency = content(given)\n"),)),
    Case("None by truth", "MH-3", "content",
         one_stream(image("L", (1, 1)), image("L", (1, 1), transparency=0)),
         ((TRANSPARENCY,
           '    transparency = content(image.info.get("transparency") or None)\n'),)),
    Case("the name of a type", "MH-3", "content", values(2.0, 2),
         (("    match value:\n        case int():\n",
           '    if type(value).__name__ == "float" and value.is_integer():\n'
           "        value = int(value)\n    match value:\n        case int():\n"),)),
    Case("a type by identity", "MH-3", "content", values("a", "b"),
         (("        case str():\n", "        case str() if type(value) is str:\n"
           '            return Node(ord("S"), b"")\n        case str():\n'),)),
    Case("a text as it is shown", "MH-3", "content", values("a'", "\\a'"),
         (('text.encode("utf-8", "surrogatepass")',
           'repr(text).replace("\\\\", "").encode()'),)),
    Case("a text formatted", "MH-3", "content", values("abc", "abd"),
         (('text.encode("utf-8", "surrogatepass")',
           'f"{text:.2}".encode("utf-8", "surrogatepass")'),)),
    Case("a text by a percent sign", "MH-3", "content", values("abc", "abd"),
         (('text.encode("utf-8", "surrogatepass")', '("%.2s" % text).encode()'),)),
    # patterns
    Case("a pattern of a sequence", "MH-3", "content", values([], None),
         (("        case list() | tuple():\n",
          '        case []:\n            return Node(ord("N"), b"")\n'
           "        case list() | tuple():\n"),)),
    Case("a pattern of a mapping", "MH-3", "content", values({"a": 1}, {"a": 2}),
         ((NAMED, '        case {"a": _}:\n            return Node(ord("m"), ())\n' + NAMED),)),
    Case("a pattern of a value", "MH-3", "content", values("a", "b"),
         (("        case str():\n", '        case "a":\n            return _text("b")\n'
           "        case str():\n"),)),
    Case("a pattern of an abstract class", "MH-3", "content", values([], b""),
         (("        case bytes() | bytearray():\n",
           "        case Sized() if not isinstance(value, str) and len(value) == 0:\n"
           '            return Node(ord("X"), b"")\n        case bytes() | bytearray():\n'),
          ("from collections.abc import Mapping\n",
           "from collections.abc import Mapping, Sized\n"))),
    Case("an abstract class of numbers", "MH-3", "content", values(1, 1.0),
         (("    match value:\n        case int():\n", "    match value:\n        case Real():\n"
           '            return Node(ord("D"), struct.pack(">d", float(value)))\n'
           "        case int():\n"),), head="from numbers import Real\n"),
    # what is kept for the next call
    Case("a cache of values", "MH-3", "content", lambda texts: kept(texts, 0.0, -0.0),
         ((FLOAT, 'return _SEEN.setdefault(value, Node(ord("D"), struct.pack(">d", value)))'),),
         head="_SEEN = {}\n"),
    Case("a default that is kept", "MH-3", "content", lambda texts: kept(texts, 0.0, -0.0),
         ((FLOAT, 'return seen.setdefault(value, Node(ord("D"), struct.pack(">d", value)))'),
          ("def content(value: Any) -> Node:",
           "def content(value: Any, seen: Any = {}) -> Node:"))),
    Case("a decorator that keeps", "MH-3", "content", lambda texts: kept(texts, 0.0, -0.0),
         (("def content(value: Any)", "@cache\ndef content(value: Any)"),),
         head="from functools import cache\n"),
    Case("a counter of the module", "MH-3", "content", values([1] * 70, [2] * 70),
         (("def content(value: Any) -> Node:", "_CALLS = 0\n\n\ndef content(value: Any) -> Node:"),
          ("    match value:\n        case None:\n",
           "    global _CALLS\n    _CALLS += 1\n    if _CALLS > 0:\n"
           '        return Node(ord("N"), b"")\n    match value:\n        case None:\n'))),
    Case("an attribute of a function", "MH-3", "content", values([1] * 70, [2] * 70),
         (("    match value:\n        case None:\n",
           '    content.calls = getattr(content, "calls", 0) + 1\n    if content.calls > 0:\n'
           '        return Node(ord("N"), b"")\n    match value:\n        case None:\n'),)),
    Case("a default that runs", "MH-3", "content", values("a", "b"),
         (("def _shape(shape: Any)",
           "def _unused(found: Any = exec('_text = lambda text: Node(83, bytes())', globals())):\n"
           "    return found\n\n\ndef _shape(shape: Any)"),)),
    # what stands for a name
    Case("a builtin of the module's own", "MH-3", "content", values({"a": 1}, {}),
         ((ORDERED, ORDERED),), head="def sorted(found):\n    return ()\n\n\n"),
    Case("a builtin that is imported", "MH-3", "content", values({"a": 1}, {"a": 2}),
         ((ENTRIES, ENTRIES.replace("in entry))", "in filter(entry[:1])))")),),
         head="from copy import copy as filter\n"),
    Case("another module by a known name", "MH-3", "content", values(1.0, 2.0),
         (("import struct\n", "import struct as _struct\n"),),
         head='class struct:\n    def pack(form, value):\n        return b""\n\n\n'),
    Case("a function defined twice", "MH-3", "content", values("a", "b"),
         (("def _shape(shape: Any)", "def _text(text: str) -> Node:\n"
           '    return Node(ord("S"), b"")\n\n\ndef _shape(shape: Any)'),)),
    Case("a function bound again", "MH-3", "content", values("a", "b"),
         (("def _shape(shape: Any)", '_text = lambda text: Node(ord("S"), b"")\n\n\n'
           "def _shape(shape: Any)"),)),
    Case("a decorator that answers", "MH-3", "content", values("a", "b"),
         (("def _text(text: str)", "@_same\ndef _text(text: str)"),),
         head='def _same(function):\n    return lambda text: Node(ord("S"), b"")\n\n\n'),
    Case("a node that forgets", "MH-3", "stream", values(b"a", b"b"),
         (("class Node(NamedTuple):\n",
           "class _Node(NamedTuple):\n    tag: int\n    body: object\n\n\n"
           'def Node(tag, body):\n    return _Node(tag, b"" if tag == 88 else body)\n\n\n'
           "class _Unused(NamedTuple):\n"),)),
    Case("a class of the module's own", "MH-3", "content", values({"a": 1}, "dict"),
         ((NAMED, NAMED.replace("_mapping(value)", "_text(type(value).__name__)")),)),
    Case("a base that changes a node", "MH-3", "stream", values(b"a", b"b"),
         (('class Node(NamedTuple):\n    """One tag of `LEAVES` or `LISTS` and its body."""\n',
           "class _Node(NamedTuple):\n    tag: int\n    body: Body\n\n\nclass Node(_Node):\n"
           "    def __new__(cls, tag, body):\n"
           '        return super().__new__(cls, tag, b"" if tag == 88 else body)\n\n'),)),
    Case("a helper whose meaning is stated", "MH-3", "content",
         one_stream(image("L", (1, 1), 0), image("L", (1, 1), 255)),
         (("    return found.bytes if isinstance(found, uuid.UUID) else None\n",
           "    return bytes(16)\n"),)),
    Case("a question whose meaning is stated", "MH-3", "content",
         one_stream(array(1.5, dtype="f8"), scope([1.5])),
         (("    return library is not None and isinstance(value, getattr(library, name))\n",
           "    return library is not None and isinstance(value, getattr(library, name)) and "
           "value.size > 1\n"),
          ("    if type(value).__name__ == MEDIA_WRAPPER:\n",
           '    if type(value).__name__ == "ndarray":\n        return content(value.tolist())\n'
           "    if type(value).__name__ == MEDIA_WRAPPER:\n"))),
    # what a library's function makes of its arguments
    Case("an encoding that folds", "MH-3", "content", values("\u212a", "k"),
         (('text.encode("utf-8", "surrogatepass")', 'text.encode("idna")'),)),
    Case("an encoding that leaves out", "MH-3", "content", values("aé", "a"),
         (('text.encode("utf-8", "surrogatepass")', 'text.encode("ascii", "ignore")'),)),
    Case("a prefix that is removed", "MH-3", "content", values("\ufeffa", "a"),
         (('text.encode("utf-8", "surrogatepass")',
           'text.removeprefix("\\ufeff").encode("utf-8", "surrogatepass")'),)),
    Case("a float of half the width", "MH-3", "content", values(0.1, 0.1 + 1e-12),
         ((FLOAT, FLOAT.replace(">d", ">f")),)),
    Case("a number modulo a negative one", "MH-3", "content", values(1, 257),
         ((INT, 'return Node(ord("I"), bytes((value % 256,)))'),)),
    Case("a length in elements", "MH-3", "content", one_stream(in_words, as_nodes),
         (('            return Node(ord("X"), value.tobytes())\n',
           '            return Node(ord("X"), value.tobytes()[: len(value)])\n'),)),
    Case("a value of a mapping by name", "MH-3", "content",
         one_stream_of_calls({"image": 1, "b": 2}, {"image": 1, "b": 3}),
         ((CALL, CALL.replace("arguments[name]", 'arguments["image"]')),)),
    Case("entries by part of their key", "MH-3", "content",
         values({"aa": 1, "ab": 2}, {"aa": 3, "ab": 2}),
         (("        entries[encode(node)] =", "        entries[encode(node)[:10]] ="), ONE_EACH)),
    Case("keys of one content", "MH-3", "content",
         values({NANS[0]: 1, NANS[1]: 2}, {NANS[1]: 2}), (ONE_EACH,)),
    Case("entries that are counted", "MH-3", "content",
         values(dict.fromkeys(range(9), 0), dict.fromkeys(range(9), 1)),
         ((ORDERED, '    if len(entries) > 8:\n        return Node(ord("m"), ())\n' + ORDERED),)),
    Case("elements of an array that lies otherwise", "MH-3", "content",
         one_stream(lambda: np.array([[1, 2], [3, 4]], "u1").T,
                    lambda: np.array([[1, 9], [3, 4]], "u1").T),
         ((ELEMENTS, "    in_order = array if array.flags.c_contiguous else array[:1] * 0 + 1\n"
           '    if not array.flags.c_contiguous:\n        return b""\n'),)),
    Case("a masked array", "MH-3", "content", one_stream(masked(True, False), masked(False, False)),
         (('    if is_of(array, "numpy.ma", "MaskedArray"):\n'
           '        raise Refused("masked array; expected a plain one")\n', ""),)),
    Case("an array of objects", "MH-3", "content",
         one_stream(*(lambda n=n: objects(n) for n in (1, 2))),
         (("    if array.dtype.hasobject:\n", "    if array.dtype.hasobject:\n"
           '        return Node(ord("a"), ())\n    if array.dtype.hasobject:\n'),)),
    Case("a quantized tensor", "MH-3", "content",
         one_stream(tensor(1, 2, quantized=True), tensor(1, 2)),
         ((" or tensor.is_quantized:\n", ":\n"),)),
    Case("a scalar of a library", "MH-3", "content",
         one_stream(lambda: np.float64(1.5), lambda: 1.5),
         (('    if is_of(value, "numpy", "generic") or is_of(value, "numpy", "ndarray"):\n',
           '    if is_of(value, "numpy", "ndarray"):\n'),)),
    Case("any object by its class", "MH-3", "content", values(1j, 2j),
         (('    raise Refused(\n        f"{type(value).__name__}; expected None',
           '    if type(value).__name__ == "complex":\n        return Node(ord("N"), b"")\n'
           '    raise Refused(\n        f"{type(value).__name__}; expected None'),)),
    Case("one axis of an image", "MH-3", "content",
         one_stream(image("L", (4, 1)), image("L", (2, 2))),
         (("_shape(image.size)", "_shape(image.size[:0])"),)),
    # effects where they do not show
    Case("an assignment in an expression", "MH-3", "content", values("a", "b"),
         (("            return _text(value)\n",
           '            return _text((value := "a") and value)\n'),)),
    Case("a pattern that binds", "MH-3", "content", values("a", "b"),
         (("        case str():\n", '        case str() if (value := "a"):\n'),)),
    Case("a parameter of any number", "MH-3", "content", values("a", "b"),
         (("def _text(text: str) -> Node:\n",
          'def _text(*text: str) -> Node:\n    text = "a"\n'),)),
    Case("keyword arguments bound otherwise", "MH-3", "content", values("a", "b"),
         (("            return _text(value)\n",
           '            return _of(text="a", other=value)\n'),
          ("def _shape(shape: Any)", "def _of(other: str, text: str) -> Node:\n"
           "    return _text(text)\n\n\ndef _shape(shape: Any)"))),
    Case("a generator where a value is expected", "MH-3", "content", values("a", "b"),
         (("def _text(text: str) -> Node:\n",
           'def _text(text: str) -> Node:\n    return Node(ord("S"), b"".join(_none(text)))\n\n\n'
           "def _none(text: str) -> Any:\n    return iter(())\n    yield text.encode()\n\n\n"
           "def _old(text: str) -> Node:\n"),)),
    Case("a generator that is spent", "MH-3", "content", values({"a": 1}, {"a": 2}),
         (('    return Node(ord("c"), tuple(node for pair in parts for node in pair))\n',
           "    spent = tuple(name for name, _ in parts)\n"
            '    return Node(ord("c"), spent + '
            'tuple(node for pair in parts for node in pair))\n'),)),
    Case("a lambda", "MH-3", "content", values("a", "b"),
         (("            return _text(value)\n",
           '            return (lambda text: _text("a"))(value)\n'),)),
    Case("an exception that is caught", "MH-3", "content", values("\ud800", ""),
         ((TEXT, '    try:\n        return Node(ord("S"), text.encode("utf-8"))\n'
           '    except UnicodeEncodeError:\n        return Node(ord("S"), b"")'),)),
    Case("a comparison that is chained", "MH-3", "content", values(5, 6),
         ((INT, 'return Node(ord("I"), b"" if 4 < value < 7 else '
           'value.to_bytes(size, "big", signed=True))'),)),
    Case("a short circuit", "MH-3", "content", values("", "a"),
         (("            return _text(value)\n",
           '            return _text(value and "" or "")\n'),)),
    Case("digits that are not as many", "MH-3", "content", values(1, 256 + 1),
         ((INT, 'return Node(ord("I"), (value % 256).to_bytes(2, "big"))'),)),
    # what is decoded
    Case("a tag that is written of no leaf", "MH-1", "stream", not_decoded(scope(b"a")),
         (('LEAVES = frozenset(b"NBIDSXU")', 'LEAVES = frozenset(b"NBIDSU")'),)),
    Case("no leaves at all", "MH-1", "stream", not_decoded(scope(b"a")),
         (('LEAVES = frozenset(b"NBIDSXU")', 'LEAVES = frozenset(b"")'),)),
    Case("a tag of both", "MH-1", "stream", not_decoded(scope(b"a")),
         (('LISTS = frozenset(b"lmatpc")', 'LISTS = frozenset(b"lmatpcX")'),
          ("    if tag in LEAVES:\n", "    if tag in LEAVES - LISTS:\n"))),
    Case("children in another order", "MH-1", "stream", not_decoded(scope([1, 2])),
         ((DECODED, DECODED.replace("tuple(children)", "tuple(reversed(children))")),)),
    Case("children that are sorted", "MH-1", "stream", not_decoded(scope([2, 1])),
         ((DECODED, DECODED.replace("tuple(children)", "tuple(sorted(children))")),)),
    Case("children each once", "MH-1", "stream", not_decoded(scope([1, 1])),
         ((DECODED, DECODED.replace("tuple(children)", "tuple(dict.fromkeys(children))")),)),
    Case("children that are something else", "MH-1", "stream", not_decoded(scope([None, 1])),
         ((DECODED, DECODED.replace("tuple(children)",
           'tuple(c for c in children if c != Node(ord("N"), b""))')),)),
    Case("fewer rounds than none", "MH-1", "stream", not_decoded(scope([1])),
         (("range(size)", "range(size - size - 1)"),)),
    Case("a loop's end", "MH-1", "stream", not_decoded(scope([1])),
         ((DECODED, "    else:\n        children = []\n" + DECODED),)),
    Case("a parameter that a loop moves", "MH-1", "stream", not_decoded(scope([1, 2])),
         (("        child, end = _decode(stream, end)\n",
           "        child, end = _decode(stream, end)\n        stream = stream[:-1]\n"),)),
    Case("a pattern that a loop binds", "MH-1", "stream", not_decoded(scope([1, 2])),
         (("        children.append(child)\n",
           "        children.append(child)\n        match end - 1:\n            case end:\n"
           "                pass\n"),)),
    Case("bytes in steps", "MH-1", "stream", not_decoded(scope(b"abcd")),
         (("stream[body_start:end])", "stream[body_start:end:2])"),)),
    Case("a number with a sign", "MH-1", "stream", not_decoded(scope(b"a")),
         (('stream[start + 1 : body_start], "little")',
          'stream[start + 1 : body_start], "big")'),)),
    Case("a decoder that is decorated", "MH-1", "stream", not_decoded(scope([1])),
         (("def _decode(stream", "@_first\ndef _decode(stream"),),
         head="def _first(function):\n"
         '    return lambda stream, start: (Node(ord("N"), b""), len(stream))\n\n\n'),
    Case("a list of children", "MH-1", "stream", not_decoded(scope([1])),
         ((DECODED, DECODED.replace("tuple(children)", "children")),)),
    Case("the end of the whole", "MH-1", "stream", not_decoded(scope([1])),
         (("    return node\n\n\ndef _decode",
          '    return Node(ord("N"), b"")\n\n\ndef _decode'),)),
)  # fmt: skip


def kept(texts: dict[str, str], *given: object) -> bool:
    """Two values that are hashed one after the other, by one process."""
    media = MediaTexts(Texts(texts["content"], texts["stream"]))
    one, other = (media.stream(media.tree({"x": value})) for value in given)
    return one == other


def objects(number: int) -> np.ndarray:
    return np.array([number], object)


ADAPTER = "        return f\"{len(adapter or '')}:{adapter or ''}:{key}\"\n"
ITEM, OTHER = ItemName("ab"), ItemName("abc")
IDENTIFIERS = (
    Case("an adapter cut short", "ID-1", "identifier", one_identifier((ITEM, "xyz"), (ITEM, "xyw")),
         ((ADAPTER, ADAPTER.replace("{adapter or ''}:{key}", "{adapter or '':.2}:{key}")),)),
    Case("a key cut short", "ID-1", "identifier", one_identifier((ITEM, "x"), (OTHER, "x")),
         ((ADAPTER, ADAPTER.replace("{key}", "{key:.2}")),)),
    Case("a length in another base", "ID-1", "identifier",
         one_identifier((ITEM, "x" * 256), (ITEM, "y" * 256)),
         ((ADAPTER, ADAPTER.replace("{len(adapter or '')}:{adapter or ''}",
                                    "{len(adapter or ''):c}")),)),
    Case("an adapter as it is shown", "ID-1", "identifier",
         one_identifier((ITEM, "x"), (ITEM, "y")),
         ((ADAPTER, ADAPTER.replace("{adapter or ''}:{key}", "{bool(adapter)!r}:{key}")),)),
    Case("an adapter in small letters", "ID-1", "identifier",
         one_identifier((ITEM, "x"), (ITEM, "X")),
         ((ADAPTER, ADAPTER.replace("{adapter or ''}:{key}", "{(adapter or '').lower()}:{key}")),)),
    Case("an adapter by its first letters", "ID-1", "identifier",
         one_identifier((ITEM, "xyz"), (ITEM, "xyw")),
         ((ADAPTER, ADAPTER.replace("{adapter or ''}:{key}", "{(adapter or '')[:2]}:{key}")),)),
    Case("a name that equals another", "ID-1", "identifier",
         one_identifier((ITEM, "base"), (ITEM, None)),
         (("    key = processor_key(name, semantics)\n",
           '    if adapter == "base":\n        adapter = None\n'
           "    key = processor_key(name, semantics)\n"),)),
    Case("a name among others", "ID-1", "identifier", one_identifier((ITEM, "a"), (ITEM, None)),
         (("    key = processor_key(name, semantics)\n",
           '    if adapter in ("a", "b"):\n        adapter = None\n'
           "    key = processor_key(name, semantics)\n"),)),
    Case("a default that is kept, of names", "ID-1", "identifier",
         one_identifier((ITEM, "x"), (OTHER, "x")),
         ((ADAPTER, "        if adapter in seen:\n            return str(seen[adapter])\n"
           "        seen[adapter] = f\"{len(adapter or '')}:{adapter or ''}:{key}\"\n"
           "        return str(seen[adapter])\n"),
          ("def identifier(name: ItemName, adapter: str | None, semantics: MediaSemantics) -> str:",
           "def identifier(name, adapter, semantics, seen={}) -> str:"))),
    Case("a name by percent signs", "ID-1", "identifier",
         one_identifier((ITEM, "xyz"), (ITEM, "xyw")),
         ((ADAPTER, '        return "%.2s:%s" % (adapter or "", key)\n'),)),
    Case("a length of the module's own", "ID-1", "identifier",
         one_identifier((ItemName("b:c"), "a"), (ItemName("c"), "a:b")),
         (), head="def len(text: str) -> int:\n    return 0\n\n\n"),
    Case("a text that looks like what stands for a value", "ID-1", "identifier",
         one_identifier((ITEM, "xyz"), (ITEM, "xyw")),
         ((ADAPTER, ADAPTER.replace(
             ":{adapter or ''}:", ":{'' if adapter else ''}\\0001\\000:")),)),
    Case("a decorated name", "ID-1", "identifier", one_identifier((ITEM, "x"), (OTHER, "x")),
         (("def processor_key(", "@_none\ndef processor_key("),),
         head='def _none(function):\n    return lambda name, semantics: ""\n\n\n'),
    Case("a key that is a constant", "ID-1", "identifier",
     one_identifier((ITEM, "x"), (OTHER, "x")),
         (("    return name.text\n", '    return (lambda: "")()\n'),)),
)  # fmt: skip
TOKENS = "parent = caching_hash_fn((parent, tuple(tokens[start:end]), extra))"
ROWS = '    rows = b"".join(embeds.tensor[start:end])\n'
DIGEST = "hashlib.sha256(rows).digest() if semantics.digests_prompt_embeds else rows\n"
EXTRA = "            extra: Any = keys.of(start, end + lookahead)\n"
OF = "        keys = self._adapter + tuple(self._of_items(start, end))\n"
NAMING = "        while item < len(items) and items[item].mm_position.offset < end:\n"
PASSING = (
    "            while item < len(items) and end_of(items[item]) <= start:\n"
    "                item += 1\n"
)
HASHER = "    def hasher(request: TokenRequest) -> list[bytes]:\n"
LAST = "            hashes.append(parent)\n        return hashes\n"
PLAIN = Requested((0, 0))
ITEMS = (("x", 0, 1), ("y", 1, 1), ("z", 2, 1))
SALTED, OTHER_SALT = Requested((0,) * 4, salt="a"), Requested((0,) * 4, salt="b")


def rows(*given: bytes | None) -> Requested:
    return Requested((0,) * len(given), rows=given)


BLOCKS = (
    Case("tokens in order", "BK-2", "block", one_key(Requested((1, 2)), Requested((2, 1))),
         ((TOKENS, TOKENS.replace("tokens[start:end]", "sorted(tokens[start:end])")),)),
    Case("tokens each once", "BK-2", "block",
         one_key(Requested((1, 1, 2, 2), ()), Requested((1, 2, 2, 2)), 4),
         ((TOKENS, TOKENS.replace("tokens[start:end]", "dict.fromkeys(tokens[start:end])")),)),
    Case("tokens as a set", "BK-2", "block",
         one_key(Requested((1, 2)), Requested((2, 1))),
         ((TOKENS, TOKENS.replace("tuple(tokens[start:end])", "sum({*tokens[start:end]})")),)),
    Case("the first tokens", "BK-2", "block",
         one_key(Requested((1,) * 6), Requested((1,) * 5 + (2,)), 6),
         ((TOKENS, TOKENS.replace("tuple(tokens[start:end])", "tuple(tokens[start:end])[:4]")),)),
    Case("every second token", "BK-2", "block", one_key(Requested((1, 2)), Requested((1, 3))),
         ((TOKENS, TOKENS.replace("tokens[start:end]", "tokens[start:end:2]")),)),
    Case("the sum of tokens", "BK-2", "block", one_key(Requested((1, 2)), Requested((2, 1))),
         ((TOKENS, TOKENS.replace("tuple(tokens[start:end])", "sum(tokens[start:end])")),)),
    Case("a token modulo", "BK-2", "block", one_key(Requested((1, 2)), Requested((9, 2))),
         ((TOKENS, TOKENS.replace("tokens[start:end])", "t % 8 for t in tokens[start:end])")),)),
    Case("tokens ahead cut short", "BK-2", "block",
         one_key(Requested((1, 2, 3, 4)), Requested((1, 2, 3, 5)), 2, 2),
         (("extra = (extra, *tokens[end : end + lookahead])",
           "extra = (extra, *tokens[end : end + lookahead])[:2]"),)),
    Case("tokens ahead that are counted", "BK-2", "block",
         one_key(Requested((1, 2, 3, 4)), Requested((1, 2, 3, 5)), 2, 2),
         (("extra = (extra, *tokens[end : end + lookahead])",
           "extra = (extra, *tokens[end : end + lookahead])\n"
           "                extra = extra if len(extra) < 3 else None"),)),
    Case("tokens ahead in order", "BK-2", "block",
         one_key(Requested((1, 2, 3, 4)), Requested((1, 2, 4, 3)), 2, 2),
         (("extra = (extra, *tokens[end : end + lookahead])",
           "extra = (extra, *sorted(tokens[end : end + lookahead]))"),)),
    Case("a parent that is forgotten", "BK-2", "block",
         one_key(Requested((1, 2, 3, 4)), Requested((5, 2, 3, 4))),
         ((LAST, LAST.replace("hashes.append(parent)\n",
                              "hashes.append(parent)\n            parent = first_parent\n")),)),
    Case("a parent of the first key", "BK-3", "block",
         other_keys_when_grown(Requested((1, 2, 3, 4, 5, 6))),
         (("request.block_hashes[-1]", "request.block_hashes[0]"),)),
    Case("extra keys of the first block alone", "BK-2", "block",
         one_key(Requested((0,) * 4, (("x", 2, 1),)), Requested((0,) * 4, (("y", 2, 1),))),
         ((EXTRA, "            extra: Any = None if once else keys.of(start, end + lookahead)\n"
           "            once.append(1)\n"),
          ("    first_parent = none_hash",
           "    once: list[int] = []\n    first_parent = none_hash"))),
    Case("extra keys of another release", "BK-1", "block",
         one_key(Requested((0, 0), (("x", 0, 1),)), Requested((0, 0), (("x", 1, 1),))),
         (("keys = _ExtraKeys(request, semantics)",
           "keys = _ExtraKeys(request, BlockKeySemantics(keys_item_offsets=False, "
           "tags_block_keys=False))"),)),
    Case("extra keys of another request", "BK-2", "block",
         one_key(Requested((0, 0), salt="a"), Requested((0, 0), salt="b")),
         (("keys = _ExtraKeys(request, semantics)", "keys = _ExtraKeys(first_seen, semantics)"),
          ("    first_parent = none_hash",
           '    first_seen = TokenRequest("r", [])\n    first_parent = none_hash'))),
    Case("a name that changes outside", "BK-2", "block",
         one_key(Requested((1, 2)), Requested((3, 4)), 2),
         ((HASHER, '    def hash_all(_: Any) -> bytes:\n        return b""\n\n' + HASHER),
          ("    return hasher\n", "    caching_hash_fn = hash_all\n    return hasher\n"))),
    Case("a hasher that keeps", "BK-2", "block", lambda texts: hasher_keeps(texts),
         ((HASHER, HASHER.replace(
          "request: TokenRequest", "request: TokenRequest, seen: Any = []")),
          (EXTRA, EXTRA +
           "            extra = None if seen else extra\n            seen.append(1)\n"))),
    Case("a digest of fewer rows", "BK-1", "block", one_key(rows(b"a", b"b"), rows(b"a", b"c")),
         ((DIGEST, DIGEST.replace("sha256(rows)", "sha256(rows[:1])")),)),
    Case("a digest of nothing", "BK-1", "block", one_key(rows(b"a", b"b"), rows(b"a", b"c")),
         ((DIGEST, DIGEST.replace("sha256(rows)", 'sha256(b"")')),)),
    Case("a digest cut short", "BK-1", "block", one_key(rows(b"a", b"b"), rows(b"a", b"c")),
         ((DIGEST, DIGEST.replace(".digest()", ".digest()[:0]")),)),
    Case("the first row", "BK-1", "block", one_key(rows(b"a", b"b"), rows(b"a", b"c")),
         ((ROWS, ROWS.replace("start:end", "start : start + 1")),)),
    Case("the first of the rows", "BK-1", "block", one_key(rows(b"a", b"b"), rows(b"a", b"c")),
         ((ROWS, ROWS.replace("[start:end]", "[start:end][:1]")),)),
    Case("rows in order", "BK-1", "block", one_key(rows(b"a", b"b"), rows(b"b", b"a")),
         ((ROWS, ROWS.replace("embeds.tensor[start:end]", "sorted(embeds.tensor[start:end])")),)),
    Case("the head of each row", "BK-1", "block", one_key(rows(b"aa", b"b."), rows(b"ab", b"b.")),
         ((ROWS, ROWS.replace("embeds.tensor[start:end]",
                              "row[:1] for row in embeds.tensor[start:end]")),)),
    Case("the first of a mask", "BK-1", "block", one_key(rows(b"\0", None), rows(b"\0", b"\0")),
         (("embeds.given[start:end]", "embeds.given[start : start + 1]"),)),
    Case("whether any row is given", "BK-1", "block", one_key(rows(b"\0", None), rows(None, b"\0")),
         (("bytes(embeds.given[start:end])", "bytes([any(embeds.given[start:end])])"),)),
    Case("items of an empty block", "BK-1", "block",
         one_key(Requested((0, 0), (("x", 1, 1),)), Requested((0, 0), (("y", 1, 1),))),
         ((OF, OF.replace("self._of_items(start, end)", "self._of_items(start, start)")),)),
    Case("items of the first token", "BK-1", "block",
         one_key(Requested((0, 0), (("x", 1, 1),)), Requested((0, 0), (("y", 1, 1),))),
         ((OF, OF.replace("self._of_items(start, end)", "self._of_items(start, start + 1)")),)),
    Case("items as a set", "BK-1", "block",
         one_key(Requested((0,) * 2, (("x", 0, 1), ("y", 1, 1))), PLAIN),
         ((OF, OF.replace("self._of_items(start, end)", "set(self._of_items(start, end)) - "
                          "{*self._of_items(start, end)}")),)),
    Case("extra keys that are kept", "BK-1", "block",
         one_key(Requested((0,) * 4, (("x", 3, 1),)), Requested((0,) * 4, (("y", 3, 1),))),
         (("        return keys or None\n",
           "        keys = () if self._asked else keys\n        self._asked = True\n"
           "        return keys or None\n"),
          ("        self._items = request.mm_features\n",
           "        self._items = request.mm_features\n        self._asked = False\n"))),
    Case("a list that is changed in place", "BK-3", "block",
         other_keys_when_grown(Requested((0,) * 4, (("x", 0, 1), ("y", 2, 1)))),
         ((OF, "        keys = self._adapter\n        keys += list(self._of_items(start, end))\n"),
          ("        self._adapter = tuple(_adapter_keys(request, semantics))\n",
           "        self._adapter = list(_adapter_keys(request, semantics))\n"),
          ("keys += _salt_keys(self._request.cache_salt, self._semantics)",
           "keys += list(_salt_keys(self._request.cache_salt, self._semantics))"),
           ("            keys += _embeds_keys(self._request.prompt_embeds, start, end, "
            "self._semantics)\n"
           "        return keys or None",
           "            pass\n        return tuple(keys) or None"))),
    Case("a salt that equals another", "BK-1", "block", one_key(SALTED, OTHER_SALT, 4),
         (('    return (("cache_salt", salt) if', '    if salt == "a":\n        salt = "b"\n'
           '    return (("cache_salt", salt) if'),)),
    Case("a salt by its length", "BK-1", "block", one_key(SALTED, OTHER_SALT, 4),
         (('("cache_salt", salt) if semantics', '("cache_salt", len(salt)) if semantics'),)),
    Case("an adapter formatted", "BK-1", "block",
         one_key(Requested((0, 0), (), ("a", "b:c")), Requested((0, 0), (), ("a:b", "c"))),
         (('        yield ("lora", adapter.lora_name, adapter.lora_path)\n',
           '        yield ("lora", f"{adapter.lora_name}:{adapter.lora_path}")\n'),)),
    Case("an adapter that is looked up", "BK-1", "block",
         one_key(Requested((0, 0), (), ("a", "b")), Requested((0, 0), (), ("a", "c"))),
         (('        yield ("lora", adapter.lora_name, adapter.lora_path)\n',
           '        yield ("lora", adapter.lora_name, '
           "_PATHS.setdefault(adapter.lora_name, adapter.lora_path))\n"),),
         head="_PATHS: dict[str, str] = {}\n"),
    Case("an offset that is cut off", "BK-1", "block",
         one_key(Requested((0,) * 4, (("x", 0, 1),)), Requested((0,) * 4, (("x", 1, 1),)), 4),
         (("    offset = feature.mm_position.offset - start\n",
           "    offset = min(feature.mm_position.offset - start, 0)\n"),)),
    Case("an offset modulo", "BK-1", "block",
         one_key(Requested((0,) * 8, (("x", 0, 1),)), Requested((0,) * 8, (("x", 4, 1),)), 8),
         (("    offset = feature.mm_position.offset - start\n",
           "    offset = (feature.mm_position.offset - start) % 4\n"),)),
    Case("an offset before the block", "BK-1", "block",
         lambda texts: one_item_key(texts, -1, 0),
         (("    offset = feature.mm_position.offset - start\n",
           "    offset = feature.mm_position.offset - start\n"
           "    offset = offset if offset > 0 else 0\n"),)),
    Case("no keys", "BK-3", "block", misses_keys(Requested((0,) * 4)),
         ((LAST, LAST.replace("return hashes", "return []")),)),
    Case("half of the keys", "BK-3", "block", misses_keys(Requested((0,) * 4)),
         ((LAST, LAST.replace("return hashes", "return hashes[:1]")),)),
    Case("a rounding to above", "BK-3", "block", other_keys_when_grown(Requested((0,) * 3)),
         (("(len(tokens) - lookahead) // size * size",
           "(len(tokens) - lookahead) // (size - size - size) * (size - size - size)"),)),
    Case("an end that moves", "BK-3", "block", one_key(
        Requested((0,) * 3, ITEMS), Requested((0,) * 3, (*ITEMS[:2], ("w", 2, 1))), 3),
         (("            item += 1\n        return keys\n",
           "            item += 1\n            end -= 1\n        return keys\n"),)),
    Case("items that are dropped in the end", "BK-3", "block", one_key(
        Requested((0, 0), (("x", 0, 1),)), PLAIN),
         (("            item += 1\n        return keys\n",
           "            item += 1\n        else:\n            keys = []\n        return keys\n"),)),
    Case("an attribute that a loop moves", "BK-3", "block", one_key(
        Requested((0,) * 3, ITEMS), Requested((0,) * 3, (*ITEMS[:2], ("w", 2, 1))), 3),
         (("            item += 1\n        return keys\n",
           "            item += 1\n            self._item += 1\n        return keys\n"),
          (NAMING, NAMING.replace("item < len(items)", "self._item < 2 and item < len(items)")))),
    Case("a loop that stops", "BK-3", "block", one_key(
        Requested((0, 0), (("x", 0, 1), ("y", 1, 1))),
         Requested((0, 0), (("x", 0, 1), ("z", 1, 1)))),
         (("            item += 1\n        return keys\n",
           "            item += 1\n            break\n        return keys\n"),)),
    Case("items that are passed too far", "BK-3", "block", one_key(
        Requested((0, 0), (("x", 0, 1),)), PLAIN),
         ((PASSING, PASSING.replace("<= start", "<= end")),)),
    Case("an item of the round before", "BK-3", "block", one_key(
        Requested((0, 0), (("x", 0, 1), ("y", 1, 1))),
         Requested((0, 0), (("x", 0, 1), ("z", 1, 1)))),
         ((NAMING, "        seen = False\n" + NAMING),
          ("            item += 1\n        return keys\n",
           "            item += 1\n            seen = True\n        return keys\n"),
          ("                keys.append(", "                seen or keys.append("))),
    Case("a function of another module by a known name", "BK-3", "block", one_key(
        Requested((0, 0), (("x", 0, 1),)), PLAIN),
         (("TokenRequest, end_of\n", "TokenRequest\n"),),
         head="def end_of(feature: Any) -> int:\n    return 0\n\n\n"),
)  # fmt: skip


HARMLESS = (
    Case("a variable for a value", "MH-3", "content", never,
         ((FLOAT,
           "bits = struct.pack(\">d\", value)\n            return Node(ord(\"D\"), bits)"),)),
    Case("a branch by kind", "MH-3", "content", never,
         ((BYTES, "if isinstance(value, bytes):\n                return Node(ord(\"X\"), value)\n"
           "            return Node(ord(\"X\"), bytes(value))"),)),
    Case("a parameter by name", "MH-3", "content", never,
         (("            return _text(value)\n", "            return _text(text=value)\n"),)),
    Case("a loop for a generator", "MH-3", "stream", never,
         ((CHILDREN, "        for child in body:\n            below = chunks(child)\n"
                     "            yield from below\n"),)),
    Case("what is yielded in two parts", "MH-3", "stream", never,
         (("    yield bytes((tag,)) + _size(body)",
           "    yield bytes((tag,))\n    yield _size(body)"),)),
    Case("digits in another order", "MH-3", "content", never,
         ((INT, INT.replace("big", "little")),)),
    Case("a comparison that forks", "MH-3", "content", never,
         ((INT, INT + " if value > 0 else " + INT.removeprefix("return ")),)),
    Case("a text that is joined", "MH-3", "content", never,
         ((TEXT, "    raw = text.encode(\"utf-8\", \"surrogatepass\")\n"
           "    return Node(ord(\"S\"), b\"\" + raw)"),)),
    Case("a place that is worked out", "MH-1", "stream", never,
         (("    body_start = start + 1 + LENGTH_BYTES\n",
           "    head = 1 + LENGTH_BYTES\n    body_start = head + start\n"),)),
    Case("a key in another order", "ID-1", "identifier", never,
         ((ADAPTER, ADAPTER.replace("{len(adapter or '')}:{adapter or ''}:{key}",
                                    "{len(adapter or '')}/{adapter or ''}{key}")),)),
    Case("a constant between", "ID-1", "identifier", never,
         ((ADAPTER, ADAPTER.replace(":{key}", ":key:{key}")),)),
    Case("a variable for the tokens", "BK-2", "block", never,
         ((TOKENS, "full = tuple(tokens[start:end])\n            "
           "parent = caching_hash_fn((parent, full, extra))"),)),
    Case("parts of a key in another order", "BK-2", "block", never,
         ((TOKENS, TOKENS.replace("parent, tuple(tokens[start:end]), extra",
                                  "extra, parent, tuple(tokens[start:end])")),)),
    Case("another tag", "BK-1", "block", never,
         (('("cache_salt", salt) if', '("salt", salt) if'),)),
    Case("a bound that is worked out", "BK-3", "block", never,
         ((NAMING, "        count = len(items)\n" + NAMING.replace("len(items)", "count")),)),
)  # fmt: skip
"""Nothing is confused, and nothing leaves the language."""


def one_item_key(texts: dict[str, str], *offsets: int) -> bool:
    """An item at either place, from the start of a block on, has one key."""
    block = BlockTexts(texts["block"], IDEAL)
    one, other = (block.item_key("x", 2 + offset, 2) for offset in offsets)
    return bool(one == other)


def hasher_keeps(texts: dict[str, str]) -> bool:
    """Two blocks of one request, by one hasher."""
    block = BlockTexts(texts["block"], IDEAL)
    one, other = (block.keys(Requested((0,) * 4, ((name, 2, 1),)), 2)[-1] for name in ("x", "y"))
    return one == other


CASES = (*MEDIA, *IDENTIFIERS, *BLOCKS)


@pytest.fixture(scope="module")
def of_reference() -> dict[str, Claim]:
    return {one.contract: one for one in claims() if one.target == "reference"}


def asked(of_reference: dict[str, Claim], case: Case) -> tuple[Outcome, str]:
    texts = case.texts
    media = Texts(texts["content"], texts["stream"])
    of = {"MH-1": media, "MH-3": media, "ID-1": texts["identifier"]}
    return of_reference[case.contract].asked(of.get(case.contract, texts["block"]))


def breaks(case: Case, texts: dict[str, str]) -> bool:
    try:
        return case.breaks(texts)
    except (TypeError, ValueError):  # what the reference refuses is no key
        return False


@pytest.mark.sample(4)
@pytest.mark.parametrize("case", CASES, ids=lambda one: one.name)
def test_python_breaks_it_and_not_the_reference(case: Case) -> None:
    assert case.breaks(case.texts)
    assert not breaks(case, TEXTS)


@pytest.mark.sample(4)
@pytest.mark.parametrize("case", CASES, ids=lambda one: one.name)
def test_it_is_refuted_or_refused_with_its_place(
    of_reference: dict[str, Claim], case: Case
) -> None:
    outcome, note = asked(of_reference, case)
    assert outcome is not Outcome.HOLDS
    if outcome is Outcome.UNKNOWN:
        assert PLACE.match(note), note


@pytest.mark.sample(4)
@pytest.mark.parametrize("case", HARMLESS, ids=lambda one: one.name)
def test_what_confuses_nothing_within_the_language_holds(
    of_reference: dict[str, Claim], case: Case
) -> None:
    assert asked(of_reference, case) == (Outcome.HOLDS, "")
