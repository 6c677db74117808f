"""The command prove: what is proved of which text, in one evidence table."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from cacheproof import evidence_page
from cacheproof.announcing import as_json
from cacheproof.console import Output
from cacheproof.differential.campaign import LANES
from cacheproof.differential.errors import InputError
from cacheproof.differential.known import KnownFault
from cacheproof.differential.targets import checkouts, imported, releases
from cacheproof.differential.targets.resolve import reading_of, stated_release
from cacheproof.differential.verdict import HOLDS, UNLISTED, VOID
from cacheproof.proofs.evidence import Evidence, Outcome
from cacheproof.spec.versions import Versions
from cacheproof.workers import results

if TYPE_CHECKING:
    from cacheproof.proofs.symbolic.evidence import Read

REFERENCE = "reference"
CHECKOUT = "path:"
MANAGERS = "vllm/v1/core/encoder_cache_manager.py"
KEYED_SINCE = "0.10.2"
"""Managers of releases before know requests, not identifiers; their text is not proved."""
CLASSES = {
    "EncoderCacheManager": Versions("all"),
    "EncoderDecoderCacheManager": Versions(">=0.13.0"),
}
"""The releases that have each class of the module; of none the block pool is read."""
SECONDS_OF_TEXT = {"EncoderCacheManager": 30, "EncoderDecoderCacheManager": 5, "BlockPool": 45}
_EXTENSIONS = (".pyd", ".so")
TOOLS = ("z3-solver", "crosshair-tool")


def prove(
    output: Output,
    targets: Sequence[str] | None,
    known: Sequence[KnownFault],
    *,
    seed: int,
    markdown: bool,
) -> int:
    """Prove targets by their text and print the evidence. Returns the exit code.

    Raises:
        InputError: no such target; or a library that proofs need is missing.
    """
    wanted = _wanted(targets, output)
    say = output.say if markdown else output.line
    told = {one.name: _announced(one, say) for one in wanted if one is not None}
    for one in wanted:
        if one is not None and one.name.startswith(CHECKOUT):
            _refuse_changed(one)
    names = {REFERENCE if one is None else one.name for one in wanted}
    jobs = list(_jobs(wanted, seed))
    longest_first = sorted(range(len(jobs)), key=lambda number: -jobs[number].seconds)
    found: dict[int, list[Evidence]] = {}
    with output.bar("proving", len(jobs)) as advance:
        for place, evidence in results(_run, [jobs[number] for number in longest_first]):
            found[longest_first[place]] = evidence
            advance(1)
    rows = [row for number in sorted(found) for row in found[number] if row.target in names]
    code = exit_code(rows, known)
    if markdown:
        output.line(evidence_page.markdown(rows, _tools()))
    else:
        _print(output, rows, known)
        output.line(_closing_line(rows, known, code))
    output.write_json(
        "prove",
        {
            "tools": _tools(),
            "models": told,
            "evidence": [asdict(row) for row in rows],
            "exit_code": code,
        },
    )
    return code


@dataclass(frozen=True)
class _Tree:
    """A release or a checkout, by the name that the user gives it."""

    name: str
    release: releases.Release

    @property
    def promises(self) -> str:
        """The release whose contracts it is asked to keep: its own, or the one that it is nearest
        to.

        Raises:
            InputError: it is near to none.
        """
        stated = stated_release(self.release.version)
        if stated is not None:
            return stated
        reading = reading_of(self.release)
        if reading is None:
            raise InputError(
                f"--target {self.name}: it does not say of which release it is, and reads like "
                "none; tag it, or write its version into vllm/_version.py"
            )
        return reading.nearest


def _announced(tree: _Tree, say: Callable[[str], None]) -> dict[str, object]:
    """Say how the text that is proved stands to those of the modelled releases, unless it is one.
    Returns it as JSON has it."""
    reading = reading_of(tree.release)
    lines = [] if reading is None else reading.announcement(tree.name)
    for line in lines:
        say(line)
    return as_json(lines, reading)


@dataclass(frozen=True)
class _Job:
    """A piece of the work, and about how long it takes: the longest are begun first."""

    seconds: int
    run: Callable[..., list[Evidence]]
    arguments: tuple[Any, ...]


def _run(job: _Job) -> list[Evidence]:
    return job.run(*job.arguments)


def _wanted(targets: Sequence[str] | None, output: Output) -> list[_Tree | None]:
    """The releases and checkouts to prove, and None for the reference."""
    if missing := [tool for tool in ("z3", "crosshair") if find_spec(tool) is None]:
        raise InputError(
            f"prove needs {' and '.join(missing)}, not installed here; expected the libraries of "
            "pip install 'cacheproof[dev]'"
        )
    if targets is None:
        installed = releases.list_installed()
        keyed = [one for one in installed if _is_keyed(one.version)]
        return [None, *(_Tree(f"vllm@{one.version}", one) for one in keyed)]
    found: list[_Tree | None] = []
    for target in targets:
        if target == REFERENCE:
            found.append(None)
            continue
        if target.startswith(CHECKOUT):
            folder = Path(target.removeprefix(CHECKOUT))
            found.append(_Tree(target, checkouts.for_path(folder, report=output.say)))
            continue
        word, _, version = target.partition("@")
        if word != "vllm" or not version:
            raise InputError(
                f"--target {target}: expected {REFERENCE}, vllm@VERSION or {CHECKOUT}DIR"
            )
        if not _is_keyed(releases.parse(version)):
            raise InputError(
                f"--target {target}: its manager knows requests, not identifiers, and is not "
                f"proved; expected {KEYED_SINCE} or later"
            )
        release = releases.install(version, report=output.say)
        found.append(_Tree(f"vllm@{release.version}", release))
    return found


def _is_keyed(version: str) -> bool:
    return releases.order(version) >= releases.order(KEYED_SINCE)


def _jobs(wanted: Sequence[_Tree | None], seed: int) -> Iterator[_Job]:
    """The work, in the order in which it is told."""
    from cacheproof.proofs.crosshair import text, witness
    from cacheproof.proofs.keys.prove import prove_keys
    from cacheproof.proofs.symbolic.evidence import SUBJECTS, families, prove_texts, texts_of
    from cacheproof.proofs.symbolic.lemmas import prove_lemmas

    for name in SUBJECTS:
        texts = texts_of(name, _sources(name, wanted))
        for family in families(one for one in texts if one.release is not None or None in wanted):
            yield _Job(SECONDS_OF_TEXT[name] * len(family), prove_texts, (family, seed))
    yield _Job(40, prove_keys, (seed,))
    yield _Job(1, prove_lemmas, (seed,))
    if None in wanted:
        for name in (text.ENCODER_CACHE, text.ENCODER_DECODER_CACHE):
            yield _Job(20, witness.run, (text.of_reference(name),))


def _sources(name: str, wanted: Sequence[_Tree | None]) -> Iterator["Read"]:
    """The class in each tree that has it, the newest release first.

    Raises:
        InputError: a tree has no such file or class, its Python cannot be read here, or Python
            imports something else in its place.
    """
    from cacheproof.proofs.symbolic.evidence import Read
    from cacheproof.proofs.symbolic.source import source_of

    for one in reversed(wanted):
        if one is not None:
            path = one.release.tree / MANAGERS
            within = one.name.replace("@", " ")
            if (other := _in_place_of(path)) is not None:
                raise InputError(
                    f"--target {one.name}: Python imports {other}; expected {path} in its place"
                )
            if path.exists() and not path.is_file():
                raise InputError(
                    f"--target {one.name}: {path} is no file; expected the managers' module"
                )
            try:
                yield Read(one.name, one.promises, source_of(path, name, within))
            except LookupError as error:
                if one.promises in CLASSES.get(name, ()):
                    raise InputError(
                        f"--target {one.name}: {path}: no class {name}; expected that of "
                        f"{one.promises}"
                    ) from error
            except (OSError, SyntaxError, ValueError) as error:
                raise InputError(
                    f"--target {one.name}: {path}: {error}; expected the managers' module, as "
                    "this Python reads it"
                ) from error


def _refuse_changed(tree: _Tree) -> None:
    """Refuse a checkout of which another module changes a class that is proved.

    Raises:
        InputError: it does; or the checkout cannot be read or imported.
    """
    read = [one.source for name in CLASSES for one in _sources(name, [tree])]
    module = ".".join(Path(MANAGERS).with_suffix("").parts)
    names = [one.name for one in read]
    imported.refuse_changed(tree.name, tree.release, module, read[0].module, names)


def _in_place_of(module: Path) -> Path | None:
    """What Python imports by the module's name though a module stands there: a package or an
    extension of that name."""
    package = module.with_suffix("").glob("__init__.*")
    extensions = (
        one for one in module.parent.glob(f"{module.stem}.*") if one.suffix in _EXTENSIONS
    )
    return next(itertools.chain(package, extensions), None)


# what came of it


def _is_listed(row: Evidence, known: Sequence[KnownFault]) -> bool:
    """Whether a fault of that contract is known of the release, in whatever lane or kind."""
    release = row.target.partition("@")[2] or None
    return any(
        fault.covers(row.contract, release, lane, fault.kind or "")
        for fault in known
        for lane in (fault.lanes or LANES)
    )


def exit_code(rows: Sequence[Evidence], known: Sequence[KnownFault]) -> int:
    """0 where all holds but what is listed, 1 where something unlisted is refuted, else 3."""
    if any(row.outcome is Outcome.REFUTED and not _is_listed(row, known) for row in rows):
        return UNLISTED
    said = (Outcome.HOLDS, Outcome.REFUTED)
    if not rows or any(row.outcome not in said or _is_hollow(row) for row in rows):
        return VOID
    return HOLDS


def _is_hollow(row: Evidence) -> bool:
    """Whether a check that passed is not known to be able to fail."""
    return row.outcome is Outcome.HOLDS and not row.counts


def _closing_line(rows: Sequence[Evidence], known: Sequence[KnownFault], code: int) -> str:
    held = sum(row.outcome is Outcome.HOLDS and row.counts for row in rows)
    refuted = [row for row in rows if row.outcome is Outcome.REFUTED]
    unlisted = sum(not _is_listed(row, known) for row in refuted)
    unknown = sum(row.outcome is Outcome.UNKNOWN for row in rows)
    alone = sum(row.outcome is Outcome.ALONE for row in rows)
    vacuous = sum(row.outcome is Outcome.VACUOUS for row in rows)
    disagree = sum(row.outcome is Outcome.DISAGREE for row in rows)
    hollow = sum(_is_hollow(row) for row in rows)
    return (
        f"{held} hold, each beside changes that break it; {len(refuted)} refuted, {unlisted} of "
        f"them not listed; {unknown} unknown; {alone} proved alone; {vacuous} vacuous; "
        f"witnesses disagree about {disagree}; {hollow} without such a change; "
        f"the hardest condition took {_work(*rows) or 'nothing'} of the solver's limit; "
        f"exit code {code}"
    )


def _print(output: Output, rows: Sequence[Evidence], known: Sequence[KnownFault]) -> None:
    table = Table(
        "contract",
        "target",
        "method",
        "outcome",
        "scope",
        "twins",
        "work",
        box=None,
        pad_edge=False,
    )
    for contracts, targets, row in evidence_page.together(rows):
        twins = f"{sum(twin.refuted for twin in row.twins)} of {len(row.twins)}"
        table.add_row(contracts, targets, row.method, row.outcome, row.scope, twins, _work(row))
    output.report.print(table)
    for row in rows:
        if row.outcome is not Outcome.HOLDS:
            listed = "listed" if _is_listed(row, known) else "not listed"
            output.line(f"{row.contract} of {row.target}, {row.outcome}, {listed}: {row.note}")


def _work(*rows: Evidence) -> str:
    """What the hardest condition took of the solver's limit, where that was measured."""
    measured = [row.work_max for row in rows if row.work_max is not None]
    return f"{max(measured):.2%}" if measured else ""


def _tools() -> dict[str, str]:
    return {tool: metadata.version(tool) for tool in TOOLS}
