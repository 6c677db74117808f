"""Folders of known faults, one for each: `NAME/fault.toml`, as docs/reference/known-faults.md has
it."""

import tomllib
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path

import msgspec

from cacheproof.differential import files
from cacheproof.differential.errors import InputError
from cacheproof.differential.judges import rules  # noqa: F401  (registers all contracts)
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.known import KnownFault
from cacheproof.reference.releases import within
from cacheproof.reference.semantics import CHANGES
from cacheproof.spec.registry import contracts
from cacheproof.spec.versions import Versions, release_key

FILE = "fault.toml"
PAGE = "page.md"
SHIPPED = Path(str(resources.files("cacheproof") / "faults"))
BYTES_MAX = 1 << 20
FAULTS_MAX = 10_000
EXPECTED = f"expected a folder with NAME/{FILE} for each fault, or one {FILE}"
SEE = "see docs/reference/known-faults.md"


def load(path: Path | None = None) -> list[KnownFault]:
    """The faults of a folder, in order of their names; by default those that are shipped. An empty
    folder is an empty list. A folder that holds a fault.toml itself, or such a file, is one fault.

    Raises:
        InputError: there is no such folder, or what it holds is no list of faults.
    """
    where = path or SHIPPED
    try:
        return [_fault_of(file) for file in _files_of(where)]
    except OSError as error:
        raise InputError(
            f"{error.filename or where}: cannot be read: {error.strerror}; {EXPECTED}, {SEE}"
        ) from None


def to_text(faults: Sequence[KnownFault]) -> str:
    """The list as one text, for stores."""
    return msgspec.json.encode(faults).decode()


def of_text(text: str, source: str) -> list[KnownFault]:
    """The list of faults in a text of `to_text`; an empty text is an empty list.

    Raises:
        InputError: it is no such text.
    """
    try:
        faults = msgspec.json.decode(text or "[]", type=list[KnownFault])
    except ValueError as error:
        raise InputError(
            f"{source}: its list of known faults cannot be read: {str(error).splitlines()[0]}; "
            "expected one that this cacheproof wrote: begin it anew"
        ) from None
    for fault in faults:
        _check(fault, source)
    return faults


def _files_of(where: Path) -> Iterator[Path]:
    if not where.is_dir():
        yield where
    elif (where / FILE).is_file():
        yield where / FILE
    else:
        folders = sorted(one for one in where.iterdir() if one.is_dir() and one.name[0] not in "._")
        if len(folders) > FAULTS_MAX:
            raise InputError(f"{where}: {len(folders):,} folders; expected at most {FAULTS_MAX:,}")
        yield from (one / FILE for one in folders)


def _fault_of(file: Path) -> KnownFault:
    """The fault of a file, called as the folder in which it lies."""
    try:
        said = tomllib.loads(files.read(file, BYTES_MAX).decode())
        if isinstance(said.get("fault"), list):
            raise InputError(f"{file}: a list of [[fault]] in one file; {EXPECTED}, {SEE}")
        if given := said.keys() & {"name", "page"}:
            raise InputError(
                f"{file}: {min(given)}: unknown; expected none: the folder says it, {SEE}"
            )
        folder = file.absolute().parent
        said |= {"name": folder.name, "page": _page_of(folder)}
        fault = msgspec.convert(said, KnownFault)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: {str(error).splitlines()[0]}; expected a fault, {SEE}") from None
    _check(fault, str(file))
    return fault


def _page_of(folder: Path) -> str | None:
    """The page that describes the fault, if any; of a shipped fault, by its place in a clone."""
    if not (folder / PAGE).is_file():
        return None
    return f"faults/{folder.name}/{PAGE}" if folder.parent.samefile(SHIPPED) else str(folder / PAGE)


def _check(fault: KnownFault, source: str) -> None:
    """Require known contracts, flags, lanes and releases. Raises InputError."""
    ids = {rule.id for rule in contracts()}
    by_cause = {flag for cause in fault.cause for flag in cause.flags}
    if strange := by_cause - CHANGES.keys():
        raise InputError(
            f"{source}: {min(strange)!r} is no flag of the semantics; expected one of those in "
            "reference/semantics"
        )
    kinds = {contract for cause in fault.cause for contract in cause.kinds.keys() - ids}
    if strange := {*fault.contracts} - ids or kinds:
        raise InputError(
            f"{source}: {min(strange)!r} is no contract id; expected one of cacheproof contracts"
        )
    for cause in fault.cause:
        if strange := cause.kinds.keys() - {*cause.contracts}:
            raise InputError(
                f"{source}: kinds of {min(strange)}, which that cause does not break; expected "
                f"kinds of {', '.join(cause.contracts)}"
            )
    lanes = {lane for symptom in fault.symptom for lane in symptom.lanes}
    if strange := {*fault.again, *fault.seeds, *lanes} - LANES.keys():
        raise InputError(
            f"{source}: {min(strange)!r} is no lane; expected one of {', '.join(LANES)}"
        )
    try:
        for symptom in fault.symptom:
            Versions(symptom.releases)
        spans = (fault.seen, fault.as_read, fault.not_run, *fault.only.values())
        for releases in (*spans, *fault.engines.values()):
            within(releases)
        release_key(fault.again_since)
    except ValueError as error:
        raise InputError(f"{source}: {error}; {SEE}") from None
