"""The translator's own kill matrix: each reading undone, and whether the conformance suite notices.

A change of a module of the translator is judged by the claims that run its line, the cheapest
first. What came of each is kept in a file at once, so that an interrupted run goes on where it
stopped; docs/evidence/translator-kills.md is written from what is there. A change that no claim
notices must be argued in proofs/conformance/argued.toml, and one that is argued must not be
noticed.
"""

import argparse
import ast
import hashlib
import itertools
import multiprocessing
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import coverage
import msgspec

from cacheproof.proofs.conformance.claims import ConformanceClaim, claims
from cacheproof.proofs.conformance.noticing import Noticing, parts
from cacheproof.proofs.conformance.undone import FOLDER, MODULES, Undone, path_of, undone

ROOT = Path(__file__).parent.parent
CONFORMANCE = ROOT / "proofs" / "conformance"
OUTCOMES = CONFORMANCE / "undone.jsonl"
ARGUMENTS = CONFORMANCE / "argued.toml"
COVERAGE = ROOT / "benchmarks" / "translator_coverage.json"
PAGE = ROOT / "docs" / "evidence" / "translator-kills.md"
COMMAND = ".venv/bin/python benchmarks/translator.py"
CHEAPEST = 8
"""So many claims are asked before all others, whatever their construct."""


class Result(msgspec.Struct, frozen=True, forbid_unknown_fields=True, order=True):
    """What became of a change: which claim noticed, "" where none of those that were asked did."""

    key: str
    claim: str
    asked: int


class Run(msgspec.Struct, frozen=True):
    """What a claim runs: lines by module; `cost` in seconds of CPU time."""

    text: str
    cost: float
    lines: dict[str, list[int]]


class Kept(msgspec.Struct):
    """What need not be asked again of a translator and judges whose texts have that `digest`: claim
    -> what it runs; a change's key -> the claims that did not notice it."""

    digest: str
    runs: dict[str, Run] = {}
    silent: dict[str, list[str]] = {}

    @classmethod
    def of(cls, path: Path) -> "Kept":
        digest = hashlib.sha256()
        for one in sorted([*FOLDER.rglob("*.py"), *CONFORMANCE.glob("*.py")]):
            digest.update(one.read_bytes())
        if path.exists():
            kept = msgspec.json.decode(path.read_bytes(), type=cls)
            if kept.digest == digest.hexdigest():
                return kept
        return cls(digest.hexdigest())


def put(path: Path, found: bytes) -> None:
    """Write a file that is never there in part."""
    beside = path.with_suffix(".part")
    beside.write_bytes(found)
    beside.replace(path)


def texts() -> dict[str, str]:
    """What is asked of a change, by name: claims, and checks of parts; a digest of each."""
    of_parts = hashlib.sha256((CONFORMANCE / "parts.py").read_bytes()).hexdigest()
    return {**dict.fromkeys(parts(), of_parts), **{str(one): text_of(one) for one in claims()}}


def text_of(claim: ConformanceClaim) -> str:
    stated = [
        ast.unparse(expression)
        for loops in claim.loops.values()
        for one in loops
        for expression in (*one.invariants, one.variant)
        if expression is not None
    ]
    words = (claim.word, claim.breaking.module, *stated)
    return hashlib.sha256("\n".join(words).encode()).hexdigest()


def learn(wanted: Sequence[str], path: Path) -> None:
    """Run claims, and write down which lines they run. A process does this for itself: the
    translator's modules are loaded by it.

    Raises:
        SystemExit: a claim is complained of, though nothing is changed.
    """
    found = coverage.Coverage(data_file=None, include=[str(FOLDER / "**" / "*.py")])
    found.start()
    from cacheproof.proofs.conformance.cpython import OfCPython
    from cacheproof.proofs.conformance.judges import OfTranslator, complaints
    from cacheproof.proofs.conformance.parts import CHECKS

    cpython, translator = OfCPython(), OfTranslator()
    by_name = {str(one): one for one in claims()}
    cost: dict[str, float] = {}
    for name in wanted:
        found.switch_context(name)
        started = time.process_time()
        if name in by_name:
            wrong = complaints(by_name[name], cpython, translator)
        else:
            wrong = list(CHECKS[name]())
        if wrong:
            raise SystemExit(f"{name}: {wrong[0]}")
        cost[name] = time.process_time() - started
    found.stop()
    lines: dict[str, dict[str, list[int]]] = {name: {} for name in wanted}
    for module in MODULES:
        at = found.get_data().contexts_by_lineno(str(path_of(module)))
        for line, names in at.items():
            for name in names:
                if name in lines:
                    lines[name].setdefault(module, []).append(line)
    kept, asked = Kept.of(path), texts()
    for name in wanted:
        kept.runs[name] = Run(asked[name], cost[name], lines[name])
    put(path, msgspec.json.encode(kept))


def known() -> Kept:
    """What is known of all claims as they stand."""
    kept = Kept.of(COVERAGE)
    asked = texts()
    wanted = [
        name
        for name, text in asked.items()
        if name not in kept.runs or kept.runs[name].text != text
    ]
    if wanted:
        child = multiprocessing.get_context("fork").Process(target=learn, args=(wanted, COVERAGE))
        child.start()
        child.join()
        if child.exitcode:
            sys.exit("a claim is complained of, though nothing is undone")
        kept = Kept.of(COVERAGE)
    kept.runs = {name: kept.runs[name] for name in asked}
    changed = {*wanted}
    kept.silent = {
        key: [one for one in names if one in asked and one not in changed]
        for key, names in kept.silent.items()
    }
    return kept


def running(change: Undone, kept: Kept) -> list[str]:
    """The claims that run its lines, the cheapest first, then one of each construct in turn."""
    found = [
        name
        for name, run in kept.runs.items()
        if change.module in run.lines
        and (change.at_import or not {*change.lines}.isdisjoint(run.lines[change.module]))
    ]
    found.sort(key=lambda name: kept.runs[name].cost)
    by_construct: dict[str, list[str]] = {}
    for one in found:
        by_construct.setdefault(one.partition(":")[0], []).append(one)
    turns = itertools.zip_longest(*by_construct.values())
    spread = [one for turn in turns for one in turn if one is not None]
    return list(dict.fromkeys([*found[:CHEAPEST], *spread]))


def problems(
    results: Mapping[str, Result], arguments: Mapping[str, str], changes: Sequence[Undone]
) -> list[str]:
    """What is wrong with what was found and argued."""
    keys = {one.key for one in changes}
    found = [f"not run: {key}" for key in sorted(keys - results.keys())]
    for key, result in results.items():
        if not result.claim and key not in arguments and key in keys:
            found.append(f"not noticed, and not argued: {key}")
        if result.claim and key in arguments:
            found.append(f"argued, and noticed by {result.claim}: {key}")
    return [*found, *(f"argued, and not there: {key}" for key in arguments.keys() - keys)]


def page(
    results: Mapping[str, Result], arguments: Mapping[str, str], changes: Sequence[Undone]
) -> str:
    lines = [
        "# The translator's own kill matrix",
        "",
        f"    {COMMAND}",
        "",
        "undoes each reading of the translator, one at a time: an obligation or a refusal",
        "dropped, a condition taken the other way, a part left out, a comparison off by one,",
        "an effect forgotten. [The claims](../../proofs/conformance) that run the line judge it",
        "until one complains, and [checks](../../proofs/conformance/parts.py) of parts "
        "that no claim",
        "reaches. Where none does, [a line](../../proofs/conformance/argued.toml) argues why the",
        "translator still says *proved* of no text that CPython breaks. The command fails "
        "where such a line is missing, and where one",
        "speaks of a change that is noticed or gone. It goes on where it stopped, asks of what",
        "was not noticed all that was not asked yet, and makes this page. `make test` asks some",
        "of what noticed again, `make test-all` all.",
        "",
        "| module | changes | run | noticed | argued | neither |",
        "|---|---|---|---|---|---|",
    ]
    of_module = {module: [one.key for one in changes if one.module == module] for module in MODULES}
    for name, keys in [*of_module.items(), ("all", [one.key for one in changes])]:
        run = [results[key] for key in keys if key in results]
        noticed = sum(bool(one.claim) for one in run)
        argued = sum(not one.claim and one.key in arguments for one in run)
        counts = (len(keys), len(run), noticed, argued, len(run) - noticed - argued)
        lines.append(f"| {name} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines) + "\n"


def read_results() -> dict[str, Result]:
    if not OUTCOMES.exists():
        return {}
    decoder = msgspec.json.Decoder(Result)
    return {one.key: one for one in decoder.decode_lines(OUTCOMES.read_bytes())}


def read_arguments() -> dict[str, str]:
    """Why a change that nothing notices makes the translator claim no more than CPython does."""
    return msgspec.toml.decode(ARGUMENTS.read_bytes(), type=dict[str, str])


def run(
    due: Iterable[Undone],
    kept: Kept,
    results: dict[str, Result],
    minutes: float,
    claims_max: int | None,
) -> None:
    """Judge changes, and keep what comes of each at once."""
    judge = Noticing()
    judge.prepare()
    vain = Counter(itertools.chain.from_iterable(kept.silent.values()))
    stop = time.monotonic() + minutes * 60
    for change in due:
        if time.monotonic() > stop:
            return
        silent = kept.silent.get(change.key, [])
        names = [one for one in running(change, kept) if one not in {*silent}]
        names.sort(key=lambda one: vain[one] > 0)  # what was never asked in vain may tell sooner
        names = names[:claims_max]
        told = judge.told(change, names)
        noticed = names[told.asked - 1] if told.complaint else ""
        if not told.complaint:
            kept.silent[change.key] = [*silent, *names]
            put(COVERAGE, msgspec.json.encode(kept))
        asked = told.asked + len(silent)
        results[change.key] = Result(change.key, noticed, asked)
        put(OUTCOMES, msgspec.json.Encoder().encode_lines(sorted(results.values())))
        print(f"{change.key}: {told.complaint[:200] or 'NOT NOTICED'}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--module", action="append", choices=MODULES, help="only this one")
    parser.add_argument("--seed", type=int, default=0, help="of the order in which changes are run")
    parser.add_argument("--minutes", type=float, default=1e9, help="when to stop")
    parser.add_argument("--claims", type=int, help="so many of each change at most, for now")
    parser.add_argument("--afresh", action="store_true", help="run again what was noticed, too")
    options = parser.parse_args()
    changes = [one for module in MODULES for one in undone(module)]
    keys = {one.key for one in changes}
    results = {key: one for key, one in read_results().items() if key in keys}
    kept = known()
    if options.afresh:
        results, kept.silent = {}, {}
    due = [
        one
        for one in changes
        if one.module in (options.module or MODULES)
        and (one.key not in results or not results[one.key].claim)
        and (one.key not in results or {*running(one, kept)} - {*kept.silent.get(one.key, [])})
    ]
    random.Random(options.seed).shuffle(due)
    arguments = read_arguments()
    due.sort(key=lambda one: (one.key in results, one.key in arguments))
    print(f"{len(due)} of {len(changes)} are to be run", flush=True)
    run(due, kept, results, options.minutes, options.claims)
    PAGE.write_text(page(results, arguments, changes))
    wrong = problems(results, arguments, changes)
    for one in wrong[:20]:
        print(one)
    count = Counter(bool(one.claim) for one in results.values())
    print(f"{count[True]} noticed, {count[False]} not; {len(wrong)} problems")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
