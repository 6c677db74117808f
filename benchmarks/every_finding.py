"""Every kept trace of faults/ on every stable release, under both model runners.

Each release has one host. docs/evidence/findings-replayed.md says in which of them a trace breaks
what, and where it cannot be run; so a page's first and last release are ones that were run.
"""

import argparse
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from cacheproof.differential.findings.finding_file import load
from cacheproof.differential.judges.examination import examine
from cacheproof.differential.targets.host.session import calm_collector
from cacheproof.differential.targets.resolve import resolve
from cacheproof.differential.traces.trace import ModelRunner, Trace
from cacheproof.listed.pages import kept_traces
from cacheproof.reference.releases import MODELLED, spans

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "evidence" / "findings-replayed.md"
COMMAND = ".venv/bin/python benchmarks/every_finding.py"
RUNNERS: tuple[ModelRunner, ...] = ("first", "second")


class Replay(NamedTuple):
    """What became of a trace on a release: the contracts that broke, None where the release refuses
    it. Keys have no model runner: theirs is "first"."""

    release: str
    trace: str
    runner: ModelRunner
    broken: frozenset[str] | None


def traces() -> Iterator[tuple[str, Trace]]:
    """The traces that need no engine, by name."""
    for name, path in sorted(kept_traces().items()):
        trace = load(path)
        assert isinstance(trace, Trace)
        if trace.depth != "engine":
            yield name, trace


def replays(release: str, wanted: Collection[str] = ()) -> Iterator[Replay]:
    """Run traces on a release, under each model runner: all where none is named."""
    with closing(resolve(f"vllm@{release}", report=print)) as target:
        for name, trace in traces():
            if wanted and name not in wanted:
                continue
            for runner in RUNNERS if trace.has_scheduler else RUNNERS[:1]:
                one = trace.under_runner(runner) if trace.has_scheduler else trace
                found = examine(one, target.run([one])[0], target)
                broken = None if found.illegal is not None else frozenset(found.broken)
                yield Replay(release, name, runner, broken)


def page(found: Sequence[Replay]) -> str:
    """docs/evidence/findings-replayed.md."""
    lines = [
        "# Every trace of the findings, on every stable release",
        "",
        f"    {COMMAND}",
        "",
        f"makes this page. Each trace of [the faults](../../faults/README.md) was run on all "
        f"{len(MODELLED)} stable",
        f"releases from {MODELLED[0]} to {MODELLED[-1]}, under both model runners where it has a",
        "scheduler. A release that lacks what a trace asks for (its sizes of blocks, sessions, a",
        "second model runner, ...) refuses it. Traces of engines are not among them: those run on",
        "0.32.0 alone.",
        "",
        "| trace | contract | breaks under the first runner | under the second | refused by |",
        "|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(replay.trace for replay in found):
        mine = [replay for replay in found if replay.trace == name]
        rules = {rule for replay in mine for rule in replay.broken or ()}
        refused = {one.release for one in mine if one.runner == "first" and one.broken is None}
        for rule in sorted(rules) or ["none"]:
            cells = [
                spans({one.release for one in mine if one.runner == runner and breaks(one, rule)})
                for runner in RUNNERS
            ]
            lines.append(f"| {name} | {rule} | {' | '.join(cells)} | {spans(refused)} |")
    return "\n".join(lines) + "\n"


def breaks(replay: Replay, rule: str) -> bool:
    """Whether that contract broke."""
    return replay.broken is not None and rule in replay.broken


def merged(before: str, after: str) -> str:
    """A page with the rows of another in it, in their place or in that of the same traces."""
    (head, old), (_, new) = (_split(text) for text in (before, after))
    rows = sorted((old | new).items(), key=lambda one: one[0])
    return "\n".join([*head, *(row for _, of_trace in rows for row in of_trace)]) + "\n"


def _split(text: str) -> tuple[list[str], dict[str, list[str]]]:
    """What stands above the rows of a page, and its rows by their traces."""
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("|--")) + 1
    of_traces: dict[str, list[str]] = {}
    for line in lines[first:]:
        of_traces.setdefault(line.split(" | ")[0].removeprefix("| "), []).append(line)
    return lines[:first], of_traces


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", action="append", default=[], help="run this one, keep the rest")
    wanted = parser.parse_args().trace
    calm_collector()
    found: list[Replay] = []
    for release in MODELLED:
        found += replays(release, wanted)
        print(release, flush=True)
    PAGE.write_text(merged(PAGE.read_text(), page(found)) if wanted else page(found))


if __name__ == "__main__":
    main()
