"""What a reader needs of a listed fault: where it is, what it needs, how to avoid and to see it."""

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import cache

from cacheproof.differential.errors import InputError
from cacheproof.differential.search.fault_folders import load
from cacheproof.differential.search.known import KnownFault
from cacheproof.listed import kept
from cacheproof.listed.pages import told
from cacheproof.reference.releases import MODELLED, within
from cacheproof.reference.semantics import CHANGES
from cacheproof.spec.versions import release_key

_INSTRUCTIONS = ("drop", "empty", "leave", "refuse", "reset", "set")
"""Words with which the list begins what to do. Else it names what removes a fault."""
_PRODUCT = re.compile(r"(?P<name>\w+) (?P<version>[\d.]+\w*)")


@cache
def listed_by_name() -> dict[str, KnownFault]:
    """The faults of the shipped list."""
    return {fault.name: fault for fault in load()}


def fault_called(name: str) -> KnownFault:
    """The listed fault of that name.

    Raises:
        InputError: there is none; says which are called alike.
    """
    faults = listed_by_name()
    if name not in faults:
        alike = get_close_matches(name, faults, n=3, cutoff=0.4)
        near = f"did you mean {' or '.join(alike)}? " if alike else ""
        raise InputError(
            f"{name[:80]}: no listed fault; {near}expected one that cacheproof explain lists"
        )
    return faults[name]


def newest_showing(fault: KnownFault, trace: str) -> str | None:
    """The newest target that was seen to break on a kept trace; None of another
    trace."""
    if trace in fault.engines:
        return f"engine@{within(fault.engines[trace])[-1]}"
    if trace not in fault.traces:
        return None
    if (product := product_of(fault)) is not None:
        return product
    return f"vllm@{max(_breaking(fault, trace), key=MODELLED.index)}"


def trace_showing(fault: KnownFault, release: str) -> tuple[str, str] | None:
    """A kept trace that shows a fault on a release, and the target to run it on; of an
    engine where no other does."""
    for trace in fault.traces:
        target = product_of(fault) or f"vllm@{release}"
        if target.endswith(f"@{release}") and (fault.product or release in _breaking(fault, trace)):
            return trace, target
    for trace, releases in fault.engines.items():
        if release in within(releases):
            return trace, f"engine@{release}"
    return None


def product_of(fault: KnownFault) -> str | None:
    """The plug-in that has a fault, in its first version with it, as a target; None for vLLM's."""
    product = _PRODUCT.match(fault.product)
    return None if product is None else f"{product['name'].lower()}@{product['version']}"


def _breaking(fault: KnownFault, trace: str) -> frozenset[str]:
    """The releases on which a trace was seen to break a contract of a fault; those that have the
    fault, where no contract says it."""
    runs = [one for one in kept.replays()[trace] if one.contract in fault.contracts]
    return frozenset().union(*(one.first | one.second for one in runs)) or frozenset(
        within(fault.seen)
    )


def newest_having(faults: Sequence[KnownFault], trace: str) -> str | None:
    """The newest target on which a kept trace was seen to show one of the faults; None: on none."""
    seen = [found for one in faults if (found := newest_showing(one, trace)) is not None]
    return max(seen, key=_age, default=None)


def _age(target: str) -> int:
    release = target.partition("@")[2]
    return MODELLED.index(release) if release in MODELLED else -1


def lifetime(fault: KnownFault) -> str:
    """In which releases a fault was seen or read, and what became of it: the release that mends it,
    or the newest that was run."""
    if fault.product:
        return f"{fault.product}, beside vLLM {fault.seen}; not mended"
    last = within(fault.seen)[-1:]
    parts = (
        f"seen in {fault.seen}" if fault.seen else "",
        f"as read in {fault.as_read}" if fault.as_read else "",
        f"not run: {fault.not_run}" if fault.not_run else "",
        f"mended in {fault.mended_in}" if fault.mended_in else "",
        f"last run {last[0]}, not mended" if last and not fault.mended_in else "",
    )
    return "; ".join(filter(None, parts))


def remedy(fault: KnownFault, release: str | None) -> str:
    """What to do about a fault of a release, as a clause: what to restart with, and where to move;
    empty where the list says neither."""
    act = fault.avoid.removeprefix("no switch; ").removesuffix("a later release")
    if act and act.split()[0] not in _INSTRUCTIONS:
        act = f"restart with {act}"
    move = ""
    if fault.mended_in and release and release_key(release) < release_key(fault.mended_in):
        move = f"move to {fault.mended_in}, which mends it"
    return ", or ".join(filter(None, (act, move)))


BY_SYMPTOM = "what it breaks alone, since it has no cause that is modelled and no mend"


def fault_rows(fault: KnownFault) -> Iterator[tuple[str, str]]:
    """What it does, in which releases, what it needs, how to avoid it: a name and a content each;
    nothing of what the list does not say."""
    rows = (
        ("harm", fault.harm),
        ("releases", lifetime(fault)),
        ("model runner", fault.runner),
        ("needs", fault.needs),
        ("avoid by", fault.avoid),
        ("public", fault.upstream),
        ("gone where", _gone_where(fault)),
        ("told by", BY_SYMPTOM if fault.is_told_alone and fault.symptom else ""),
        ("page", fault.page or ""),
    )
    yield from ((name, content) for name, content in rows if content)


def _gone_where(fault: KnownFault) -> str:
    """What is true of a release without it."""
    flags = dict.fromkeys(flag for cause in fault.cause for flag in cause.flags)
    return "; and where ".join(CHANGES[flag].sentence for flag in flags)


def showing(fault: KnownFault) -> Iterator[str]:
    """Commands that show a fault, the fastest first."""
    for trace in (*fault.traces[:1], *list(fault.engines)[:1]):
        target = newest_showing(fault, trace)
        yield f"cacheproof replay {told(trace)} --target {target}"
    if fault.search:
        yield f"cacheproof fuzz --target vllm@{within(fault.seen)[-1]} {fault.search}"
    if fault.command:
        yield fault.command_on(within(fault.seen)[-1])
