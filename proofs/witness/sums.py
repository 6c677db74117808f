"""CPython's word on the lemmas of sums: every map of a few entries, its shares added up by Python.

A claim is read as it stands, by its operations; z3's solver takes no part. So a lemma that is asked
of the solver in a way that makes it trivial is seen here.
"""

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import z3

from cacheproof.spec.evidence import RedTwin, Witness

KEYS = range(2)
ENTRIES_MAX = 3
# a negative one too: without the assumption that there is none a lemma must fail
SHARES = (-1, 0, 1)
_OPERATIONS: Mapping[int, Callable[..., object]] = {
    z3.Z3_OP_ADD: lambda *of: sum(of),
    z3.Z3_OP_AND: lambda *of: all(of),
    z3.Z3_OP_DISTINCT: operator.ne,
    z3.Z3_OP_EQ: operator.eq,
    z3.Z3_OP_GE: operator.ge,
    z3.Z3_OP_IMPLIES: lambda one, other: other or not one,
    z3.Z3_OP_ITE: lambda condition, one, other: one if condition else other,
    z3.Z3_OP_LE: operator.le,
    z3.Z3_OP_LT: operator.lt,
    z3.Z3_OP_NOT: operator.not_,
    z3.Z3_OP_OR: lambda *of: any(of),
    z3.Z3_OP_SUB: operator.sub,
}


@dataclass(frozen=True)
class SumEntries:
    """A finite map: its keys in order, what each key adds to each sum, and the key `spoken_of` by a
    lemma, which may be none of them. An order that has a key twice is no map: lemmas for which that
    matters say that they rest on there being none."""

    keys: tuple[int, ...]
    shares: Mapping[str, tuple[int, ...]]
    spoken_of: int


Meaning = Callable[[SumEntries, int], Any]
"""What a term is of the first n entries."""


def meaning(term: z3.ExprRef) -> Meaning:
    """A claim, or a term of it, as Python reads it.

    Raises:
        KeyError: it has an operation, or a name, without a meaning here.
    """
    if z3.is_int_value(term):
        number = term.as_long()
        return lambda _entries, _n: number
    parts = [meaning(one) for one in term.children()]
    if term.decl().kind() != z3.Z3_OP_UNINTERPRETED:
        operation = _OPERATIONS[term.decl().kind()]
        return lambda entries, n: operation(*(part(entries, n) for part in parts))
    name, _, of = term.decl().name().partition("_")
    match name, parts:
        case "n", []:
            return lambda _entries, n: n
        case "k", []:
            return lambda entries, _n: entries.spoken_of
        case "key", [place]:
            return lambda entries, n: entries.keys[place(entries, n)]
        case "among", [count]:
            return lambda entries, n: entries.spoken_of in entries.keys[: count(entries, n)]
        case "share", [key]:
            return lambda entries, n: entries.shares[of][key(entries, n)]
        case "sum", [count]:
            return lambda entries, n: sum(
                entries.shares[of][one] for one in entries.keys[: count(entries, n)]
            )
    raise KeyError(term.decl().name())


def exploration(claimed: z3.BoolRef, rests: Mapping[str, z3.BoolRef]) -> Witness:
    """What Python says of a lemma about every map of the scope: a claim about the first n entries,
    and what it `rests` on at each of them. Without each of these it must fail of a map."""
    claim, rests_on = meaning(claimed), [*map(meaning, rests.values())]
    told = [
        (one, _keeps(one, claim), [_always(one, rest) for rest in rests_on])
        for one in _scope([claimed, *rests.values()])
    ]
    assumed = [(one, is_kept) for one, is_kept, true in told if all(true)]
    noticed = [
        any(not is_kept and all(true[:place] + true[place + 1 :]) for _, is_kept, true in told)
        for place in range(len(rests_on))
    ]
    return Witness(
        "exploration",
        f"{len(assumed):,} maps, {sum(noticed)} of {len(noticed)} changes noticed",
        next((str(one) for one, is_kept in assumed if not is_kept), ""),
        RedTwin(f"without: {', '.join(rests)}", refuted=all(noticed)),
        vacuous="" if any(one.keys for one, _ in assumed) else "no entry is as the lemma assumes",
    )


def _keeps(entries: SumEntries, claim: Meaning) -> bool:
    return bool(claim(entries, len(entries.keys)))


def _always(entries: SumEntries, rest: Meaning) -> bool:
    return all(rest(entries, n) for n in range(len(entries.keys)))


def _scope(terms: Sequence[z3.ExprRef]) -> Iterator[SumEntries]:
    """Every order of up to three of two keys, with every share of those sums that terms name."""
    names = sorted(set().union(*map(_shares_in, terms)))
    tables = list(itertools.product(SHARES, repeat=len(KEYS)))
    for count in range(ENTRIES_MAX + 1):
        for keys in itertools.product(KEYS, repeat=count):
            for chosen in itertools.product(tables, repeat=len(names)):
                for spoken_of in KEYS:
                    yield SumEntries(keys, dict(zip(names, chosen, strict=True)), spoken_of)


def _shares_in(term: z3.ExprRef) -> set[str]:
    found = set[str]().union(*map(_shares_in, term.children()))
    name, _, of = term.decl().name().partition("_")
    return found | {of} if name in ("share", "sum") else found
