"""Layouts that can be told apart, and those that cannot, on the smallest cases."""

import z3

from cacheproof.proofs.keys.ambiguity import Layout, LayoutReader, ambiguous_lists
from cacheproof.proofs.keys.symbolic import (
    CONTENT,
    BytesRun,
    Field,
    Nested,
    Piece,
    Repeated,
    SequenceLoop,
    Term,
)

TEXT, OTHER = z3.Const("text!0", CONTENT), z3.Const("other!1", CONTENT)
LENGTH, COUNT = z3.Int("length!2"), z3.Int("count!3")
SIZED = [LENGTH >= 0]
FIELD = Field(LENGTH, 8, "little")
RUN = BytesRun(TEXT, "bytes", LENGTH)


def layout(*pieces: Piece, content: tuple[Term, ...] = (TEXT,), constructor: str = "x") -> Layout:
    return Layout(constructor, constructor, content, pieces, tuple(SIZED))


def confused(*layouts: Layout) -> str | None:
    found = LayoutReader().ambiguity(layouts)
    return None if found is None else str(found)


def test_a_length_in_front_tells_contents_apart() -> None:
    assert confused(layout(FIELD, RUN)) is None
    assert confused(layout(RUN)) == "two of kind x"


def test_a_length_says_nothing_of_what_comes_before_it() -> None:
    assert confused(layout(RUN, FIELD)) == "two of kind x"


def test_a_lossy_writing_tells_nothing_apart() -> None:
    assert confused(layout(FIELD, BytesRun(TEXT, "bytes", LENGTH, lossy=True))) == "two of kind x"


def test_a_tag_in_front_tells_kinds_apart() -> None:
    one, other = (layout(tag, FIELD, RUN, constructor=str(tag)) for tag in (b"a", b"b"))
    assert confused(one, other) is None
    alike = layout(b"a", FIELD, RUN, constructor="y")
    assert confused(one, alike) == "b'a' and y"


def test_a_constant_that_a_field_can_hold_is_found_by_its_digits() -> None:
    constant = layout(b"\5" + bytes(7), b"abcde", content=(), constructor="constant")
    assert confused(layout(FIELD, RUN), constant) == "x and constant"
    other = layout(Field(z3.IntVal(6), 8, "little"), content=())
    assert confused(other, constant) is None


def test_nested_values_are_apart_by_hypothesis_and_end_where_they_end() -> None:
    assert confused(layout(Nested(TEXT), Nested(OTHER), content=(TEXT, OTHER))) is None
    assert confused(layout(Nested(TEXT), content=(TEXT, OTHER))) == "two of kind x"


def test_a_list_needs_its_count() -> None:
    repeated = Repeated(SequenceLoop(COUNT, OTHER, (TEXT,)), (Nested(TEXT),))
    content = (COUNT, OTHER)
    assert confused(layout(Field(COUNT, 8, "big"), repeated, content=content)) is None
    assert confused(layout(repeated, content=content)) == "two of kind x"


def test_a_round_that_leaves_something_out_is_found() -> None:
    repeated = Repeated(
        SequenceLoop(COUNT, OTHER, (TEXT, z3.Const("left!4", CONTENT))), (Nested(TEXT),)
    )
    found = confused(layout(Field(COUNT, 8, "big"), repeated, content=(COUNT, OTHER)))
    assert found == "two of kind element of x"


def test_lists_are_told_apart_by_induction_only_if_elements_are() -> None:
    assert ambiguous_lists() is None
    assert ambiguous_lists(determined=False) == "step"
