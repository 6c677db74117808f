"""Block keys under an ideal hash: what a key covers, the chain over blocks, and growing it.

`get_request_block_hasher` is run on a request of which nothing is known, its loop cut at an
invariant. What it appends for block k, hashing from nothing, is taken for the definition of key k;
hashing on behind any number of blocks must append the same. On that definition the induction over
the chain is made.
"""

from dataclasses import dataclass
from functools import cache, partial
from types import SimpleNamespace

import z3

from cacheproof.proofs.keys import key_modules, paths
from cacheproof.proofs.keys.hashed_values import DIGEST, HASH, VALUE, Whole, hash_of, invertible
from cacheproof.proofs.keys.loops import HELPER, LoopClaims, Loops
from cacheproof.proofs.keys.paths import Unread
from cacheproof.proofs.keys.symbolic import CONTENT, Number, Symbol, SymbolicText, Truth, number
from cacheproof.proofs.keys.texts import run_text
from cacheproof.reference.semantics.block_keys import BlockKeySemantics

INT = z3.IntSort()
KEY = z3.Function("key", INT, DIGEST)
PARENT = z3.Function("parent", INT, DIGEST)
TOKENS = z3.Function("tokens", INT, INT, CONTENT)
EXTRA = z3.Function("extra", INT, INT, CONTENT)
SIZE, LOOKAHEAD, LENGTH, HASHED, BLOCK = z3.Ints("size lookahead length hashed block")
SEED = z3.Const("seed", CONTENT)
_IDEAL = BlockKeySemantics()


def _key(block: z3.ArithRef) -> Whole:
    return Whole(VALUE.digest(KEY(block)))


class Tokens(Symbol):
    """The tokens of a request; what matters of a slice is that it ends where there are tokens."""

    types = frozenset({"list"})
    count = LENGTH

    def __init__(self, claims: LoopClaims) -> None:
        self._claims = claims

    def __getitem__(self, part: slice) -> Whole:
        assert part.step is None
        start, end = number(part.start), number(part.stop)
        self._claims.claim("a key covers tokens that there are", z3.And(start >= 0, end <= LENGTH))
        return Whole(VALUE.tokens(TOKENS(start, end)))


class Keys(Symbol):
    """The keys that a request has: by hypothesis those that hashing from nothing gives."""

    types = frozenset({"list"})
    count = HASHED

    def __init__(self, claims: LoopClaims) -> None:
        self._claims = claims

    def __bool__(self) -> bool:
        return paths.holds(HASHED > 0)

    def __getitem__(self, place: int) -> Whole:
        at = HASHED + place if place < 0 else z3.IntVal(place)
        self._claims.claim("a key is asked for that there is", z3.And(at >= 0, at < HASHED))
        return _key(at)


class Appended(Symbol):
    """Keys that are to be added; `last` is the newest."""

    def __init__(self, count: z3.ArithRef) -> None:
        self.count = count
        self.last: Whole | None = None

    def append(self, key: Whole) -> None:
        self.count, self.last = self.count + 1, key


class _Blocks:
    """The loop over blocks: `parent` is that of the block, and the keys before it are added."""

    def __init__(self, claims: LoopClaims, definition: z3.ExprRef | None) -> None:
        self._claims, self._definition = claims, definition
        self.begun = False
        """Whether the loop was come to, on this path."""
        self.covered: set[z3.ExprRef] = set()
        """What the key of a block is the hash of."""

    def entered(self, hashes: list[Whole] | Keys, parent: Whole) -> tuple[Appended, Whole]:
        self.begun = True
        added = len(hashes) if isinstance(hashes, list) else hashes.count
        self._claim(HASHED, added, parent)
        paths.assume(HASHED <= BLOCK)
        return Appended(BLOCK - HASHED), Whole(VALUE.digest(PARENT(BLOCK)))

    def element(self, blocks: "BlockRange") -> tuple[Truth, Number]:
        step, first = blocks.step.term, blocks.first.term
        self._claims.claim("blocks are hashed one after the other", step == SIZE)
        self._claims.claim("hashing goes on where it ended", first == HASHED * SIZE)
        start = BLOCK * SIZE
        return Truth(start < blocks.stop.term), Number(start)

    def repeated(self, hashes: Appended, parent: Whole) -> None:
        assert hashes.last is not None
        self.covered.add(_digest(hashes.last).arg(0))
        if self._definition is None:
            paths.assume(KEY(BLOCK) == _digest(hashes.last))
        else:
            paths.assume(KEY(BLOCK) == self._definition)
        self._claims.claim(
            "the key added is that of hashing afresh", _digest(hashes.last) == KEY(BLOCK)
        )
        paths.assume(PARENT(BLOCK + 1) == KEY(BLOCK))
        self._claim(BLOCK + 1, hashes.count, parent)

    def _claim(self, block: z3.ArithRef, added: z3.ArithRef | int, parent: Whole) -> None:
        self._claims.claim(
            "each block has the key before it for parent", _digest(parent) == PARENT(block)
        )
        self._claims.claim("each block adds a key", added == block - HASHED)


@dataclass(frozen=True)
class BlockRange:
    first: Number
    stop: Number
    step: Number


@dataclass(frozen=True)
class Chain:
    """What a key covers, by whether there is look-ahead, and what failed on the way; the paths,
    by whether there is look-ahead and whether the request had keys. Their result is the number of
    keys that are added."""

    covered: dict[bool, z3.ExprRef]
    failed: list[str]
    paths: dict[tuple[bool, bool], list[paths.Path[z3.ArithRef]]]


@cache
def chain(text: str, seed: int = 0, semantics: BlockKeySemantics = _IDEAL) -> Chain:
    """Runs the hasher from nothing, then behind any number of keys.

    Keys that the request has are those that hashing from nothing gives: with the claims below that
    is an invariant of hashing on.
    """
    claims = LoopClaims(seed)
    covered: dict[bool, z3.ExprRef] = {}
    taken: dict[tuple[bool, bool], list[paths.Path[z3.ArithRef]]] = {}
    for ahead in (False, True):
        fresh = _Blocks(claims, None)
        taken[ahead, False] = paths.all_paths(
            partial(_hash, text, semantics, claims, fresh, ahead, grown=False)
        )
        (covered[ahead],) = fresh.covered
        grown = _Blocks(claims, HASH(covered[ahead]))
        taken[ahead, True] = paths.all_paths(
            partial(_hash, text, semantics, claims, grown, ahead, grown=True)
        )
        assert grown.covered
    return Chain(covered, claims.failed, taken)


def _hash(
    text: str,
    semantics: BlockKeySemantics,
    claims: LoopClaims,
    blocks: _Blocks,
    ahead: bool,
    *,
    grown: bool,
) -> z3.ArithRef:
    blocks.begun = False

    def extra_keys(of: object, under: BlockKeySemantics) -> SimpleNamespace:
        if of is not request or under is not semantics:
            raise Unread("extra keys of something else than the request")
        return SimpleNamespace(
            of=lambda start, end: Whole(VALUE.extra(EXTRA(number(start), number(end))))
        )

    names = run_text(
        text,
        key_modules.BLOCK_HASH,
        range=BlockRange,
        _ExtraKeys=extra_keys,
        **{HELPER: Loops({"hasher 1": blocks})},
    )
    paths.assume(SIZE >= 1, LENGTH >= 0, LOOKAHEAD > 0 if ahead else LOOKAHEAD == 0)
    paths.assume(HASHED > 0 if grown else HASHED == 0)
    seed = SymbolicText(SEED)
    paths.assume(PARENT(0) == _digest(hash_of(seed)))
    if grown:
        paths.assume(PARENT(HASHED) == KEY(HASHED - 1))
    request = SimpleNamespace(all_token_ids=Tokens(claims), block_hashes=Keys(claims))
    hasher = names["get_request_block_hasher"](
        Number(SIZE), hash_of, Number(LOOKAHEAD), semantics=semantics, seed=seed
    )
    added = hasher(request)
    full = z3.And((BLOCK + 1) * SIZE <= LENGTH - LOOKAHEAD)
    if isinstance(added, list):
        claims.claim("the keys that were added are returned", z3.BoolVal(not blocks.begun))
        paths.assume(BLOCK == HASHED)
    else:
        claims.claim("each block adds a key", added.count == BLOCK - HASHED)
    claims.claim("no full block is left without a key", z3.Not(full))
    return BLOCK - HASHED


def _digest(key: Whole) -> z3.ExprRef:
    """The digest that a key is."""
    return z3.simplify(VALUE.digest_of(key.value))


@dataclass(frozen=True)
class _Side:
    """One of two requests, hashed by one hasher."""

    name: str
    covered: z3.ExprRef

    def of(self, function: z3.FuncDeclRef) -> z3.FuncDeclRef:
        sorts = [function.domain(n) for n in range(function.arity())]
        return z3.Function(f"{self.name}: {function.name()}", *sorts, function.range())

    def hashed(self, block: z3.ArithRef) -> z3.ExprRef:
        """What the key of a block is the hash of."""
        theirs = [
            (one, self.of(one)(*(z3.Var(n, INT) for n in range(one.arity()))))
            for one in (PARENT, TOKENS, EXTRA)
        ]
        return z3.substitute(z3.substitute_funs(self.covered, *theirs), (BLOCK, block))

    def key(self, block: z3.ArithRef) -> z3.ExprRef:
        return self.of(KEY)(block)

    def known(self, block: z3.ArithRef) -> list[z3.BoolRef]:
        """The definition of this block's key, and of its parent's digest."""
        digest, seed = HASH(self.hashed(block)), HASH(VALUE.text(SEED))
        parent = z3.If(block == 0, seed, self.key(block - 1))
        return [
            self.key(block) == digest,
            self.of(PARENT)(block) == parent,
            *invertible(digest),
            *invertible(seed),
        ]

    def content(self, block: z3.ArithRef) -> tuple[z3.ExprRef, ...]:
        """What determines the block's KV: its tokens, those ahead, and what is beside them."""
        start, end = block * SIZE, (block + 1) * SIZE
        tokens, extra = self.of(TOKENS), self.of(EXTRA)
        return tokens(start, end), tokens(end, end + LOOKAHEAD), extra(start, end + LOOKAHEAD)


def unequal_prefixes(covered: z3.ExprRef, *, ahead: bool, seed: int = 0) -> list[str]:
    """The steps that fail of: equal keys are those of blocks of one number, which have equal
    contents, they and all before them. By induction on the block of the first request."""
    steps = _steps(covered, ahead=ahead)
    return [
        name
        for name, (assumed, claimed) in steps.items()
        if paths.satisfiable([*assumed, z3.Not(claimed)], seed) is not None
    ]


def impossible_steps(covered: z3.ExprRef, *, ahead: bool) -> list[str]:
    """The steps of which what is assumed cannot be: there what is claimed says nothing."""
    steps = _steps(covered, ahead=ahead)
    return [name for name, (assumed, _) in steps.items() if paths.satisfiable(assumed) is None]


def _steps(covered: z3.ExprRef, *, ahead: bool) -> dict[str, tuple[list[z3.BoolRef], z3.BoolRef]]:
    """What is assumed and what is claimed in each step of the induction."""
    one, other = _Side("first", covered), _Side("second", covered)
    n, m = z3.Ints("block other")
    prefix = [side.of(z3.Function("all before", INT, CONTENT)) for side in (one, other)]
    fixed = [SIZE >= 1, n >= 0, m >= 0, LOOKAHEAD > 0 if ahead else LOOKAHEAD == 0]

    def alike(block: z3.ArithRef) -> z3.BoolRef:
        contents = zip(one.content(block), other.content(m), strict=True)
        compared = contents if ahead else [pair for n, pair in enumerate(contents) if n != 1]
        return z3.And(block == m, *(mine == theirs for mine, theirs in compared))

    zero, after = z3.IntVal(0), n + 1
    base = [*one.known(zero), *other.known(m), *other.known(m - 1)]
    first = [*fixed, *base, one.key(zero) == other.key(m)], alike(zero)
    hypothesis = z3.Implies(
        z3.And(m >= 1, one.key(n) == other.key(m - 1)),
        z3.And(n == m - 1, prefix[0](n) == prefix[1](m - 1)),
    )
    step = [hypothesis, *one.known(after), *one.known(n), *other.known(m)]
    equal = one.key(after) == other.key(m)
    claimed = z3.And(alike(after), prefix[0](n) == prefix[1](m - 1))
    seed = [*fixed, *one.known(n)], one.key(n) != HASH(VALUE.text(SEED))
    return {"base": first, "step": ([*fixed, *step, equal], claimed), "the seed is no key": seed}
