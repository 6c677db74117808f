"""What a command concludes, said once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cacheproof.formats.result import Result
from cacheproof.output.verdict_line import VerdictLine


@dataclass(frozen=True)
class Conclusion:
    """All that a command concludes, for `CommandOutput.tell`: what is printed and every format are
    made of it.

    Attributes:
        code: the exit code.
        line: the verdict line.
        facts: what JSON has beside the line, by key, in that order.
        results: what was found of each target, for the formats that pipelines read, unless
            `CommandOutput.found` has it already.
    """

    code: int
    line: VerdictLine
    facts: Mapping[str, object] = field(default_factory=dict)
    results: Sequence[Result] = ()
