"""What the commands conclude that compare targets, releases or commits: diff, bisect, minimise."""

from collections.abc import Sequence
from dataclasses import dataclass

from cacheproof.differential.search.bisection import Bisection, span
from cacheproof.differential.search.verdict import FROM_MODEL, INTERRUPTED
from cacheproof.output.verdict_line import VerdictLine, briefly, counted, rule_told


@dataclass(frozen=True)
class Compared:
    """Two targets on the same traces: how many were run, on how many they differ, how many
    differences were minimised, how many of those a known change explains, and how many known
    changes were not seen."""

    left: str
    right: str
    code: int
    traces: int
    apart: int
    kinds: int
    shown: int = 0
    explained: int = 0
    unseen: int = 0

    @property
    def line(self) -> VerdictLine:
        """The verdict line."""
        both = f"{self.left} and {self.right}"
        ran = f"{counted(self.traces, 'trace')} of {counted(self.kinds, 'kind')} of workload"
        unseen = ""
        if self.unseen:
            were = "was" if self.unseen == 1 else "were"
            unseen = f"; {counted(self.unseen, 'known change')} between them {were} not seen"
        if not self.traces:
            was = " was interrupted" if self.code == INTERRUPTED else ""
            return VerdictLine(
                f"The comparison of {both}{was or ' shows nothing'}: no trace ran on both.",
                "give it more time, with --seconds",
            )
        found = f"no difference on {ran}{unseen}"
        if self.apart:
            found = f"they differ on {self.apart:,} of {ran}; {self._explained()}{unseen}"
        if self.code == INTERRUPTED:
            return VerdictLine(
                f"The comparison of {both} was interrupted: {found}.", "run the command again"
            )
        if not self.apart:
            return VerdictLine(
                f"{both} decide alike: {found}.", "a longer comparison, with --seconds, sees more"
            )
        own = ", which is a difference from the model" if self._is_model else ""
        return VerdictLine(
            f"{both} do not decide alike{own}: {found}.",
            "see which of them breaks a rule that the other keeps",
            f"cacheproof review --base {self.left} --head {self.right}",
        )

    @property
    def _is_model(self) -> bool:
        return self.code == FROM_MODEL

    def _explained(self) -> str:
        shown = f"{counted(self.shown, 'difference')} shown"
        if not self.explained:
            return f"{shown}, explained by no known change"
        return f"{shown}, {self.explained:,} of them explained by a known change"


def of_releases(
    found: Sequence[Bisection], asked: int, refused: int, contract: str | None, replay: str
) -> VerdictLine:
    """Which releases break what. `asked` have run the trace, and `refused` it others; `replay` is
    the command that runs it, to which a release is added."""
    releases = counted(asked, "release")
    without = f"; {counted(refused, 'release')} could not run the trace" if refused else ""
    if not found:
        rule = rule_told(contract) if contract else "No contract"
        return VerdictLine(f"{rule} breaks in none of the {releases} that were asked{without}.")
    first, more = found[0], len(found) - 1
    spans = ", ".join(span(*one) for one in first.spans)
    others = f" (so {'does' if more == 1 else 'do'} {counted(more, 'more contract')})"
    words = [f"{rule_told(first.contract)} breaks in {spans}{others if more else ''}"]
    words.append(f"of {releases} that were asked")
    if not first.is_monotone:
        words.append("it came more than once")
    else:
        words.append(f"{first.brought} brought it" if first.brought else "no older one was asked")
        words.append(f"{first.mended} mended it" if first.mended else "none has mended it")
    sentence = f"{', '.join(words[:2])}: {'; '.join(words[2:])}{without}."
    last = first.spans[-1][1]
    return VerdictLine(sentence, "see it break", f"{replay} --target vllm@{last}")


def of_commits(verb: str, commits: Sequence[tuple[str, str, str]]) -> VerdictLine:
    """Which commit `brought` or `mended` it: hash, day and subject of each that may have."""
    if commits[1:]:
        return VerdictLine(
            f"One of {len(commits)} commits {verb} it; which one is not known, since some of them "
            "cannot be run."
        )
    ((hash, day, subject),) = commits
    return VerdictLine(
        f"Commit {hash[:12]} of {day} {verb} it: {briefly(subject)}.",
        "read it, in the checkout",
        f"git show {hash[:12]}",
    )


def of_minimised(
    rule: str, target: str, events: int, fault: str | None, replay: str
) -> VerdictLine:
    """A small trace breaks what a record broke; `fault` is the listed one that it is."""
    known = f"the known fault {fault}" if fault else "not on the list of known faults"
    return VerdictLine(
        f"{target} breaks {rule_told(rule)} as the record does, on a trace of "
        f"{counted(events, 'event')}; it is {known}.",
        "see it again, step by step",
        replay,
    )


def of_lost(rule: str, target: str, otherwise: str = "") -> VerdictLine:
    """No trace breaks what a record broke; `otherwise` says how the vLLM that was recorded reads
    otherwise than the target."""
    if otherwise:
        return VerdictLine(
            f"{target} does not break {rule_told(rule)} when the recorded events are run again, "
            f"and {otherwise}.",
            "run the vLLM that ran, with --target path:DIR",
        )
    return VerdictLine(
        f"{target} does not break {rule_told(rule)} when the recorded events are run again, which "
        "proves nothing: the record leaves out the text of prompts and other plug-ins.",
        "run the release that was recorded, with --target, or record with --plain",
    )
