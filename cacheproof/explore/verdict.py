"""What an exploration of small scopes concludes."""

from collections.abc import Iterator
from dataclasses import dataclass

from cacheproof.differential.search.verdict import HOLDS, INTERRUPTED
from cacheproof.output.verdict_line import VerdictLine, by_code, counted, names, rules_told


@dataclass(frozen=True)
class Explored:
    """How far an exploration came, and what it found.

    Attributes:
        scopes, closed: how many were visited, and how many of them whole.
        new: of each finding that is not listed and does harm the contract.
        known, harmless: how many findings are listed, and how many others cost only wasted work.
        blind: contracts whose green says nothing, since no red twin was refuted by them.
        left: how many components of targets, each with scopes of its own, an interruption has left.
    """

    targets: tuple[str, ...]
    code: int
    scopes: int
    closed: int
    states: int
    transitions: int
    new: tuple[str, ...] = ()
    known: int = 0
    harmless: int = 0
    blind: tuple[str, ...] = ()
    left: int = 0

    @property
    def line(self) -> VerdictLine:
        """The verdict line."""
        step, command = self._next()
        return VerdictLine(f"{self._head()}: {'; '.join(self._parts())}.", step, command)

    def _head(self) -> str:
        who, show = names(self.targets), "show" if len(self.targets) > 1 else "shows"
        so_far = self._new() if self.new else "nothing new so far"
        return by_code(
            self.code,
            holds=f"{who} {show} nothing new in small scopes",
            unlisted=f"{who} {show} {self._new()}",
            interrupted=f"The exploration of {who} was interrupted and shows {so_far}",
            void=f"This exploration of {who} proves nothing{self._why()}",
        )

    def _new(self) -> str:
        verb = "breaks" if len(self.new) == 1 else "break"
        return f"{counted(len(self.new), 'new fault')}, which {verb} {rules_told(self.new)}"

    def _why(self) -> str:
        if not self.scopes:
            return ""
        return f" about {names(self.blind)}, since no planted fault breaks it there"

    def _parts(self) -> Iterator[str]:
        if not self.scopes:
            yield "no state was visited"
        else:
            whole = (
                f"every state of {counted(self.scopes, 'scope')} was visited"
                if self.closed == self.scopes
                else f"{self.closed:,} of {counted(self.scopes, 'scope')} were visited whole"
            )
            amount = f"{self.states:,} states, {self.transitions:,} transitions judged"
            yield f"{whole}, {amount}"
            yield self._met()
        if self.left:
            were = "was" if self.left == 1 else "were"
            yield f"{counted(self.left, 'component')} of targets {were} not reached"

    def _met(self) -> str:
        told = [f"{counted(self.known, 'known fault')} met again"] if self.known else []
        if self.harmless:
            told.append(f"{counted(self.harmless, 'finding')} cost only wasted work")
        if not told:
            return "no known fault was met" if self.new else "no rule broke"
        return " and ".join(told) + ("" if self.new else ", and nothing else broke")

    def _next(self) -> tuple[str, str]:
        target = self.targets[0] if self.targets else "reference"
        if self.new:
            return "the report shows each new fault and the command that replays it", ""
        if self.code == INTERRUPTED:
            return "run the command again for the whole", ""
        if self.code != HOLDS:
            return "docs/explain/explore.md says what an exploration is worth", ""
        return "search beyond small scopes", f"cacheproof fuzz --target {target} --seconds 60"
