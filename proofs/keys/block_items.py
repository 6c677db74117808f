"""Which media items a block's key names: those that reach into the block, wherever hashing began.

The two loops over a request's items are cut at invariants; what they collect is followed for one
item, of which nothing is known but that there is such.
"""

from functools import partial
from types import SimpleNamespace

import z3

from cacheproof.proofs.keys import key_modules, paths
from cacheproof.proofs.keys.loops import HELPER, LoopClaims, Loops
from cacheproof.proofs.keys.symbolic import CONTENT, Number, Symbol, SymbolicText
from cacheproof.proofs.keys.symbolic import number as term_of
from cacheproof.proofs.keys.texts import run_text, text_of
from cacheproof.reference import block_hash
from cacheproof.reference.semantics.block_keys import BlockKeySemantics

INT = z3.IntSort()
OFFSET, END = z3.Function("offset of item", INT, INT), z3.Function("end of item", INT, INT)
NAME = z3.Function("name of item", INT, CONTENT)
COUNT, ANY = z3.Ints("items item")
"""How many items there are, and the number of any one of them."""
BLOCK_START, BLOCK_END, HASHES = z3.Ints("start end hashes")


class Items(Symbol):
    """A request's items: in order, each with a token at least, none over another."""

    types = frozenset({"list"})
    count = COUNT

    def __init__(self, claims: LoopClaims) -> None:
        self._claims = claims

    def __bool__(self) -> bool:
        return paths.holds(COUNT > 0)

    def __getitem__(self, place: int | Number) -> SimpleNamespace:
        number = z3.IntVal(0) + term_of(place)
        self._claims.claim("an item is asked for that there is", number >= 0)
        self._claims.claim("an item is asked for that there is", number < COUNT)
        paths.assume(
            OFFSET(number) >= 0,
            OFFSET(number) < END(number),
            z3.Implies(number < ANY, END(number) <= OFFSET(ANY)),
            z3.Implies(number > ANY, END(ANY) <= OFFSET(number)),
        )
        offset, end = OFFSET(number), END(number)
        position = SimpleNamespace(offset=Number(offset), length=Number(end - offset))
        return SimpleNamespace(identifier=SymbolicText(NAME(number)), mm_position=position)


class CollectedKeys(Symbol):
    """The keys collected so far: whether that of any item is among them, and the last one's."""

    def __init__(self, claims: LoopClaims, has: z3.BoolRef, last: z3.ArithRef) -> None:
        self._claims = claims
        self.has, self.last = has, last

    def append(self, key: object) -> None:
        (number,) = _named_by(key)
        self._claims.claim("items are named in order, each once", number > self.last)
        self.has, self.last = z3.Or(self.has, number == ANY), number


def _named_by(key: object) -> list[z3.ArithRef]:
    parts = key if isinstance(key, tuple) else (key,)
    return [part.of.arg(0) for part in parts if isinstance(part, SymbolicText)]


class _Passing:
    """The first loop: every item before `item` ends before the block."""

    def __init__(self, claims: LoopClaims, start: Number) -> None:
        self._claims, self._start = claims, start

    def entered(self, item: int | Number) -> tuple[Number]:
        self.repeated(item)
        item = Number(z3.Int("passing"))
        paths.assume(self._holds(item))
        return (item,)

    def repeated(self, item: int | Number) -> None:
        self._claims.claim("no item is passed that reaches into the block", self._holds(item))

    def _holds(self, item: int | Number) -> z3.BoolRef:
        place = item.term if isinstance(item, Number) else item
        return z3.And(place >= 0, place <= COUNT, passed(place, self._start.term))


class _Naming:
    """The second loop: of the items before `item` those that reach into the block are named."""

    def __init__(self, claims: LoopClaims, start: Number, end: Number) -> None:
        self._claims, self._start, self._end = claims, start, end

    def entered(
        self, item: int | Number, keys: list[object] | CollectedKeys
    ) -> tuple[Number, CollectedKeys]:
        if isinstance(keys, list):
            keys = CollectedKeys(self._claims, z3.BoolVal(False), z3.IntVal(-1))
        self.repeated(item, keys)
        item = Number(z3.Int("naming"))
        keys = CollectedKeys(self._claims, z3.Bool("named"), z3.Int("last named"))
        paths.assume(self._holds(item, keys))
        return item, keys

    def repeated(self, item: int | Number, keys: CollectedKeys) -> None:
        self._claims.claim("items of the block are named, and no others", self._holds(item, keys))

    def _holds(self, item: int | Number, keys: CollectedKeys) -> z3.BoolRef:
        place = item.term if isinstance(item, Number) else item
        inside = reaches(self._start.term, self._end.term)
        return z3.And(place >= 0, keys.last < place, keys.has == z3.And(place > ANY, inside))


def reaches(start: z3.ArithRef, end: z3.ArithRef) -> z3.BoolRef:
    """Whether any item has a token in [start, end)."""
    return z3.And(OFFSET(ANY) < end, END(ANY) > start)


def passed(item: z3.ArithRef | int, start: z3.ArithRef) -> z3.BoolRef:
    """Whether any item is not before `item`, or ends before the block."""
    return z3.Implies(item > ANY, END(ANY) <= start)


def failures(semantics: BlockKeySemantics, text: str | None = None, seed: int = 0) -> list[str]:
    """What fails of: a block's key names the items in it; and an item of which it does.

    The first block that is hashed, of a request with keys or without, and any block after it.
    """
    claims = LoopClaims(seed)
    for later in (False, True):
        naming_paths(semantics, text, claims, later=later)
    shown = [] if claims.counterexample is None else [_shown(claims.counterexample)]
    return [*dict.fromkeys(claims.failed), *shown]


def naming_paths(
    semantics: BlockKeySemantics, text: str | None, claims: LoopClaims, *, later: bool
) -> list[paths.Path[z3.BoolRef]]:
    """Every way to name the items of the first block that is hashed, or of a later one. The result
    is whether any one item is named."""
    return paths.all_paths(partial(_names_items, semantics, text, claims, later))


def _shown(model: z3.ModelRef) -> str:
    """The item on which a claim fails, the block and how many keys were there before."""
    terms = (ANY, COUNT, OFFSET(ANY), END(ANY), BLOCK_START, BLOCK_END, HASHES)
    item, count, offset, after, start, end, keys = (
        model.eval(term, model_completion=True) for term in terms
    )
    return (
        f"such as item {item} of {count} at [{offset}, {after}) "
        f"and tokens [{start}, {end}), keys before it: {keys}"
    )


def _names_items(
    semantics: BlockKeySemantics, text: str | None, claims: LoopClaims, later: bool
) -> z3.BoolRef:
    start, end = Number(BLOCK_START), Number(BLOCK_END)
    passing, naming = _Passing(claims, start), _Naming(claims, start, end)
    names = run_text(
        text_of(block_hash) if text is None else text,
        key_modules.BLOCK_HASH,
        **{HELPER: Loops({"_of_items 1": passing, "_of_items 2": naming})},
    )
    paths.assume(start.term >= 0, start.term < end.term, ANY >= 0, ANY < COUNT)
    paths.assume(OFFSET(ANY) >= 0, OFFSET(ANY) < END(ANY))
    hashes = HASHES
    if not later:
        paths.assume(z3.If(hashes <= 0, start.term == 0, start.term >= hashes))
    request = SimpleNamespace(
        mm_features=Items(claims), lora_request=None, block_hashes=_Hashes(hashes)
    )
    keys = names["_ExtraKeys"](request, semantics)
    if later:
        keys._item, keys._starts_late = Number(z3.Int("kept")), False
        before = z3.Int("start before")
        paths.assume(before <= start.term, keys._item.term >= 0, keys._item.term <= COUNT)
        paths.assume(passed(keys._item.term, before))
    found = keys._of_items(start, end)
    claims.claim("a block names the items in it", found.has == reaches(start.term, end.term))
    kept = keys._item.term if isinstance(keys._item, Number) else z3.IntVal(keys._item)
    claims.claim("what is passed stays behind", z3.And(kept >= 0, kept <= COUNT))
    claims.claim("what is passed stays behind", passed(kept, start.term))
    return found.has


class _Hashes(Symbol):
    """The keys that a request has; here it only matters whether there are any."""

    types = frozenset({"list"})

    def __init__(self, count: z3.ArithRef) -> None:
        self.count = count

    def __bool__(self) -> bool:
        return paths.holds(self.count > 0)
