"""What was run and proved of each release, as generated pages of docs/ have it."""

import re
from functools import cache
from importlib import resources
from typing import NamedTuple

from cacheproof.reference.releases import within
from cacheproof.spec.evidence import Outcome

DEPTHS = {
    "scheduler steps": "scheduler",
    "KV cache events": "kv_cache",
    "pairs of block keys": "block_hash",
    "manager calls": "manager",
    "media hash calls": "media_hash",
    "front end calls": "front_end",
    "named items": "media_identifier",
}
"""The columns of docs/evidence/releases-checked.md, and their depths."""


class Proof(NamedTuple):
    """What is proved of a text of a release."""

    contracts: tuple[str, ...]
    subject: str
    outcome: Outcome
    scope: str


class KeptSearch(NamedTuple):
    """What a search of a depth came to: `compared` operations, with their name; traces that differ
    from the reference; breaks that are not listed. None of them where the depth was refused."""

    depth: str
    what: str
    compared: int
    differences: int
    unlisted: int


class KeptReplay(NamedTuple):
    """Where a kept trace breaks a contract, under each model runner."""

    contract: str
    first: frozenset[str]
    second: frozenset[str]


@cache
def _rows(page: str) -> tuple[tuple[str, list[str]], ...]:
    """The rows of a page's tables, rules left out, each with the heading above it."""
    heading = ""
    found = []
    text = resources.files("cacheproof.listed").joinpath(f"{page}.md").read_text()
    for line in text.splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        elif line.startswith("|") and not line.startswith("|--"):
            found.append((heading, [cell.strip() for cell in line.strip().strip("|").split("|")]))
    return tuple(found)


@cache
def proofs(release: str) -> list[Proof]:
    """The proofs and refutations of a release; none where its text was not read."""
    text = resources.files("cacheproof.listed").joinpath("evidence-releases.md").read_text()
    scopes = dict(line[2:].split(": ", 1) for line in text.splitlines() if line.startswith("- "))
    found: list[Proof] = []
    columns: list[str] = []
    for subject, cells in _rows("evidence-releases"):
        if cells[0] == "":
            columns = cells
        elif cells[0] != "text" and release in columns:
            outcome, _, mark = cells[columns.index(release)].partition(", ")
            if outcome:
                contracts = tuple(cells[0].split(", "))
                found.append(Proof(contracts, subject, Outcome(outcome), scopes.get(mark, "")))
    return found


@cache
def searches(release: str) -> list[KeptSearch]:
    """The results of searches of a release, by depth."""
    header, *rows = [cells for heading, cells in _rows("releases-checked") if not heading]
    cells = next(one for one in rows if one[0] == release)
    return [
        KeptSearch(DEPTHS[what], what, *_counts(cell))
        for what, cell in zip(header[1:], cells[1:], strict=True)
    ]


def _counts(cell: str) -> tuple[int, int, int]:
    """The numbers of a cell such as "25,826: 0, 0"; none where the cell says why there are none."""
    numbers = re.fullmatch(r"([\d,]+): (\d+), (\d+)", cell)
    if numbers is None:
        return 0, 0, 0
    compared, differences, unlisted = numbers.groups()
    return int(compared.replace(",", "")), int(differences), int(unlisted)


@cache
def met(release: str) -> frozenset[str]:
    """The contracts that broke in searches of a release, all of them as listed faults do."""
    rows = [cells for heading, cells in _rows("releases-checked") if heading]
    return next(frozenset(cells[1].split(", ")) for cells in rows if cells[0] == release)


@cache
def replays() -> dict[str, list[KeptReplay]]:
    """Trace -> the contracts that it breaks, and where; empty for one that breaks nothing."""
    found: dict[str, list[KeptReplay]] = {}
    for _, (trace, contract, first, second, _) in _rows("findings-replayed")[1:]:
        runs = found.setdefault(trace, [])
        if contract != "none":
            runs.append(KeptReplay(contract, frozenset(within(first)), frozenset(within(second))))
    return found
