"""The sentence with which a command's report begins and ends, and the words such sentences share.

It says what was checked, how much, what is new, what is known, and what to do next, to somebody who
has read nothing else. It never claims more than was run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import TypeVar

from cacheproof.differential.errors import InputError
from cacheproof.differential.search.verdict import FROM_MODEL, HOLDS, INTERRUPTED, UNLISTED, VOID
from cacheproof.differential.traces.wording import visible_line
from cacheproof.formats.result import rule_of

NAMES_MAX = 4
"""So many names stand in a sentence; of more it says how many."""
RULES_MAX = 2
"""Most broken rules that are told by their titles."""
WORDS_MAX = 200
_Said = TypeVar("_Said")


@dataclass(frozen=True)
class VerdictLine:
    """What a command concludes.

    Attributes:
        sentence: one line, with its full stop.
        step: what to do next, without a full stop; empty where there is nothing to do.
        command: what does that step, to be copied whole; empty where no command does.
    """

    sentence: str
    step: str = ""
    command: str = ""

    @property
    def next(self) -> str:
        """What to do next, with the command that does it."""
        return ": ".join(filter(None, (self.step, self.command)))


def by_code(
    code: int,
    *,
    holds: _Said,
    unlisted: _Said,
    interrupted: _Said,
    void: _Said,
    from_model: _Said | None = None,
) -> _Said:
    """What a command says with an exit code that it concludes with; `from_model` is for those that
    compare decisions."""
    said = {HOLDS: holds, UNLISTED: unlisted, INTERRUPTED: interrupted, VOID: void}
    if from_model is not None:
        said[FROM_MODEL] = from_model
    return said[code]


def of_trouble(command: str, code: int, trouble: str) -> str:
    """The sentence of a command that an error ended, for the formats that pipelines read; of one
    that reached its end without a line of its own nothing."""
    if not trouble:
        return ""
    why = briefly(trouble)
    ends = {
        InputError.exit_code: f"could not go on, and judged nothing more: {why}",
        VOID: f"shows nothing, since it broke: {why}",
        INTERRUPTED: f"was {why}",
    }
    return f"cacheproof {command} {ends.get(code, f'ended early: {why}')}."


def counted(number: int, what: str, several: str = "") -> str:
    """A number of things: `1 trace`, `2 traces`; `several` where an s does not make it many."""
    return f"{number:,} {what if number == 1 else several or f'{what}s'}"


def amount(number: int) -> str:
    """A large number as a reader keeps it in mind: exact to 9,999, then 45,000 or 4.1 million."""
    if number < 10_000:
        return f"{number:,}"
    if number < 999_500:
        return f"{round(number, -3):,}"
    return f"{number / 1_000_000:,.1f} million"


def briefly(text: str) -> str:
    """Words that are not ours, as a part of a sentence: in one line, the first of it, without a
    full stop."""
    return shorten(visible_line(text), WORDS_MAX, placeholder=" ...").rstrip(".")


def names(some: Sequence[str]) -> str:
    """Names in a sentence, each once: `a`, `a and b`, `a, b, c, d and 7 more`."""
    told = list(dict.fromkeys(some))
    if len(told) > NAMES_MAX + 1:
        told = [*told[:NAMES_MAX], f"{len(told) - NAMES_MAX} more"]
    return " and ".join(filter(None, (", ".join(told[:-1]), *told[-1:])))


def rule_told(id: str) -> str:
    """A rule for somebody who does not know its number: `EC-6a (Who needs a resident entry holds
    it)`."""
    rule = rule_of(id)
    return id if rule.title == id else f"{id} ({rule.title})"


def rules_told(contracts: Sequence[str]) -> str:
    """Rules, each once, the first of them by their titles."""
    rules = list(dict.fromkeys(contracts))
    more = len(rules) - RULES_MAX
    told = [rule_told(one) for one in rules[:RULES_MAX]]
    return names([*told, counted(more, "more rule")] if more > 0 else told)
