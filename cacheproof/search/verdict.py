"""What searches conclude: fuzz, check and the report of a campaign."""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cacheproof.differential.findings import finding_file
from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.search.verdict import (
    FROM_MODEL,
    HOLDS,
    INTERRUPTED,
    NOTHING_JUDGED,
    UNLISTED,
    VOID,
    Verdict,
    exit_code_of,
    is_from_model,
    is_unlisted,
)
from cacheproof.output.folders import findings_folder
from cacheproof.output.verdict_line import (
    VerdictLine,
    amount,
    briefly,
    by_code,
    counted,
    names,
    rules_told,
)
from cacheproof.search.fault_table import ShownFault

KNOWN_PAGE = "docs/reference/known-faults.md"
MODEL_PAGE = "docs/how-to/releases.md"


@dataclass(frozen=True)
class Searched:
    """How much searches ran, and what they found.

    Attributes:
        kinds: of workload, of which traces were run; `unreached` those of which none was.
        is_compared: whether the reference ran beside the target in any.
        new: of each finding that is not listed the contract, findings of one cause counted once.
        unsmall: contracts that broke on traces that were not minimised: only then is it known
            whether the break is listed. Those that cost only wasted work are left out.
        faces: how many other faces those have.
        from_model: how many differences from the model there are that are no faces of those.
        harmless: findings that cost only wasted work, are not listed, and no faces either.
        known: names of listed faults that were met.
        void: why it proves nothing.
        left_out: programs that this machine lacks, with the kinds of workload that want them.
        undone: what a search by the clock had no time for, and how much of it.
    """

    targets: tuple[str, ...]
    code: int
    traces: int
    calls: int
    kinds: int
    unreached: int = 0
    is_compared: bool = True
    new: tuple[str, ...] = ()
    faces: int = 0
    from_model: int = 0
    unsmall: tuple[str, ...] = ()
    harmless: int = 0
    known: tuple[str, ...] = ()
    void: tuple[str, ...] = ()
    left_out: tuple[tuple[str, int], ...] = ()
    undone: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, verdicts: Sequence[Verdict], shown: Sequence[ShownFault]) -> "Searched":
        """The result for all targets together; `shown` are the listed faults that they met."""
        reports = [one for verdict in verdicts for one in verdict.outcome.lanes]
        kinds = {one.lane.name for one in reports if one.traces}
        causes = [one for verdict in verdicts for one in verdict.causes]
        new = [one for one in causes if is_unlisted(one.head)]
        left_out = {lane: program for one in verdicts for lane, program in one.left_out.items()}
        programs = sorted(left_out.values())
        return cls(
            targets=tuple(verdict.outcome.target for verdict in verdicts),
            code=exit_code_of(verdicts),
            traces=sum(one.traces for one in reports),
            calls=sum(one.calls for one in reports),
            kinds=len(kinds),
            unreached=len({one.lane.name for one in reports} - kinds),
            is_compared=any(one.compared is not None and one.compared.calls for one in reports),
            new=tuple(one.head.contract for one in new),
            faces=sum(len(one.faces) for one in new),
            from_model=sum(is_from_model(one.head) for one in causes),
            unsmall=tuple(one for verdict in verdicts for one in verdict.unsmall),
            undone=tuple(_undone(verdicts).items()),
            harmless=sum(_is_harmless(one.head) for one in causes),
            known=tuple(one.fault.name for one in shown),
            void=tuple(briefly(why) for verdict in verdicts for why in _doubts(verdict)),
            left_out=tuple((one, programs.count(one)) for one in dict.fromkeys(programs)),
        )

    @property
    def sentence(self) -> str:
        """What the searches conclude, in one sentence."""
        return f"{self._head()}: {'; '.join(self._parts())}."

    def _head(self) -> str:
        who, many = names(self.targets), len(self.targets) > 1
        show, decide = ("show", "decide") if many else ("shows", "decides")
        ways = f"in {counted(self.from_model, 'way')}, without a new fault"
        return by_code(
            self.code,
            holds=f"{who} {show} nothing new",
            unlisted=f"{who} {show} {self._new()}",
            interrupted=f"The search of {who} was interrupted and shows {self._so_far()}",
            void=f"This search of {who} proves nothing, since {self._why()}",
            from_model=f"{who} {decide} otherwise than the reference {ways}",
        )

    def _why(self) -> str:
        """Why it proves nothing."""
        if not self.void:
            return "nothing was searched"
        first, *more = self.void
        return first + (f", and for {counted(len(more), 'more reason')}" if more else "")

    def _new(self) -> str:
        """The rules that broke and are not listed, the first of them by their titles."""
        verb = "breaks" if len(self.new) == 1 else "break"
        faces = f" ({counted(self.faces, 'other face')})" if self.faces else ""
        return f"{counted(len(self.new), 'new fault')}{faces}, which {verb} {rules_told(self.new)}"

    def _so_far(self) -> str:
        """What is new, and what may be."""
        found, link = (self._new(), "and") if self.new else ("nothing new so far", "but")
        rules = [one for one in self.unsmall if one not in self.new]
        if not rules:
            return found
        maybe = f"what breaks {rules_told(rules)} may be new, and was not minimised yet"
        return f"{found}, {link} {maybe}"

    def _parts(self) -> Iterator[str]:
        yield self._work()
        if self.calls:
            yield self._met()
        if self.code == UNLISTED and self.from_model:
            yield f"it differs from the reference in {counted(self.from_model, 'more way')}"
        if self.code in (UNLISTED, INTERRUPTED, FROM_MODEL) and self.void:
            yield f"what held proves nothing, since {self.void[0]}"
        if self.unreached:
            yield f"{_kinds(self.unreached)} not reached"
        if self.undone:
            left = names([f"{count:,} {what}" for what, count in self.undone])
            yield f"the seconds were up before {left} had their turn"
        for program, kinds in self.left_out:
            yield f"{_kinds(kinds)} left out, for want of {program}"

    def _work(self) -> str:
        if not self.calls:
            return "nothing was judged"
        alone = "" if self.is_compared else " by the contracts alone, without the reference"
        return (
            f"{counted(self.traces, 'trace')} of {counted(self.kinds, 'kind')} of workload, "
            f"{amount(self.calls)} calls judged{alone}"
        )

    def _met(self) -> str:
        """What is known, and whether that is all."""
        wasteful = f"{counted(self.harmless, 'finding')} cost only wasted work"
        told = [f"{counted(len(self.known), 'known fault')} met again"] if self.known else []
        told += [wasteful] if self.harmless else []
        is_all = not (self.new or self.unsmall or self.from_model)
        if not told:
            return "no rule broke" if is_all else "no known fault was met"
        return " and ".join(told) + (", and nothing else broke" if is_all else "")


def _doubts(verdict: Verdict) -> list[str]:
    """Why it proves nothing; that an interruption has left something is no reason to doubt the
    rest."""
    left = (verdict.unfinished, NOTHING_JUDGED) if verdict.interrupted else ()
    return [why for why in verdict.void_because if why not in left]


def _undone(verdicts: Sequence[Verdict]) -> Counter[str]:
    undone = Counter[str]()
    for verdict in verdicts:
        undone.update(verdict.left_undone)
    return undone


def _is_harmless(one: Finding) -> bool:
    """Whether it is not listed, costs only wasted work, and so fails no command."""
    return one.known_note is None and not is_unlisted(one) and not is_from_model(one)


def _kinds(number: int) -> str:
    return f"{counted(number, 'kind')} of workload {'was' if number == 1 else 'were'}"


def line_of(
    verdicts: Sequence[Verdict],
    shown: Sequence[ShownFault],
    folder: Path,
    resume: str = "",
) -> VerdictLine:
    """The verdict line of searches whose findings lie in `folder`; `resume` goes on with one that
    is not finished, where it can be gone on with."""
    searched = Searched.of(verdicts, shown)
    step, command = _next(searched, verdicts, shown, folder, resume)
    return VerdictLine(searched.sentence, step, command)


def _next(
    searched: Searched,
    verdicts: Sequence[Verdict],
    shown: Sequence[ShownFault],
    folder: Path,
    resume: str,
) -> tuple[str, str]:
    """What to do next, and the command that does it."""
    causes = [one.head for verdict in verdicts for one in verdict.causes]
    if new := [one for one in causes if is_unlisted(one)]:
        words = "see the first of them" if new[1:] else "see it"
        return f"{words} again, step by step", replay_of(new[0], folder)
    if resume and (searched.code == INTERRUPTED or any(one.unfinished for one in verdicts)):
        return "go on with it", resume
    if searched.code == INTERRUPTED:
        return "run the command again for the whole; a campaign can be resumed", ""
    if parted := [one for one in causes if is_from_model(one)]:
        page = f"{MODEL_PAGE} says what a difference means; see one"
        return page, replay_of(parted[0], folder)
    if not searched.calls:
        return "give it more time, with --seconds or --seeds", ""
    if searched.code == VOID and searched.undone:
        return "give it more time, with --seconds", ""
    if searched.code not in (HOLDS, UNLISTED):
        return "the lines that begin with void say why; mend that, and run the command again", ""
    example = next((finding for one in shown for finding in one.findings), None)
    if example is not None:
        return f"{KNOWN_PAGE}, or see a known fault", replay_of_known(example, folder)
    if searched.known:
        return f"{KNOWN_PAGE} says what the known faults are", ""
    return "a longer search, with --seconds 3600, looks further", ""


def replay_of(found: Finding, folder: Path) -> str:
    """The command that runs a finding again."""
    file = shlex.quote(str(finding_file.path_of(found, folder)))
    return f"cacheproof replay {file} --target {shlex.quote(found.target)}"


def replay_of_known(found: Finding, folder: Path) -> str:
    """The command that runs a finding again by the name of its listed fault."""
    elsewhere = folder.absolute() != findings_folder().absolute()
    where = f" --findings {shlex.quote(str(folder))}" if elsewhere else ""
    return f"cacheproof replay {found.fault}@{found.release}{where}"
