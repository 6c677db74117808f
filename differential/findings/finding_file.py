"""Finding files: JSON that anyone may have edited on the way, and a standalone test beside it."""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import msgspec

from cacheproof.differential import files
from cacheproof.differential.errors import HarnessError, InputError
from cacheproof.differential.findings.breaks import Break
from cacheproof.differential.findings.finding import LOCKSTEP, SCHEMA_VERSION, Finding, digest_of
from cacheproof.differential.findings.standalone.writing import standalone_test, why_none
from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.traces.trace import Trace
from cacheproof.differential.traces.trace_file import dump, parse
from cacheproof.spec.registry import by_id

MAX_BYTES = 64 * 2**20
UNTOLD = frozenset({"rolls_back", "clamps"})
"""Flags of a protocol that a finding may lack: then its target does as its release."""
_MARK = b'"schema_version"'
_MARK_WITHIN = 4096
_FINDING = msgspec.json.Decoder(Finding)


def load(path: Path) -> Finding | Trace:
    """Read a finding file, or a trace file (JSON Lines), for replay.

    Raises:
        InputError: the file cannot be read, or is neither; one line with what was wrong, where,
            what was expected and what to do.
    """
    try:
        data = files.read(path, MAX_BYTES)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror}; give a finding or a trace file"
        ) from None
    if _MARK in data[:_MARK_WITHIN]:
        return _finding(data, path)
    return parse(data.splitlines(), str(path))


def save(finding: Finding, folder: Path) -> list[Path]:
    """Write `<name>.json`, and `test_<name>.py` where there is one; returns their paths.

    Each appears whole or not at all. The name carries a digest of what was found, so that the same
    finding lands in the same place and another one beside it.

    Raises:
        InputError: the folder cannot be written.
    """
    path = path_of(finding, folder)
    contents: dict[Path, bytes] = {}
    standalone = f"none: {why_none(finding)}"
    if (test := standalone_test(finding)) is not None:
        standalone = f"test_{path.stem}.py"
        contents[path.with_name(standalone)] = test.encode()
    document = msgspec.structs.replace(finding, standalone=standalone)
    text = msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"
    contents = {path: text, **contents}
    _save(contents, folder)
    return list(contents)


def _save(contents: Mapping[Path, bytes], folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for target, content in contents.items():
            files.write(target, content)
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be written: {error.strerror}; give another folder"
        ) from None


def save_trace(broken: Break, target: str, folder: Path) -> Path:
    """Write the trace of a break as it was found, to be replayed until it is small.

    Raises:
        InputError: the folder cannot be written.
    """
    trace = broken.trace.with_events(broken.trace.events[: broken.event + 1])
    path = trace_path(broken, target, folder)
    _save({path: dump(trace).encode()}, folder)
    return path


def trace_path(broken: Break, target: str, folder: Path) -> Path:
    """The path to which `save_trace` writes it."""
    seed = broken.trace.header.seed
    words = f"found {broken.contract} {target} {broken.lane} {broken.kind} {seed}"
    return folder / f"{_file_name(words)}.jsonl"


def path_of(finding: Finding, folder: Path) -> Path:
    """The path to which `save` writes a finding: the listed fault, contract, target, and a digest
    of the trace and its records."""
    identity = msgspec.json.encode((finding.key, finding.target, finding.trace, finding.digest))
    fault = f"{finding.fault} " if finding.fault else ""
    words = f"{fault}{finding.contract} {finding.target} {sha256(identity).hexdigest()[:16]}"
    return folder / f"{_file_name(words)}.json"


def of_fault(fault: str, projects: Sequence[str], release: str, folder: Path) -> Path | None:
    """The newest finding of a listed fault in a release, of one of these projects, that was saved
    in the folder; None where there is none."""
    names = [_file_name(f"{fault} * {project}@{release} *") for project in projects]
    found = [path for name in names for path in folder.glob(f"{name}.json")]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def _file_name(words: str) -> str:
    """Words as part of a file's name; stars are kept."""
    return re.sub(r"[^\w*]+", "_", words).strip("_").lower()


def _finding(data: bytes, path: Path) -> Finding:
    try:
        finding = _FINDING.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise _refused(path, (str(error).splitlines() or [type(error).__name__])[0]) from None
    if finding.schema_version != SCHEMA_VERSION:
        raise InputError(
            f"{path}: schema_version {finding.schema_version}; this cacheproof reads "
            f"{SCHEMA_VERSION}: use the cacheproof that wrote it"
        )
    parse(dump(finding.trace).encode().splitlines(), f"{path} (its trace)")
    if odd := set(Protocol._fields) ^ (set(finding.protocol) | UNTOLD):
        raise _refused(path, f"protocol lacks, or has too much, {', '.join(sorted(odd))}")
    if digest_of(finding.records) != finding.digest:
        raise _refused(path, "the records do not add up to the digest")
    if not _tells_the_truth(finding):
        raise _refused(path, f"the records do not break {finding.contract} at the event named")
    return finding


def _tells_the_truth(finding: Finding) -> bool:
    """Whether the stored records break the stored contract where the finding says."""
    if not 0 <= finding.event < len(finding.events):
        return False
    try:
        for _ in finding.retrace.moments():
            pass
        if finding.contract == LOCKSTEP:
            return finding.parting is not None
        by_id(finding.contract)
        return finding.retrace.breaks_at(finding.contract, finding.event)
    except (ArithmeticError, AttributeError, HarnessError, LookupError, TypeError, ValueError):
        return False  # the records contradict the trace: whoever edited one forgot the other


def _refused(path: Path, reason: str) -> InputError:
    return InputError(
        f"{path}: not a finding: {reason}; expected docs/reference/findings-format.md: "
        f"search again, or "
        f"replay its trace alone"
    )
