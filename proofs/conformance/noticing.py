"""Whether claims notice that a reading is undone: each change in a fork of one process.

    python -m cacheproof.proofs.conformance.noticing

reads lines of a change's key and the names of claims and checks of parts, separated by tabs, and
says of each which complains first of what, or nothing. A key of "" is the translator as it stands.
"""

import ast
import os
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import z3

from cacheproof.proofs.conformance.claims import ConformanceClaim, claims
from cacheproof.proofs.conformance.undone import MODULES, Undone, undo, undone

SECONDS_MAX = 40
"""CPU time of a change for one claim."""
BYTES_MAX = 6 << 30
ENDLESS = "it does not end"


def parts() -> list[str]:
    """The names of checks of `parts`, which imports the translator, by its text."""
    text = Path(__file__).with_name("parts.py").read_text()
    return [
        f"parts: {one.name.strip('_').replace('_', ' ')}"
        for one in ast.parse(text).body
        if isinstance(one, ast.FunctionDef) and one.decorator_list
    ]


@dataclass(frozen=True)
class Noticed:
    """How many claims were asked, and what the last of them complained of; "" if of nothing."""

    asked: int
    complaint: str


class Noticing:
    """Has z3 and the claims loaded, and of the translator's modules none that is changed."""

    def __init__(self) -> None:
        self._claims: Mapping[str, ConformanceClaim] = {str(one): one for one in claims()}
        z3.main_ctx()

    def prepare(self) -> None:
        """Make the texts of all claims, which forks then have."""
        for one in self._claims.values():
            _ = one.keeping, one.breaking

    def told(self, change: Undone | None, names: Sequence[str]) -> Noticed:
        """The first complaint of these claims about the translator with that change."""
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            self._judge(change, names, write)
        os.close(write)
        with os.fdopen(read, errors="replace") as pipe:
            lines = pipe.read().splitlines()
        _, status = os.waitpid(child, 0)
        asked = sum(line == "" for line in lines)
        complaint = next((line for line in lines if line), "")
        if os.WIFSIGNALED(status):
            ended_by = os.WTERMSIG(status)
            if ended_by == signal.SIGKILL:
                raise RuntimeError("a fork was killed from outside")
            complaint = ENDLESS if ended_by == signal.SIGPROF else f"it ends by signal {ended_by}"
        return Noticed(asked, complaint)

    def _judge(self, change: Undone | None, names: Sequence[str], write: int) -> None:
        """The work of the child process: a line without words for each claim that is asked, and one
        with them."""
        complaint, name = "", "the import"
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_AS, (BYTES_MAX, BYTES_MAX))
            if change is not None:
                undo(change)
            signal.setitimer(signal.ITIMER_PROF, SECONDS_MAX)
            from cacheproof.proofs.conformance.judges import OfTranslator, misreadings
            from cacheproof.proofs.conformance.parts import CHECKS

            translator = OfTranslator()
            for name in names:
                os.write(write, b"\n")
                signal.setitimer(signal.ITIMER_PROF, SECONDS_MAX)
                if name in self._claims:
                    found = misreadings(self._claims[name], translator)
                else:
                    found = list(CHECKS[name]())
                if found:
                    complaint = f"{name}: {found[0]}"
                    break
        except BaseException as failure:
            complaint = f"{name}: {type(failure).__name__}: {failure}"
        try:
            os.write(write, " ".join(complaint.split()).encode())
        finally:
            os._exit(0)


def main() -> None:
    judge = Noticing()
    by_key = {one.key: one for module in MODULES for one in undone(module)}
    for line in sys.stdin.read().splitlines():
        key, *names = line.split("\t")
        change = by_key[key] if key else None
        print(judge.told(change, names).complaint, flush=True)


if __name__ == "__main__":
    main()
