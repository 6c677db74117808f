"""Texts run on symbolic values: each way is taken, loops are cut, changes are made one by one."""

import z3

from cacheproof.proofs.keys import mutants, paths
from cacheproof.proofs.keys.key_modules import Language
from cacheproof.proofs.keys.loops import HELPER, LoopClaims, Loops
from cacheproof.proofs.keys.symbolic import Field, Many, Number, Repeated, collect
from cacheproof.proofs.keys.texts import run_text

X = z3.Int("x!0")


def test_every_way_is_taken_once_and_impossible_ones_are_not() -> None:
    def sign() -> str:
        number = Number(X)
        if number > 0:
            return "above" if number > 1 else "one"
        return "positive" if number > 5 else "below"

    found = paths.paths(sign)
    assert [path.result for path in found] == ["above", "one", "below"]
    assert all(paths.satisfiable(list(path.conditions)) is not None for path in found)


def test_what_is_made_in_a_loop_is_repeated_and_what_follows_is_not() -> None:
    def made() -> tuple[object, ...]:
        many = Many("each", (), ())
        return collect(part for whole in ((f"{one}!" for one in many), ["after"]) for part in whole)

    (path,) = paths.paths(made)
    repeated, after = path.result
    assert isinstance(repeated, Repeated)
    assert (repeated.pieces, after) == (("each!",), "after")


def test_a_number_is_written_in_its_width_and_only_where_it_fits() -> None:
    (path,) = paths.paths(lambda: Number(X).to_bytes(2, "big").pieces)
    (field,) = path.result
    assert field == Field(X, 2, "big")
    assert paths.satisfiable([*path.conditions, X == 65_536]) is None


LOOP = """
def total(count):
    so_far = 0
    for number in numbers(count):
        so_far = so_far + number
    return so_far
"""


SUMMING = Language("cacheproof.summing", read=frozenset({"total"}), cut=frozenset({"total"}))


class _Sum:
    """The sum of the numbers below n is not negative; wrongly, at least `least`."""

    def __init__(self, claims: LoopClaims, least: int) -> None:
        self._claims, self._least = claims, least

    def entered(self, total: object) -> tuple[Number]:
        self.repeated(total)
        so_far = Number(z3.Int("so far"))
        paths.assume(so_far.term >= self._least)
        return (so_far,)

    def element(self, count: Number) -> tuple[object, Number]:
        number = Number(z3.Int("number"))
        paths.assume(number.term >= 0)
        return number < count, number

    def repeated(self, total: object) -> None:
        term = total.term if isinstance(total, Number) else z3.IntVal(total)
        self._claims.claim("so much at least", term >= self._least)


def claimed(least: int) -> list[str]:
    claims = LoopClaims()

    def run() -> None:
        loops = Loops({"total 1": _Sum(claims, least)})
        names = run_text(LOOP, SUMMING, numbers=lambda count: count, **{HELPER: loops})
        claims.claim("the sum is as large", names["total"](Number(X)).term >= least)

    paths.paths(run)
    return claims.failed


def test_an_invariant_is_claimed_on_entry_and_after_a_round() -> None:
    assert claimed(least=0) == []
    assert claimed(least=1) == ["so much at least"]


TEXT = """
def f(a, b):
    x, y = a, b
    yield a + b
    yield (a, b)
    return f"{a}:{b}", a < b
def g(a, b):
    return a + b
"""


def test_each_place_is_changed_alone_and_nothing_elsewhere() -> None:
    edits = (
        mutants.without_an_element,
        mutants.without_an_operand,
        mutants.without_a_yield,
        mutants.without_a_part,
        mutants.shifted_comparison,
    )
    found = {one.name: one.text for one in mutants.mutants(TEXT, ("f",), *edits)}
    assert found["no a of (a, b) in f"] == TEXT.replace("(a, b)\n    r", "(b,)\n    r")
    assert found["no b of a + b in f"] == TEXT.replace("yield a + b", "yield a")
    assert found["no (yield (a, b)) in f"] == TEXT.replace("yield (a, b)", "pass")
    assert found["a <= b for a < b in f"] == TEXT.replace("a < b", "a <= b")
    assert "no part 2 of a ':' b in f" in found
    assert len(found) == 2 + 2 + 2 + 2 + 3 + 1
    assert all(text.endswith(TEXT[TEXT.index("def g") :]) for text in found.values())
