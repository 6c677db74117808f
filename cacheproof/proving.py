"""The command prove: what is proved of which text, in one evidence table."""

import ast
import inspect
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from cacheproof import evidence_page
from cacheproof.announcing import as_json
from cacheproof.console import Output
from cacheproof.differential.errors import InputError
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.search.verdict import HOLDS, UNLISTED, VOID
from cacheproof.differential.targets import checkouts, imported, releases
from cacheproof.differential.targets.resolve import (
    plug_in_named,
    reading_of,
    resolve,
    stated_release,
)
from cacheproof.kept_proofs import KeptProofs, code_digest, digest_of
from cacheproof.reference.semantics import Semantics
from cacheproof.spec.evidence import Evidence, Outcome
from cacheproof.spec.versions import Versions
from cacheproof.workers import results

if TYPE_CHECKING:
    from cacheproof.proofs.symbolic.evidence import Read, Text

REFERENCE = "reference"
CHECKOUT = "path:"
MANAGERS = "vllm/v1/core/encoder_cache_manager.py"
PLUGGED = "EncoderCacheManager"
"""The class whose place a plug-in takes."""
KEYED_SINCE = "0.10.2"
"""Managers of releases before know requests, not identifiers; their text is not proved."""
CLASSES = {
    "EncoderCacheManager": Versions("all"),
    "EncoderDecoderCacheManager": Versions(">=0.13.0"),
}
"""The releases that have each class of the module; of none the block pool is read."""
SECONDS_OF_TEXT = {
    "EncoderCacheManager": 30,
    "EncoderDecoderCacheManager": 5,
    "BlockPool": 45,
    "EntryTable": 10,
}
_EXTENSIONS = (".pyd", ".so")
TOOLS = ("z3-solver", "crosshair-tool")


def prove(
    output: Output,
    targets: Sequence[str] | None,
    known: Sequence[KnownFault],
    *,
    seed: int,
    markdown: bool,
    fresh: bool = False,
    workers: int | None = None,
) -> int:
    """Prove targets by their text and print the evidence; what was proved before of the same text
    is told again, unless all is to be proved afresh. Returns the exit code. `workers`: None for as
    many as there are cores.

    Raises:
        InputError: no such target; or a library that proofs need is missing.
    """
    wanted = _wanted(targets, output)
    say = output.say if markdown else output.line
    told = {one.name: _announced(one, say) for one in wanted if one is not None}
    for one in wanted:
        if one is not None and one.name.startswith(CHECKOUT):
            _refuse_changed(one)
    promised = {one.name: one.promises for one in wanted if one is not None}
    names = {REFERENCE, *promised} if None in wanted else {*promised}
    jobs = list(_jobs(wanted, seed))
    kept = KeptProofs.locate(output.say)
    found = {} if fresh else _proved_before(jobs, kept)
    before = sum(len(rows) for rows in found.values())
    due = [one for one in (job.without(found) for job in jobs) if one.pieces]
    due.sort(key=lambda job: -job.seconds)
    with output.bar("proving", len(due)) as advance:
        for number, evidence in results(_Job.evidence, due, workers):
            for piece, rows in due[number].by_piece(evidence):
                kept.keep(piece.digest, rows)
                found[piece] = rows
            advance(1)
    rows = [
        row
        for job in jobs
        for piece in job.pieces
        for row in piece.told(found[piece])
        if row.target in names
    ]
    listed = {row for row in rows if is_listed(row, known, promised.get(row.target))}
    code = exit_code(rows, listed)
    if markdown:
        output.line(evidence_page.markdown(rows, _tools()))
    else:
        _print(output, rows, listed)
        output.line(_closing_line(rows, listed, before, code))
    output.write_json(
        "prove",
        {
            "tools": _tools(),
            "models": told,
            "evidence": [asdict(row) for row in rows],
            "proved_before": before,
            "exit_code": code,
        },
    )
    return code


@dataclass(frozen=True)
class _Tree:
    """A release or a checkout, by the name that the user gives it; or the class of a `plug_in`, by
    its file and name, in the place of the release's encoder cache manager."""

    name: str
    release: releases.Release
    plug_in: tuple[Path, str] | None = None

    def place_of(self, kind: str) -> tuple[Path, str] | None:
        """The file and the name of a class of that kind; None where a plug-in has none."""
        if self.plug_in is None:
            return self.release.tree / MANAGERS, kind
        return self.plug_in if kind == PLUGGED else None

    @property
    def is_release(self) -> bool:
        """Whether it is a release as it was installed, and no checkout of one."""
        return self.plug_in is None and not self.name.startswith(CHECKOUT)

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
class _Piece:
    """What is proved by itself, and kept.

    Attributes:
        digest: of all that its rows say something of.
        text: what of a target it is about; None where no target's text enters it.
    """

    digest: str
    text: "Text | None" = field(default=None, compare=False)

    def told(self, rows: Iterable[Evidence]) -> Iterator[Evidence]:
        """Its rows, of each target that has the text."""
        for row in rows:
            for target in (row.target,) if self.text is None else self.text.targets:
                yield replace(row, target=target)


@dataclass(frozen=True)
class _Job:
    """Pieces that are proved in one process, since what they have in common is proved once; and
    about how long each takes: the longest jobs are begun first."""

    seconds_of_piece: int
    run: Callable[[Sequence["Text"]], list[Evidence]]
    pieces: tuple[_Piece, ...]

    @property
    def seconds(self) -> int:
        return self.seconds_of_piece * len(self.pieces)

    def without(self, found: Mapping[_Piece, object]) -> "_Job":
        """What is left of it."""
        return replace(self, pieces=tuple(one for one in self.pieces if one not in found))

    def evidence(self) -> list[Evidence]:
        """Do the work."""
        return self.run([one.text for one in self.pieces if one.text is not None])

    def by_piece(self, evidence: Sequence[Evidence]) -> Iterator[tuple[_Piece, list[Evidence]]]:
        """What came of each piece: of a text, the rows of the first target that has it."""
        for piece in self.pieces:
            first = None if piece.text is None else piece.text.targets[0]
            yield piece, [row for row in evidence if first in (None, row.target)]


def _proved_before(jobs: Iterable[_Job], kept: KeptProofs) -> dict[_Piece, list[Evidence]]:
    found = {piece: kept.rows(piece.digest) for job in jobs for piece in job.pieces}
    return {piece: rows for piece, rows in found.items() if rows is not None}


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
        if (named := plug_in_named(target)) is not None:
            module, own_name, version = named
            release = releases.install(version, report=output.say)
            path = _file_of(module, release.tree)
            if path is None:
                raise InputError(
                    f"--target {target}: no file of a module {module} in the current folder, in "
                    "vLLM or in what is installed here; expected MODULE:CLASS"
                )
            found.append(_Tree(target, release, (path, own_name)))
            continue
        word, _, version = target.partition("@")
        if word != "vllm" or not version:
            raise InputError(
                f"--target {target}: expected {REFERENCE}, vllm@VERSION, {CHECKOUT}DIR or "
                "MODULE:CLASS[@VERSION]"
            )
        if not _is_keyed(releases.parse(version)):
            raise InputError(
                f"--target {target}: its manager knows requests, not identifiers, and is not "
                f"proved; expected {KEYED_SINCE} or later"
            )
        release = releases.install(version, report=output.say)
        found.append(_Tree(f"vllm@{release.version}", release))
    return found


def _file_of(module: str, tree: Path) -> Path | None:
    """The file of a module, which is not run: it may need what is not installed here."""
    place = Path(*module.split("."))
    for folder in (Path.cwd(), tree, *map(Path, sys.path)):
        for path in (folder / place.with_suffix(".py"), folder / place / "__init__.py"):
            if path.is_file():
                return path
    return None


def _is_keyed(version: str) -> bool:
    return releases.order(version) >= releases.order(KEYED_SINCE)


def _jobs(wanted: Sequence[_Tree | None], seed: int) -> Iterator[_Job]:
    """The work, in the order in which it is told."""
    from cacheproof.proofs.crosshair import text
    from cacheproof.proofs.keys.prove import KEYED_RELEASES
    from cacheproof.proofs.symbolic.evidence import SUBJECTS, families, prove_texts, texts_of

    for name in SUBJECTS:
        texts = texts_of(name, _sources(name, wanted))
        for family in families(one for one in texts if one.release is not None or None in wanted):
            pieces = tuple(_Piece(_digest(one, seed), one) for one in family)
            yield _Job(SECONDS_OF_TEXT[name], partial(prove_texts, seed=seed), pieces)
    if None in wanted:
        yield _Job(40, partial(_prove_keys, seed), (_Piece(digest_of("keys", str(seed))),))
    for one in wanted:
        if one is not None and one.is_release and one.release.version in KEYED_RELEASES:
            piece = _Piece(_digest_of_keys(one.release, seed))
            yield _Job(15, partial(_prove_keys_of, one.release.version, seed), (piece,))
    yield _Job(1, partial(_prove_lemmas, seed), (_Piece(digest_of("lemmas", str(seed))),))
    if None in wanted:
        for name in (text.ENCODER_CACHE, text.ENCODER_DECODER_CACHE):
            yield _Job(20, partial(_search, name), (_Piece(digest_of("crosshair", name)),))


def _digest(text: "Text", seed: int) -> str:
    """Of a text, what its module and its bases say beside it, and what is asked of it."""
    source = text.source
    parts = source.name, source.text, source.module, ast.unparse(source.tree)
    return digest_of(text.kind, *parts, text.release or "", str(seed))


def _prove_keys(seed: int, _texts: Sequence["Text"]) -> list[Evidence]:
    from cacheproof.proofs.keys.prove import prove_keys

    return prove_keys(seed)


def _digest_of_keys(release: releases.Release, seed: int) -> str:
    """Of all modules of a release, whichever of them its own run uses, and of what runs them."""
    from cacheproof import own_run

    code = code_digest(["differential"]), code_digest([""], release.tree)
    return digest_of("keys", release.version, str(seed), inspect.getsource(own_run), *code)


def _prove_keys_of(release: str, seed: int, _texts: Sequence["Text"]) -> list[Evidence]:
    from cacheproof.own_run import OwnRun
    from cacheproof.proofs.keys.prove import prove_keys_of

    with closing(resolve(f"vllm@{release}", report=_silent)) as target:
        return prove_keys_of(release, seed, OwnRun(target, Semantics.of_vllm(release)))


def _silent(_line: str) -> None:
    """The release is there: its text was read before."""


def _prove_lemmas(seed: int, _texts: Sequence["Text"]) -> list[Evidence]:
    from cacheproof.proofs.symbolic.lemmas import prove_lemmas

    return prove_lemmas(seed)


def _search(name: str, _texts: Sequence["Text"]) -> list[Evidence]:
    from cacheproof.proofs.crosshair import text, witness

    return witness.run(text.of_reference(name))


def _sources(name: str, wanted: Sequence[_Tree | None]) -> Iterator["Read"]:
    """The class in each tree that has it, the newest release first.

    Raises:
        InputError: a tree has no such file or class, its Python cannot be read here, or Python
            imports something else in its place.
    """
    from cacheproof.proofs.symbolic.evidence import Read
    from cacheproof.proofs.symbolic.source import source_of

    for one in reversed(wanted):
        place = None if one is None else one.place_of(name)
        if one is not None and place is not None:
            path, own_name = place
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
                yield Read(one.name, one.promises, source_of(path, own_name, within))
            except LookupError as error:
                if one.plug_in is not None or one.promises in CLASSES.get(name, ()):
                    expected = one.promises if one.plug_in is None else "MODULE:CLASS"
                    raise InputError(
                        f"--target {one.name}: {path}: no class {own_name}; expected that of "
                        f"{expected}"
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


def is_listed(row: Evidence, known: Sequence[KnownFault], promised: str | None) -> bool:
    """Whether a fault of that contract is known of the release whose contracts the row's target
    promises, in whatever lane or kind."""
    return any(
        fault.covers(row.contract, promised, lane, fault.kind or "")
        for fault in known
        for lane in (fault.lanes or LANES)
    )


def exit_code(rows: Sequence[Evidence], listed: Set[Evidence]) -> int:
    """0 where all holds but what is listed, 1 where something unlisted is refuted, else 3."""
    if any(row.outcome is Outcome.REFUTED and row not in listed for row in rows):
        return UNLISTED
    said = (Outcome.HOLDS, Outcome.REFUTED)
    if not rows or any(row.outcome not in said or _is_hollow(row) for row in rows):
        return VOID
    return HOLDS


def _is_hollow(row: Evidence) -> bool:
    """Whether a check that passed is not known to be able to fail."""
    return row.outcome is Outcome.HOLDS and not row.counts


def _closing_line(rows: Sequence[Evidence], listed: Set[Evidence], before: int, code: int) -> str:
    held = sum(row.outcome is Outcome.HOLDS and row.counts for row in rows)
    refuted = [row for row in rows if row.outcome is Outcome.REFUTED]
    unlisted = sum(row not in listed for row in refuted)
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
        f"{before} rows were proved before (--fresh proves all); "
        f"exit code {code}"
    )


def _print(output: Output, rows: Sequence[Evidence], listed: Set[Evidence]) -> None:
    """What holds, in a line for each class of a target and method, or whole where that is asked
    for; and all that does not."""
    (_print_all if output.verbose else _print_sums)(output, rows)
    for row in rows:
        if row.outcome is not Outcome.HOLDS:
            word = "listed" if row in listed else "not listed"
            output.line(f"{row.contract} of {row.target}, {row.outcome}, {word}: {row.note}")


def _print_sums(output: Output, rows: Sequence[Evidence]) -> None:
    table = Table("target", "of", "method", box=None, pad_edge=False)
    for name in ("hold", "of", "twins", "work"):
        table.add_column(name, justify="right", no_wrap=True)
    groups: dict[tuple[str, str, str], list[Evidence]] = {}
    for row in rows:
        groups.setdefault((row.target, row.subject, row.method), []).append(row)
    for (target, subject, method), several in groups.items():
        held = sum(row.outcome is Outcome.HOLDS and row.counts for row in several)
        twins = sum(twin.refuted for row in several for twin in row.twins)
        cells = (held, len(several), twins)
        table.add_row(target, subject, method, *map(str, cells), _work(*several))
    output.report.print(table)


def _print_all(output: Output, rows: Sequence[Evidence]) -> None:
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


def _work(*rows: Evidence) -> str:
    """What the hardest condition took of the solver's limit, where that was measured."""
    measured = [row.work_max for row in rows if row.work_max is not None]
    return f"{max(measured):.2%}" if measured else ""


def _tools() -> dict[str, str]:
    return {tool: metadata.version(tool) for tool in TOOLS}
