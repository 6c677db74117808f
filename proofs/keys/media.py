"""The media hash of the reference: what each kind of value is fed to the digest as.

The functions of `media_content` and `media_stream` are run on one symbolic value of each kind. The
kinds and what tells their values apart are stated in `media_values`, the layouts come from the
text.
"""

import ast
from collections import abc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from cacheproof.proofs.keys import key_modules, paths
from cacheproof.proofs.keys.ambiguity import Layout
from cacheproof.proofs.keys.media_values import (
    TORCH,
    Constructed,
    EncodedNode,
    Entries,
    Mapping,
    Open,
    dumps,
    image_id,
    in_order,
    is_numpys,
    is_of,
    kinds,
    pack,
    refused_kinds,
)
from cacheproof.proofs.keys.symbolic import (
    Data,
    Laid,
    Nested,
    Piece,
    Repeated,
    Symbol,
    SymbolicText,
    collect,
    content_of,
)
from cacheproof.proofs.keys.texts import run_text, symbolic_type, text_of
from cacheproof.reference import media_content, media_stream


@dataclass(frozen=True)
class Texts:
    """The texts of which the layouts are made."""

    content: str = field(default_factory=lambda: text_of(media_content))
    stream: str = field(default_factory=lambda: text_of(media_stream))


class Encoding:
    """The encoding that the texts define."""

    def __init__(self, texts: Texts) -> None:
        stream = run_text(texts.stream, key_modules.MEDIA_STREAM)
        self._chunks = stream["chunks"]
        self._tags = stream["LEAVES"], stream["LISTS"]
        self._written: dict[tuple[int, bool], None] = {}
        stream["chunks"] = self._chunks_of
        content = run_text(
            texts.content,
            key_modules.MEDIA_CONTENT,
            Node=stream["Node"],
            Mapping=symbolic_type(abc.Mapping),
            encode=EncodedNode,
            sorted=in_order,
            is_numpys=is_numpys,
            is_of=is_of,
            image_id=image_id,
            struct=SimpleNamespace(pack=pack),
            json=SimpleNamespace(dumps=dumps),
            sys=SimpleNamespace(modules={"torch": TORCH}),
            **{f"{key_modules.HELPER}entries": Entries},
        )
        self._refused = content["Refused"]
        self._wrapper = content[key_modules.WRAPPER]
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

        def run() -> tuple[object, object]:
            media = Open("media")
            wrapper = type(self._wrapper, (Symbol,), {"media": media})()
            return self._content(wrapper), media

        return all(path.result[0] is path.result[1] for path in paths.paths(run))

    def mistaken(self) -> list[str]:
        """Tags that are written of leaves and do not say that they are, or of lists."""
        self.layouts()
        leaves, lists = self._tags
        return [
            f"tag {chr(tag)} of a {'list' if is_list else 'leaf'}"
            for tag, is_list in self._written
            if tag not in (lists if is_list else leaves)
        ]

    def taken(self) -> list[str]:
        """Kinds without a content of their own that are encoded all the same."""
        return [kind for kind, make in refused_kinds().items() if self._takes(make)]

    def _takes(self, make: Callable[[], object]) -> bool:
        def run() -> None:
            try:
                self._content(make())
            except self._refused:
                raise paths.PathEnded from None

        return bool(paths.paths(run))

    def _layouts(
        self, kind: str, make: Callable[[], Constructed], tree: Callable[[object], object]
    ) -> Iterator[Layout]:
        def run() -> tuple[Constructed, tuple[Piece, ...]]:
            made = make()
            return made, pieces(collect(self._chunks_of(tree(made[2]))))

        for path in paths.paths(run):
            (constructor, terms, _), written = path.result
            yield Layout(kind, constructor, terms, written, path.conditions)

    def _content_of(self, value: object) -> object:
        return value if isinstance(value, Open) else self._content(value)

    def _chunks_of(self, node: Any) -> Iterator[object]:
        match node:
            case Open():
                yield Nested(node.value)
            case _:
                if isinstance(node.tag, int):
                    self._written[node.tag, isinstance(node.body, tuple | Laid)] = None
                yield from self._chunks(node)


def pieces(written: Iterable[Any]) -> tuple[Piece, ...]:
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
    arguments = Mapping(SymbolicText(content_of("name")))
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
