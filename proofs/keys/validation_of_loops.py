"""Loops that are cut at an invariant are held against Python: decoding, hashing on, naming items.

Of each run the numbers that Python had are put in place of the symbols. A path of the proof must
admit them, and come to what Python came to. Paths from any round of a loop admit more than one run.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, TypeVar

import z3

from cacheproof.proofs.keys import block_chain, block_items, decoding, key_modules, scopes
from cacheproof.proofs.keys.ambiguity import BYTE, VALUE_END, constants
from cacheproof.proofs.keys.block_chain import HASHED, LENGTH, LOOKAHEAD, SIZE
from cacheproof.proofs.keys.concrete import ConcreteValues, evaluated
from cacheproof.proofs.keys.hashed_values import value_of
from cacheproof.proofs.keys.loops import LoopClaims
from cacheproof.proofs.keys.media import Texts
from cacheproof.proofs.keys.paths import Path, all_paths, ended, satisfiable
from cacheproof.proofs.keys.running import BlockTexts, MediaNode, MediaTexts, Requested, ideal_hash
from cacheproof.proofs.keys.symbolic import CONTENT, Number, Symbol, SymbolicText, size
from cacheproof.proofs.keys.symbolic import number as term_of
from cacheproof.proofs.keys.texts import run_round_by_round
from cacheproof.proofs.keys.validation import Validated, of_extra
from cacheproof.reference.semantics.block_keys import BlockKeySemantics

T = TypeVar("T")
Numbers = Sequence[tuple[z3.ArithRef, int]]
"""What symbols are in a run."""


@dataclass(frozen=True)
class LoopRun:
    """One run of Python.

    Attributes:
        shown: what it ran on, in words.
        group: the group of paths that may admit it.
        fixed: what is known of the symbols of these conditions.
        came: what must hold of a path's result.
    """

    shown: str
    group: str
    fixed: Callable[[Sequence[z3.BoolRef]], list[z3.BoolRef]]
    came: Callable[[Any], z3.BoolRef]


def _validated(
    groups: Mapping[str, list[Path[T]]], runs: Iterable[LoopRun], what: str
) -> Validated:
    met: set[tuple[str, int]] = set()
    count, against = 0, ""
    for run in runs:
        count += 1
        is_admitted = False
        for number, path in enumerate(groups[run.group]):
            if (run.group, number) in met and (ended(path) or is_admitted):
                continue
            known = [*path.conditions, *run.fixed(path.conditions)]
            came = [] if ended(path) else [run.came(path.result)]
            if satisfiable([*known, *came]) is not None:
                met.add((run.group, number))
                is_admitted = is_admitted or not ended(path)
        if not is_admitted and not against:
            against = f"{run.shown}, which no path of the proof admits as Python ran it"
    paths = [(group, number) for group, one in groups.items() for number in range(len(one))]
    unmet = [f"{group}, path {number}" for group, number in paths if (group, number) not in met]
    return Validated(f"{count:,} {what} on {len(paths)} paths", against, ", ".join(unmet))


# decoding


def of_decoder(texts: Texts, of_python: Texts | None = None) -> Validated:
    """MH-1: leaves of every tag and lists of every tag, of up to two bytes and children."""
    media = MediaTexts(of_python or texts)
    claims = LoopClaims()
    groups = {
        "a list" if is_list else "a leaf": decoding.decoding_paths(
            texts.stream, claims, is_list=is_list
        )
        for is_list in (False, True)
    }
    return _validated(groups, _decodings(media), "nodes")


def _decodings(media: MediaTexts) -> Iterator[LoopRun]:
    leaves = [media.node(tag, raw) for tag in sorted(media.leaves) for raw in (b"", b"a", b"bc")]
    inner = leaves[:2]
    lists = [
        media.node(tag, children)
        for tag in sorted(media.lists)
        for count in range(3)
        for children in itertools.product(inner, repeat=count)
    ]
    for node in (*leaves, *lists):
        stream = b"\0" + media.stream(node) + b"N"
        decoded = media.decoded_within(stream, 1)
        if isinstance(decoded, str):
            raise ValueError(f"{node}: {decoded}")
        found, end = decoded
        is_list = isinstance(node.body, tuple)
        ends = [1 + 9]
        for child in node.body if is_list else ():
            ends.append(ends[-1] + len(media.stream(child)))
        body = (len(found.body),) if is_list else (end - len(found.body), end)
        yield LoopRun(
            str(node),
            "a list" if is_list else "a leaf",
            partial(_stream, stream, node, ends),
            partial(_equal, (found.tag, end, *body)),
        )


def _stream(
    stream: bytes, node: MediaNode, ends: Sequence[int], conditions: Sequence[z3.BoolRef]
) -> list[z3.BoolRef]:
    """The bytes of the stream, and where the node and its children lie."""
    known = [decoding.START == 1, z3.IntVal(len(stream)) == decoding.LENGTH]
    known.append(z3.IntVal(node.tag) == decoding.TAG)
    known += [BYTE(z3.IntVal(place)) == byte for place, byte in enumerate(stream)]
    known += [decoding.PLACE(z3.IntVal(number)) == place for number, place in enumerate(ends)]
    known += [VALUE_END(z3.IntVal(one)) == other for one, other in itertools.pairwise(ends)]
    for one in {one.get_id(): one for term in conditions for one in constants(term)}.values():
        name = one.decl().name()
        if name.startswith("count!"):
            known.append(one == len(node.body))
        elif name.startswith("body!"):
            known.append(size("bytes")(one) == len(node.body))
    return known


def _equal(wanted: Sequence[int], result: Sequence[z3.ArithRef]) -> z3.BoolRef:
    return z3.And([one == other for one, other in zip(result, wanted, strict=True)])


# hashing on


@cache
def of_chain(
    text: str, of_python: str | None = None, semantics: BlockKeySemantics | None = None
) -> Validated:
    """BK-2 and BK-3: how many keys are added, and what each is the hash of."""
    semantics = semantics or BlockKeySemantics()
    blocks = BlockTexts(of_python or text, semantics)
    chain = block_chain.chain(text, 0, semantics)
    groups = {
        (
            f"{'keys with' if ahead else 'keys without'} look-ahead, "
            f"{'hashed on' if grown else 'hashed afresh'}"
        ): paths
        for (ahead, grown), paths in chain.paths.items()
    }
    names = dict(zip(chain.paths, groups, strict=True))
    found = _validated(groups, _hashings(blocks, names), "hashings")
    impossible = [
        f"{name}, {'with' if ahead else 'without'} look-ahead"
        for ahead, covered in chain.covered.items()
        for name in block_chain.impossible_steps(covered, ahead=ahead)
    ]
    found = replace(found, vacuous=", ".join(filter(None, [found.vacuous, *impossible])))
    return found if found.against else _covering(found, chain, blocks)


def _hashings(blocks: BlockTexts, names: dict[tuple[bool, bool], str]) -> Iterator[LoopRun]:
    for length, (block, ahead) in itertools.product(range(5), scopes.SIZES):
        requested = Requested((0,) * length)
        fresh = blocks.keys(requested, block, ahead)
        for known in range(len(fresh) + 1):
            added = blocks.keys(requested, block, ahead, fresh[:known])
            numbers = ((SIZE, block), (LOOKAHEAD, ahead), (LENGTH, length), (HASHED, known))
            yield LoopRun(
                f"{length} tokens in blocks of {block} behind {known} keys",
                names[ahead > 0, known > 0],
                partial(_numbers, numbers),
                partial(_comes_to, len(added)),
            )


def _numbers(numbers: Numbers, _: Sequence[z3.BoolRef]) -> list[z3.BoolRef]:
    return [symbol == number for symbol, number in numbers]


def _comes_to(count: int, result: z3.ExprRef) -> z3.BoolRef:
    return result == count


def _covering(found: Validated, chain: block_chain.Chain, blocks: BlockTexts) -> Validated:
    """What keys are hashes of, by the proof and by Python."""
    count = 0
    for requested, (block, ahead) in itertools.product(scopes.laden(), scopes.SIZES):
        hashed: list[object] = []

        def hash_of(value: object, hashed: list[object] = hashed) -> bytes:
            hashed.append(value)
            return ideal_hash(value)

        blocks.keys(requested, block, ahead, hash_of=hash_of)
        seed, *of_blocks = hashed
        tokens = requested.tokens
        extras = blocks.extras(requested, block, ahead)
        for number, value in enumerate(of_blocks):
            parent = ideal_hash(of_blocks[number - 1] if number else seed)
            functions: dict[str, Callable[..., object]] = {
                "parent": lambda _, parent=parent: parent,
                "tokens": lambda one, other, tokens=tokens: tokens[one:other],
                "extra": lambda one, other, extras=extras: extras.get((one, other)),
            }
            symbols = {"size": block, "lookahead": ahead, "block": number}
            says = evaluated(chain.covered[ahead > 0], ConcreteValues(symbols, functions))
            count += 1
            if says != value:
                against = f"{value}, which is hashed for block {number}; the proof has {says}"
                return Validated(found.reach, against, found.vacuous)
    return Validated(f"{found.reach}, {count:,} keys", "", found.vacuous)


# items


@cache
def of_items(semantics: BlockKeySemantics, text: str, of_python: str | None = None) -> Validated:
    """BK-3: which items a block names."""
    blocks = BlockTexts(of_python or text, semantics)
    claims = LoopClaims()
    groups = {
        "items of a later block" if later else "items of the first block hashed": (
            block_items.naming_paths(semantics, text, claims, later=later)
        )
        for later in (False, True)
    }
    first, later = groups
    found = _validated(groups, _namings(blocks, first, later), "namings")
    return found if found.against else _round_by_round(found, semantics, text, blocks)


def of_growth(semantics: BlockKeySemantics, text: str, of_python: str | None = None) -> Validated:
    """BK-3: hashing on, and the items of a block."""
    found = of_chain(text, of_python, semantics)
    if found.against:
        return found
    items = of_items(semantics, text, of_python)
    vacuous = ", ".join(filter(None, (found.vacuous, items.vacuous)))
    return Validated(f"{found.reach}; {items.reach}", items.against, vacuous)


def of_blocks(text: str, of_python: str | None = None) -> Validated:
    """BK-1 and BK-2: what a key covers, extra keys, and the items among them."""
    ideal = BlockKeySemantics()
    found = of_extra(text, of_python)
    if found.against:
        return found
    growth = of_growth(ideal, text, of_python)
    vacuous = ", ".join(filter(None, (found.vacuous, growth.vacuous)))
    return Validated(f"{found.reach}; {growth.reach}", growth.against, vacuous)


def _round_by_round(
    found: Validated, semantics: BlockKeySemantics, text: str, blocks: BlockTexts
) -> Validated:
    """The very keys, by the text that is read, its loops run round by round on numbers."""
    count = 0
    for items, (block, _), known in itertools.product(scopes.ITEMS, scopes.SIZES[:3], (0, 1)):
        requested = Requested((0,) * 4, items)
        spans = [(start, start + block) for start in range(known * block, 4, block)]
        wanted = blocks.named(requested, spans, known)
        says = _named_by_reader(semantics, text, items, spans, known)
        count += 1
        if says != wanted:
            against = f"{wanted} of {requested} behind {known} keys; the proof has {says}"
            return Validated(found.reach, against, found.vacuous)
    return Validated(f"{found.reach}, {count:,} lists of keys", "", found.vacuous)


def _named_by_reader(
    semantics: BlockKeySemantics,
    text: str,
    items: Sequence[tuple[str, int, int]],
    spans: Sequence[tuple[int, int]],
    known: int,
) -> list[list[object]]:
    names = run_round_by_round(text, key_modules.BLOCK_HASH)
    features = _Listed(items)
    request = SimpleNamespace(mm_features=features, lora_request=None, block_hashes=(b"",) * known)

    def run() -> list[list[object]]:
        keys = names["_ExtraKeys"](request, semantics)
        return [list(keys._of_items(*map(_whole, span))) for span in spans]

    (path,) = all_paths(run)
    values = ConcreteValues({f"item {number}": name for number, (name, _, _) in enumerate(items)})
    return [[evaluated(value_of(key), values) for key in found] for found in path.result]


def _whole(number: int) -> Number:
    return Number(z3.IntVal(number))


class _Listed(Symbol):
    """Items whose numbers are known, asked by number."""

    types = frozenset({"list"})

    def __init__(self, items: Sequence[tuple[str, int, int]]) -> None:
        self._items = items
        self.count = z3.IntVal(len(items))

    def __bool__(self) -> bool:
        return bool(self._items)

    def __getitem__(self, place: int | Number) -> SimpleNamespace:
        at = int(str(z3.simplify(z3.IntVal(0) + term_of(place))))
        _, offset, length = self._items[at]
        name = SymbolicText(z3.Const(f"item {at}", CONTENT))
        position = SimpleNamespace(offset=_whole(offset), length=_whole(length))
        return SimpleNamespace(identifier=name, mm_position=position)


def _namings(blocks: BlockTexts, first: str, later: str) -> Iterator[LoopRun]:
    for items in (*scopes.ITEMS[1:9:3], *scopes.ITEMS[-6:]):
        requested = Requested((0,) * 4, items)
        for known, block in itertools.product((0, 1), (1, 2)):
            spans = [(start, start + block) for start in range(known * block, 4, block)][:2]
            found = blocks.named(requested, spans, known)
            for number, (start, end) in enumerate(spans):
                wanted = [blocks.item_key(name, at, start) for name, at, _ in items]
                for item, key in enumerate(wanted):
                    numbers = (
                        (block_items.BLOCK_START, start),
                        (block_items.BLOCK_END, end),
                        (block_items.HASHES, known),
                        (block_items.COUNT, len(items)),
                        (block_items.ANY, item),
                    )
                    yield LoopRun(
                        f"item {item} of {items} in tokens [{start}, {end})",
                        later if number else first,
                        partial(_places, items, numbers),
                        partial(_is_named, key in found[number]),
                    )


def _places(
    items: Sequence[tuple[str, int, int]], numbers: Numbers, _: Sequence[z3.BoolRef]
) -> list[z3.BoolRef]:
    known = [symbol == number for symbol, number in numbers]
    for number, (_name, offset, length) in enumerate(items):
        known.append(block_items.OFFSET(z3.IntVal(number)) == offset)
        known.append(block_items.END(z3.IntVal(number)) == offset + length)
    return known


def _is_named(named: bool, result: z3.ExprRef) -> z3.BoolRef:
    return result if named else z3.Not(result)
