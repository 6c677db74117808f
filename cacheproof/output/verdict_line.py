"""The sentence with which a command's report begins and ends, and the words such sentences share.

It says what was checked, how much, what is new, what is known, and what to do next, to somebody who
has read nothing else. It never claims more than was run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import shorten

from cacheproof.differential.traces.wording import visible_line
from cacheproof.formats.result import rule_of

NAMES_MAX = 4
"""So many names stand in a sentence; of more it says how many."""
WORDS_MAX = 200
_REFUSED, _VOID, _INTERRUPTED = 2, 3, 130


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


def of_trouble(command: str, code: int, trouble: str) -> str:
    """The sentence of a command that an error ended, for the formats that pipelines read; of one
    that reached its end without a line of its own nothing."""
    why = briefly(trouble)
    match code:
        case code if not trouble:
            return ""
        case code if code == _REFUSED:
            return f"cacheproof {command} could not go on, and judged nothing more: {why}."
        case code if code == _VOID:
            return f"cacheproof {command} shows nothing, since it broke: {why}."
        case code if code == _INTERRUPTED:
            return f"cacheproof {command} was {why}."
        case _:
            return f"cacheproof {command} ended early: {why}."


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
