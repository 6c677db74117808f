"""What the commands conclude that run models and servers: generate and http."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cacheproof.differential.search.verdict import HOLDS, INTERRUPTED
from cacheproof.output.verdict_line import VerdictLine, by_code, counted, names


@dataclass(frozen=True)
class ServersAsked:
    """Servers that were asked: tokens, or of another `unit`, that were compared with the runner's,
    and how many were equal; `new` servers did what no listed fault does, `known` are the listed
    faults that were met, by which so many answers were `wrong`; `unjudged` says of how many the
    record was not judged whole, `left` how many were not asked to their end."""

    target: str
    code: int
    servers: int
    tokens: int
    equal: int
    new: int = 0
    known: tuple[str, ...] = ()
    unjudged: int = 0
    left: int = 0
    unit: str = "token"
    wrong: int = 0

    @property
    def line(self) -> VerdictLine:
        """The verdict line."""
        parts = [f"{self.equal:,} of {counted(self.tokens, self.unit)} equal"]
        if not self.tokens:
            parts = [f"no {self.unit} was compared"]
        if self.wrong:
            parts.append(f"{counted(self.wrong, 'answer')} wrong by a known fault")
        if self.known:
            parts.append(f"known faults met again: {names(self.known)}")
        if self.unjudged:
            parts.append(f"{counted(self.unjudged, 'record')} not judged whole")
        if self.left:
            parts.append(f"{counted(self.left, 'server')} not finished")
        return VerdictLine(f"{self._head()}: {'; '.join(parts)}.", *self._next())

    def _head(self) -> str:
        servers = f"{counted(self.servers, 'server')} of {self.target}"
        new = f"{self.new:,} did what no known fault explains"
        return by_code(
            self.code,
            holds=f"{servers} did nothing that no known fault explains"
            if self.wrong
            else f"{servers} answered as each request alone is answered",
            unlisted=f"{self.new:,} of {servers} did what no known fault explains",
            interrupted=f"The run was interrupted after {servers}{f', and {new}' * bool(self.new)}",
            void=f"This run of {servers} proves nothing",
        )

    def _next(self) -> tuple[str, str]:
        if self.new:
            again = f"cacheproof http --target {self.target} --records records"
            return "keep the records of the servers, and audit them", again
        if self.code == INTERRUPTED:
            return "run the command again", ""
        if self.code != HOLDS:
            return "run it again; docs/how-to/serving.md says what a record lacks", ""
        return "docs/how-to/serving.md says what each server was asked", ""


def of_generated(
    model: str, device: str, steps: Sequence[Mapping[str, Any]], answers: Sequence[object]
) -> VerdictLine:
    """Prompts that a model has answered."""
    if not answers:
        return VerdictLine(f"{model} answered nothing on {device}.")
    did: Counter[str] = Counter()
    for step in steps:
        did.update({what: step.get(what, 0) for what in ("encoded", "hits", "evicted")})
        did["tokens"] += sum(step.get("tokens", {}).values())
        did["preempted"] += len(step.get("preempted", ()))
    return VerdictLine(
        f"{model} answered {counted(len(answers), 'prompt')} in {counted(len(steps), 'step')} on "
        f"{device}, {counted(did['tokens'], 'token')} computed: of the media {did['encoded']} were "
        f"encoded, {did['hits']} found in the encoder cache and {did['evicted']} evicted from it; "
        f"{counted(did['preempted'], 'preemption')}.",
        "docs/explain/runner.md says what the reference decides and what torch executes",
    )
