"""One benchmark in two checkouts: which numbers of what they print are held against each other."""

from types import ModuleType

TABLE = """\
said before
| what | steps | of it |
|---|--:|---|
| lockstep, 0.33.0 | 4,287 | 0.65 (0.58 to 0.69) |
| alone | 6,740 |  |
said after
"""


def test_numbers_have_the_words_of_their_row_and_their_column(script: ModuleType) -> None:
    assert dict(script.numbers(TABLE.splitlines())) == {
        ("lockstep, 0.33.0", "steps"): 4287.0,
        ("lockstep, 0.33.0", "of it"): 0.65,
        ("alone, ", "steps"): 6740.0,
    }
