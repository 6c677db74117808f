"""Known faults: what is public about a release is annotated in a report, never hidden."""

import tomllib
from collections import Counter
from collections.abc import Collection, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import structs

from cacheproof.differential import files
from cacheproof.differential.errors import InputError
from cacheproof.differential.findings.breaks import Break
from cacheproof.differential.judges import rules  # noqa: F401  (registers all contracts)
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.traces.trace import ModelRunner, Trace
from cacheproof.reference.releases import within
from cacheproof.reference.semantics import CHANGES
from cacheproof.spec.registry import contracts
from cacheproof.spec.versions import Versions

NAME = r"^[a-z0-9]+(-[a-z0-9]+)*$"
SEEDS = 10**9
"""Seeds of traces are below this."""
BYTES_MAX = 1 << 20
HARMS = ("safety", "liveness", "efficiency")
"""The worst first."""


class Face(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a fault of some releases shows: which contract it breaks and where.

    `thread` is the public thread, None when none is listed; `lanes` narrow the face to lanes of a
    campaign, `kind` to one kind of break, where a judge tells several apart, `runner` to traces of
    one model runner. `cause` is the fault's own where the face names none. `seeds` of the only lane
    show the face where a short search need not meet it; `check` runs them whatever its budget. A
    `rare` face need not be found again.
    """

    contract: str
    releases: str
    harm: Literal["safety", "liveness", "efficiency"]
    note: str
    thread: str | None = None
    lanes: tuple[str, ...] = ()
    kind: str | None = None
    runner: ModelRunner | None = None
    cause: tuple[str, ...] = ()
    seeds: tuple[Annotated[int, msgspec.Meta(ge=0, lt=SEEDS)], ...] = ()
    rare: bool = False


class KnownFault(Face, frozen=True):
    """A face of a listed fault, which has a `name`, and a `page` of docs/ where it is described."""

    name: str = ""
    page: str | None = None

    def breaks(self, contract: str, kind: str) -> bool:
        """Whether it is listed to break that contract in that kind."""
        return contract == self.contract and self.kind in (None, kind)

    def covers(
        self,
        contract: str,
        release: str | None,
        lane: str,
        kind: str = "",
        runner: ModelRunner | None = None,
    ) -> bool:
        """Whether a finding of that contract, release, lane, kind and model runner is this fault;
        without a runner, whether one of any runner is."""
        return (
            self.breaks(contract, kind)
            and release is not None
            and release in Versions(self.releases)
            and (not self.lanes or lane in self.lanes)
            and (runner is None or self.runner in (None, runner))
        )


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A listed fault: its faces, and what a reader is to know of it.

    `harm` begins with its kind. `needs` is what makes the fault reachable, `avoid` the switch or
    the act that removes it. `seen`, `as_read` and `not_run` are spans of vLLM's releases: in which
    a run showed it, in which its lines were read alone, and of which nothing is known; in all
    others it does not show. `mended_in` is the release that mends it. `product` is the plug-in that
    has the fault, with its releases. `questions` are those of an audit, none at all where it bears
    on none; `only` narrows one to some releases.

    `cause` are flags of `reference/semantics` that are not true of a release with it: with all of
    them true nothing of it shows. Without any it is known by its faces alone.

    What shows it: `traces` of docs/findings, `engines` (a trace of an engine -> its releases),
    `search` (options of `cacheproof fuzz`), or another `command`, in which {release} stands for a
    release. `breaks` are the contracts of a fault without faces.
    """

    name: Annotated[str, msgspec.Meta(pattern=NAME)]
    face: tuple[Face, ...] = ()
    page: str | None = None
    title: str = ""
    harm: str = ""
    needs: str = ""
    avoid: str = ""
    seen: str = ""
    mended_in: str | None = None
    as_read: str = ""
    not_run: str = ""
    runner: str = ""
    product: str = ""
    upstream: str = ""
    questions: tuple[str, ...] | None = None
    only: dict[str, str] = {}
    breaks: tuple[str, ...] = ()
    cause: tuple[str, ...] = ()
    traces: tuple[str, ...] = ()
    engines: dict[str, str] = {}
    search: str = ""
    command: str = ""

    def command_on(self, release: str) -> str:
        """The other command that shows it, on a release."""
        return self.command.replace("{release}", release)

    @property
    def causes(self) -> tuple[tuple[str, ...], ...]:
        """The causes of its faces, each once; an empty one for those that have none."""
        return tuple(dict.fromkeys(face.cause or self.cause for face in self.face)) or (self.cause,)

    @property
    def contracts(self) -> tuple[str, ...]:
        """The contracts that it breaks, in the order of its faces."""
        return tuple(dict.fromkeys([*(face.contract for face in self.face), *self.breaks]))


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fault: list[Fault] = []


def load(path: Path | None = None) -> list[KnownFault]:
    """The list in a file, or the one that is shipped, face by face.

    Raises:
        InputError: the file cannot be read or is no such list; an empty file is an empty list.
    """
    return parse(*read(path))


def listed(path: Path | None = None) -> list[Fault]:
    """The faults in a file, or of the list that is shipped.

    Raises:
        InputError: as `load`.
    """
    return _faults(*read(path))


def read(path: Path | None = None) -> tuple[str, str]:
    """The text of a list, of the one that is shipped by default, and where it stands.

    Raises:
        InputError: the file cannot be read.
    """
    source = path or resources.files("cacheproof.differential.search") / "known.toml"
    try:
        text = source.read_text() if path is None else files.read(path, BYTES_MAX).decode()
    except OSError as error:
        raise InputError(
            f"{source}: cannot be read: {error.strerror}; expected a list of known faults"
        ) from None
    except ValueError as error:
        raise _no_list(str(source), error) from None
    return text, str(source)


def parse(text: str, source: str) -> list[KnownFault]:
    """The list in a text, face by face.

    Raises:
        InputError: it is no such list.
    """
    listed = _faults(text, source)
    faces = [
        KnownFault(
            **structs.asdict(face) | {"cause": face.cause or fault.cause},
            name=fault.name,
            page=fault.page,
        )
        for fault in listed
        for face in fault.face
    ]
    _check_names(faces, source)
    return faces


def _faults(text: str, source: str) -> list[Fault]:
    try:
        listed = msgspec.convert(tomllib.loads(text), _File).fault
        for fault in listed:
            for face in fault.face:
                Versions(face.releases)
            for releases in (fault.seen, fault.as_read, fault.not_run, *fault.only.values()):
                within(releases)
    except (ValueError, RecursionError) as error:
        raise _no_list(source, error) from None
    twice = [name for name, count in Counter(one.name for one in listed).items() if count > 1]
    if twice:
        raise InputError(f"{source}: two faults are called {twice[0]}; expected a name for each")
    return listed


def _no_list(source: str, error: Exception) -> InputError:
    return InputError(
        f"{source}: {str(error).splitlines()[0]}; expected a list of known faults, "
        "see docs/known-faults.md"
    )


def covering(
    faults: Sequence[KnownFault],
    contract: str,
    release: str | None,
    lane: str,
    kind: str = "",
    runner: ModelRunner | None = None,
) -> KnownFault | None:
    """The first listed fault that covers a finding."""
    covers = (one for one in faults if one.covers(contract, release, lane, kind, runner))
    return next(covers, None)


def may_cover(
    faults: Sequence[KnownFault],
    trace: Trace,
    contract: str,
    release: str | None,
    lane: str | None,
    kind: str = "",
    projects: Collection[str] = ("vllm",),
) -> list[KnownFault]:
    """The listed faults that a break of a trace may be, by what it breaks: of each the first face.

    Without a lane, any one of its depth and kind of manager, of one of these projects, may have
    made the trace.
    """
    kept = trace.depth, trace.header.manager
    lanes = [
        name
        for name, one in LANES.items()
        if (one.depth, one.manager) == kept and one.project in projects
    ]
    found: dict[str, KnownFault] = {}
    for fault in faults:
        if any(
            fault.covers(contract, release, one, kind, trace.runner)
            for one in (lanes if lane is None else (lane,))
        ):
            found.setdefault(fault.name, fault)
    return list(found.values())


def listed_as(
    faults: Sequence[KnownFault], name: str | None, broken: Break, release: str | None
) -> KnownFault | None:
    """The face of the fault of that name that a break is: the one that is listed for where it was
    found, else one that is told by its cause and may be found anywhere."""
    where = broken.contract, release, broken.lane, broken.kind, broken.trace.runner
    faces = [one for one in faults if one.name == name]
    anywhere = (one for one in faces if one.cause and one.breaks(broken.contract, broken.kind))
    return next((one for one in faces if one.covers(*where)), next(anywhere, None))


def showing_seeds(faults: Sequence[KnownFault], release: str | None) -> dict[str, list[int]]:
    """Lane -> the seeds that show listed faults of a release."""
    seeds: dict[str, set[int]] = {}
    for fault in faults:
        for lane in fault.lanes:
            if fault.seeds and fault.covers(fault.contract, release, lane, fault.kind or ""):
                seeds.setdefault(lane, set()).update(fault.seeds)
    return {lane: sorted(found) for lane, found in seeds.items()}


def _check_names(faults: Sequence[KnownFault], source: str) -> None:
    ids = {rule.id for rule in contracts()}
    for fault in faults:
        if no_flags := set(fault.cause) - CHANGES.keys():
            raise InputError(
                f"{source}: {min(no_flags)!r} is no flag of the semantics; expected one of those "
                "in reference/semantics"
            )
        if fault.contract not in ids:
            raise InputError(
                f"{source}: {fault.contract!r} is no contract id; expected one of "
                "cacheproof contracts"
            )
        if strange := set(fault.lanes) - LANES.keys():
            raise InputError(
                f"{source}: {min(strange)!r} is no lane; expected one of {', '.join(LANES)}"
            )
        if fault.seeds and len(fault.lanes) != 1:
            raise InputError(
                f"{source}: seeds of {fault.contract} ({fault.note}) with {len(fault.lanes)} "
                "lanes; expected the one lane whose traces they make"
            )
