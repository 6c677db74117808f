"""FAULT@RELEASE: the newest finding of a listed fault in a release, else a kept trace
that shows it there, or what to run for one."""

import difflib
from pathlib import Path

from cacheproof.differential.errors import InputError
from cacheproof.differential.findings import finding_file
from cacheproof.differential.lanes.all_lanes import PROJECTS
from cacheproof.differential.provision import connectors
from cacheproof.differential.provision.versions import parse
from cacheproof.differential.search.known import KnownFault
from cacheproof.listed.facts import listed_by_name, trace_showing
from cacheproof.listed.pages import kept_traces, told
from cacheproof.reference.releases import MODELLED, within


def finding_of(name: str, release: str, folder: Path) -> tuple[Path, str | None]:
    """The newest finding of a listed fault in a release that was saved in the folder; else a trace
    that shows it, and the target on which it does.

    Raises:
        InputError: there is neither; says whether the fault is listed for that release, and what to
            run.
    """
    parse(release, f"{name}@")
    found = finding_file.of_fault(name, PROJECTS, release, folder)
    if found is not None:
        return found, None
    fault = listed_by_name().get(name)
    shown = None if fault is None else trace_showing(fault, release)
    if shown is None:
        raise InputError(f"{name}@{release}: {_why_none(name, release, folder)}")
    trace, target = shown
    return kept_traces()[trace], target


def _why_none(name: str, release: str, folder: Path) -> str:
    faults = listed_by_name()
    if (fault := faults.get(name)) is None:
        near = difflib.get_close_matches(name, faults, n=1)
        meant = (
            f"did you mean {near[0]}@{release}?"
            if near
            else "expected one that cacheproof explain lists"
        )
        return f"no listed fault has that name; {meant}"
    if _is_listed_in(fault, release):
        return f"no finding of that fault in {folder}; run {_showing(fault, release)}"
    latest = next((one for one in reversed(_releases(fault)) if _is_listed_in(fault, one)), None)
    where = fault.product or fault.seen or ", ".join(one.releases for one in fault.symptom)
    said = f"that fault is not listed for {release}; it is for {where}"
    return said if latest is None else f"{said}: run {_showing(fault, latest)}"


def _is_lmcaches(fault: KnownFault) -> bool:
    return fault.product.lower().startswith(connectors.LMCACHE)


def _releases(fault: KnownFault) -> tuple[str, ...]:
    """The releases in which the fault is searched, from old to new."""
    return (connectors.FIRST,) if _is_lmcaches(fault) else MODELLED


def _is_listed_in(fault: KnownFault, release: str) -> bool:
    """Whether a fault is listed for a release: LMCache's faults for none of vLLM's."""
    if _is_lmcaches(fault) and release in MODELLED:
        return False
    return fault.is_listed_in(release)


def _showing(fault: KnownFault, release: str) -> str:
    """The command that shows the fault on a release: a search, or a kept trace."""
    if _is_lmcaches(fault):
        return f"cacheproof fuzz --target {connectors.LMCACHE}@{release}"
    if fault.search:
        return f"cacheproof fuzz --target vllm@{release} {fault.search}"
    for trace, releases in fault.engines.items():
        if release in within(releases):
            return f"cacheproof replay {told(trace)} --target engine@{release}"
    if fault.traces:
        return f"cacheproof replay {told(fault.traces[0])} --target vllm@{release}"
    return fault.command or f"cacheproof fuzz --target vllm@{release}"
