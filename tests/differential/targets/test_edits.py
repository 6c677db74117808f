"""Edits of a module's text: each fits as often as it says, and touches nothing else."""

import pytest

from cacheproof.differential.texts.edits import Edit, edited

SOURCE = """\
def pick(some):
    name = 'ü'; return max(some, key=abs)


class Queue:
    def pop(self):
        if self.some:
            self.note(1)
            return 1
        return 2


class Stack:
    def pop(self):
        return 2
"""


def edit(expression: str, function: str = "pick", **what: object) -> Edit:
    return Edit("a.py", function, expression, **(what or {"instead": "some[0]"}))  # type: ignore[arg-type]


def test_an_expression_of_a_function_is_replaced() -> None:
    found = edited(SOURCE, edit("max(some, key=abs)"))
    assert found == SOURCE.replace("max(some, key=abs)", "some[0]")


@pytest.mark.parametrize(("expression", "times"), [("1", 0), ("min(some)", 0)])
def test_an_edit_that_does_not_fit_once_is_refused(expression: str, times: int) -> None:
    with pytest.raises(ValueError, match=f"{times} times, not once"):
        edited(SOURCE, edit(expression))


def test_an_edit_that_fits_twice_is_refused() -> None:
    twice = SOURCE.replace("'ü'", "max(some, key=abs)")
    with pytest.raises(ValueError, match="2 times, not once"):
        edited(twice, edit("max(some, key=abs)"))
    assert "name = some[0]" in edited(twice, edit("max(some, key=abs)", instead="some[0]", of=2))


def test_a_long_expression_is_named_by_how_it_begins() -> None:
    found = edited(SOURCE, edit("max(some, ..."))
    assert found == SOURCE.replace("max(some, key=abs)", "some[0]")
    with pytest.raises(ValueError, match="0 times, not once"):
        edited(SOURCE, edit("max(some, "))


def test_a_class_tells_functions_of_one_name_apart() -> None:
    found = edited(SOURCE, edit("return 2", "Stack.pop", instead="return 3"))
    assert found == SOURCE.removesuffix("return 2\n") + "return 3\n"


def test_lines_beside_a_statement_get_its_indentation() -> None:
    lines = "if not self:\n    self.stop()\n"
    found = edited(SOURCE, edit("self.note(1)", "Queue.pop", before=lines))
    assert (
        "            if not self:\n                self.stop()\n            self.note(1)\n" in found
    )
    found = edited(SOURCE, edit("if self.some:", "Queue.pop", after=lines))
    assert (
        "            return 1\n        if not self:\n            self.stop()\n        return 2"
        in found
    )


def test_a_statement_of_several_lines_is_replaced_as_a_whole() -> None:
    found = edited(SOURCE, edit("if self.some:", "Queue.pop", instead="pass"))
    assert "    def pop(self):\n        pass\n        return 2\n" in found


@pytest.mark.parametrize("what", [{"which": 1}, {"before": "a", "after": "b"}])
def test_an_edit_that_says_not_one_thing_to_be_done_is_refused(what: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="expected one of instead, before and after"):
        edited(SOURCE, edit("max(some, key=abs)", **what))
