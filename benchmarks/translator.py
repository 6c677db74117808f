"""The translator's own kill matrix: each reading undone, and whether the conformance suite notices.

A change of a module of the translator is judged by the claims that run its line, the cheapest
first. What came of each is kept in a file at once, so that an interrupted run goes on where it
stopped; docs/translator-kills.md is written from what is there.
"""

import argparse
import itertools
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import coverage
import msgspec

from cacheproof.proofs.conformance.undone import FOLDER, MODULES, Undone, undone

ROOT = Path(__file__).parent.parent
OUTCOMES = ROOT / "benchmarks" / "translator.json"
COVERAGE = ROOT / "benchmarks" / "translator_coverage.json"
PAGE = ROOT / "docs" / "translator-kills.md"
COMMAND = ".venv/bin/python benchmarks/translator.py"
CLAIMS_MAX = 30
"""So many claims a change is judged by, of those that run its line."""
SECONDS_MAX = 120


class Result(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What became of a change: what was complained of first, "" where nothing was; and how many of
    the claims that run its line were asked."""

    key: str
    line: int
    complaint: str
    asked: int
    running: int


class Lines(msgspec.Struct, frozen=True):
    """Which claims run a line: module -> line -> claims, the cheapest first."""

    digest: str
    claims: dict[str, dict[int, list[str]]]


def lines_of_claims() -> Lines:
    """Run every claim, and write down which lines it runs."""
    digest = str(sum((FOLDER / f"{one}.py").stat().st_size for one in MODULES))
    if COVERAGE.exists():
        kept = msgspec.json.decode(COVERAGE.read_bytes(), type=Lines)
        if kept.digest == digest:
            return kept
    found = coverage.Coverage(data_file=None, include=[str(FOLDER / "*")])
    found.start()
    from cacheproof.proofs.conformance.claims import claims
    from cacheproof.proofs.conformance.judges import OfCPython, OfTranslator, complaints

    cpython, translator = OfCPython(), OfTranslator()
    cost: dict[str, float] = {}
    for one in claims():
        found.switch_context(str(one))
        started = time.process_time()
        assert complaints(one, cpython, translator) == [], str(one)
        cost[str(one)] = time.process_time() - started
    found.stop()
    data = found.get_data()
    by_module: dict[str, dict[int, list[str]]] = {}
    for module in MODULES:
        lines = data.contexts_by_lineno(str(FOLDER / f"{module}.py"))
        by_module[module] = {
            line: sorted((one for one in names if one in cost), key=lambda one: cost[one])
            for line, names in lines.items()
        }
    result = Lines(digest, by_module)
    COVERAGE.write_bytes(msgspec.json.encode(result))
    return result


def judged(change: Undone, lines: Lines) -> Result:
    """Judge one change in a process of its own."""
    of_module = lines.claims[change.module]
    running = of_module.get(change.line, [])
    if not running:  # a line of a definition, run when the module is imported
        running = list(dict.fromkeys(itertools.chain.from_iterable(of_module.values())))
    asked = _spread(running)
    command = [sys.executable, "-m", "cacheproof.proofs.conformance.undone"]
    try:
        done = subprocess.run(
            [*command, change.module, str(change.number), change.key],
            input="\n".join(asked),
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        failed = done.stderr.strip().splitlines()[-1:] if done.returncode else []
        complaint = done.stdout.strip() or "".join(failed)
        if "another text by now" in complaint:
            raise SystemExit(complaint)
    except subprocess.TimeoutExpired:
        complaint = "it does not end"
    return Result(change.key, change.line, complaint[:200], len(asked), len(running))


def _spread(running: Sequence[str]) -> list[str]:
    """The cheapest, and some of each construct."""
    first = list(running[: CLAIMS_MAX // 3])
    by_construct: dict[str, list[str]] = {}
    for one in running:
        by_construct.setdefault(one.partition(":")[0], []).append(one)
    turns = itertools.zip_longest(*by_construct.values())
    spread = [one for turn in turns for one in turn if one is not None]
    return list(dict.fromkeys([*first, *spread]))[:CLAIMS_MAX]


def page(results: Iterable[Result], changes: Sequence[Undone]) -> str:
    known = {one.key: one for one in results}
    lines = [
        "# The translator's own kill matrix",
        "",
        f"    {COMMAND}",
        "",
        "undoes each reading of the translator, one at a time: an obligation or a refusal dropped,",
        "a condition taken the other way, a part of one left out, a comparison that is off by one,",
        "an effect forgotten. [The claims](../proofs/conformance) that run the line judge it,",
        f"{CLAIMS_MAX} at most. It goes on where it stopped, and makes this page.",
        "",
        "| module | changes | run | noticed | not noticed |",
        "|---|---|---|---|---|",
    ]
    of_module = Counter(one.module for one in changes)
    for module, count in of_module.items():
        here = [known[one.key] for one in changes if one.module == module and one.key in known]
        noticed = sum(bool(one.complaint) for one in here)
        lines.append(f"| {module} | {count} | {len(here)} | {noticed} | {len(here) - noticed} |")
    run = [known[one.key] for one in changes if one.key in known]
    noticed = sum(bool(one.complaint) for one in run)
    lines.append(f"| all | {len(changes)} | {len(run)} | {noticed} | {len(run) - noticed} |")
    lines += [
        "",
        "Changes are run in random order. What loops claim, and what only block pools have, no",
        "claim asks of: other tests do, and they take no part here.",
        "None of those that were not noticed is argued to be equivalent.",
    ]
    lines += ["", "## Not noticed", "", "| line | change | claims asked, of those that run it |"]
    lines += ["|---|---|---|"]
    for one in run:
        if not one.complaint:
            words = one.key.replace("|", "\\|")
            lines.append(f"| {one.line} | `{words}` | {one.asked} of {one.running} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--module", action="append", choices=MODULES, help="only this one")
    parser.add_argument("--seed", type=int, default=0, help="of the order in which changes are run")
    parser.add_argument("--minutes", type=float, default=1e9, help="when to stop")
    parser.add_argument("--again", action="store_true", help="run again what was not noticed")
    options = parser.parse_args()
    changes = [one for module in MODULES for one in undone(module)]
    results: dict[str, Result] = {}
    if OUTCOMES.exists():
        kept = msgspec.json.decode(OUTCOMES.read_bytes(), type=list[Result])
        results = {one.key: one for one in kept}
    due = [
        one
        for one in changes
        if one.module in (options.module or MODULES)
        and (one.key not in results or (options.again and not results[one.key].complaint))
    ]
    random.Random(options.seed).shuffle(due)
    lines = lines_of_claims()
    stop = time.monotonic() + options.minutes * 60
    for number, one in enumerate(due):
        if time.monotonic() > stop:
            break
        results[one.key] = judged(one, lines)
        said = results[one.key].complaint or "NOT NOTICED"
        print(f"{number + 1}/{len(due)} {one.key}: {said}", flush=True)
        listed = sorted(results.values(), key=lambda found: found.key)
        OUTCOMES.write_bytes(msgspec.json.format(msgspec.json.encode(listed), indent=1))
    PAGE.write_text(page(results.values(), changes))


if __name__ == "__main__":
    main()
