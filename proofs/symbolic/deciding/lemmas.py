"""The facts of sums that proofs of managers use, proved by induction over the entries of a map.

A finite map has its keys in some order, each once. What its first n entries add up to is `sum(n)`;
an entry adds what its key's share is. Each lemma is a base (n = 0) and a step (from n to n + 1),
which z3 is asked for; and each lemma fails without one of the things that it rests on. Beside the
proof Python makes every map of a few entries, adds its shares up, and reads the claim of it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import z3

from cacheproof.proofs.witness.sums import exploration
from cacheproof.spec.evidence import Evidence, Outcome, RedTwin, digest_of, witnessed

N = z3.Int("n")
KEY = z3.DeclareSort("key")
K = z3.Const("k", KEY)
KEY_AT = z3.Function("key_at", z3.IntSort(), KEY)
AMONG = z3.Function("among", z3.IntSort(), z3.BoolSort())
"""Whether `k` is one of the first n keys."""


def _share(name: str) -> z3.FuncDeclRef:
    return z3.Function(f"share_{name}", KEY, z3.IntSort())


def _sum(name: str) -> z3.FuncDeclRef:
    return z3.Function(f"sum_{name}", z3.IntSort(), z3.IntSort())


F, G, H = _share("f"), _share("g"), _share("h")
SUM_F, SUM_G, SUM_H = _sum("f"), _sum("g"), _sum("h")


@dataclass(frozen=True)
class Lemma:
    """`claim(n)` follows from what the lemma `rests_on`, by name; `says` it in words."""

    name: str
    says: str
    claim: Callable[[z3.ArithRef], z3.BoolRef]
    rests_on: dict[str, z3.BoolRef]


def _definitions() -> list[z3.BoolRef]:
    """What sums are, and which keys are among the first n."""
    return [
        SUM_F(0) == 0,
        SUM_G(0) == 0,
        SUM_H(0) == 0,
        z3.Not(AMONG(0)),
        SUM_F(N + 1) == SUM_F(N) + F(KEY_AT(N)),
        SUM_G(N + 1) == SUM_G(N) + G(KEY_AT(N)),
        SUM_H(N + 1) == SUM_H(N) + H(KEY_AT(N)),
        AMONG(N + 1) == z3.Or(AMONG(N), KEY_AT(N) == K),
    ]


_EACH_KEY_ONCE = z3.Implies(AMONG(N), KEY_AT(N) != K)
_ALIKE_ELSEWHERE = z3.Or(KEY_AT(N) == K, F(KEY_AT(N)) == G(KEY_AT(N)))

LEMMAS = (
    Lemma(
        "one change",
        "when one key's share changes, the sum changes by as much",
        lambda n: SUM_G(n) == SUM_F(n) + z3.If(AMONG(n), G(K) - F(K), 0),
        {"each key once": _EACH_KEY_ONCE, "other shares stay": _ALIKE_ELSEWHERE},
    ),
    Lemma(
        "nothing added",
        "a sum of shares that are all 0 is 0",
        lambda n: SUM_F(n) == 0,
        {"each share is 0": F(KEY_AT(N)) == 0},
    ),
    Lemma(
        "at least each",
        "a sum of shares that are not negative is not negative, and at least each of them",
        lambda n: z3.And(SUM_F(n) >= 0, z3.Implies(AMONG(n), F(K) <= SUM_F(n))),
        {"no share is negative": F(KEY_AT(N)) >= 0},
    ),
    Lemma(
        "at most the whole",
        "a sum of smaller shares is no larger",
        lambda n: SUM_F(n) <= SUM_G(n),
        {"each share is at most the other": F(KEY_AT(N)) <= G(KEY_AT(N))},
    ),
    Lemma(
        "parts add up",
        "a sum of shares that are two others together is their sums together",
        lambda n: SUM_H(n) == SUM_F(n) + SUM_G(n),
        {"each share is two together": H(KEY_AT(N)) == F(KEY_AT(N)) + G(KEY_AT(N))},
    ),
    Lemma(
        "one alone",
        "a sum of shares of which one is 1 and all others are 0 is 1",
        lambda n: SUM_F(n) == z3.If(AMONG(n), 1, 0),
        {
            "each key once": _EACH_KEY_ONCE,
            "one share is 1": z3.Implies(KEY_AT(N) == K, F(KEY_AT(N)) == 1),
            "other shares are 0": z3.Or(KEY_AT(N) == K, F(KEY_AT(N)) == 0),
        },
    ),
)


def prove_lemmas(seed: int = 0) -> list[Evidence]:
    """Each lemma, and that it fails without each of the things that it rests on."""
    rows = []
    for lemma in LEMMAS:
        started = time.monotonic()
        base = _follows(_definitions(), lemma.claim(z3.IntVal(0)), seed)
        step = _step(lemma, tuple(lemma.rests_on), seed)
        twins = tuple(_without(lemma, one, seed) for one in lemma.rests_on)
        row = Evidence(
            f"lemma: {lemma.name}",
            "reference",
            "sums over a finite map",
            "proof",
            "any number of entries, by induction",
            step if base is Outcome.HOLDS else base,
            lemma.says,
            digest_of([lemma.says, str(lemma.claim(N)), *map(str, _definitions())]),
            time.monotonic() - started,
            twins,
        )
        if row.outcome is Outcome.HOLDS:
            row = witnessed(row, [exploration(lemma.claim(N), lemma.rests_on)])
        rows.append(row)
    return rows


def _without(lemma: Lemma, left_out: str, seed: int) -> RedTwin:
    others = [one for one in lemma.rests_on if one != left_out]
    # unknown does not do: it does not show that the lemma needs what is left out
    return RedTwin(f"without: {left_out}", _step(lemma, others, seed) is Outcome.REFUTED)


def _step(lemma: Lemma, rests_on: Sequence[str], seed: int) -> Outcome:
    """The step of the induction, from n entries to one more."""
    known = [*_definitions(), N >= 0, lemma.claim(N), *(lemma.rests_on[one] for one in rests_on)]
    return _follows(known, lemma.claim(N + 1), seed)


def _follows(known: Sequence[z3.BoolRef], claimed: z3.BoolRef, seed: int) -> Outcome:
    solver = z3.SimpleSolver()
    solver.set("random_seed", seed)
    solver.set("rlimit", 1_000_000)
    solver.add(*known, z3.Not(claimed))
    answer = solver.check()
    if answer == z3.unsat:
        return Outcome.HOLDS
    return Outcome.REFUTED if answer == z3.sat else Outcome.UNKNOWN
