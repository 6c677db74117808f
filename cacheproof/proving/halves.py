"""Whether both halves of the cache of processed media keep alike (PM-5), by running a target's own
methods in every way in which their caches can answer: docs/explain/front-end.md."""

import inspect
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.provision.releases import InstalledRelease
from cacheproof.differential.targets.halves import HalvesHost
from cacheproof.differential.targets.host.faults.halves import TWINS
from cacheproof.differential.targets.host.managers.halves import Found
from cacheproof.differential.targets.reference_halves import explored_reference
from cacheproof.proving.targets import REFERENCE
from cacheproof.reference import processor_cache
from cacheproof.reference.semantics.front_end import FrontEndSemantics
from cacheproof.spec.evidence import Evidence, Outcome, RedTwin, digest_of
from cacheproof.work.code_digest import code_digest

CONTRACT, SUBJECT, METHOD = "PM-5", "both halves of the media cache", "every script"
SCOPE = "any number of items of one modality; each message looked up, and taken once, in order"
NOT_REFUTED = frozenset(
    {"reads_a_name", "reads_an_item", "counts_messages", "forgets_each_third", "asks_nothing"}
)
"""Twins of which nothing is known, or that ask nothing: to hold of them would be as wrong, and
tests/front/test_halves.py has them."""
OF_REFERENCE = ("touches_all_first", "skips_oversize")
"""Flags that one half alone has, in the reference's twins."""


def outcome_of(found: Found) -> tuple[Outcome, str]:
    """What came of all scripts, and why, in one line; or ""."""
    if found.parted:
        return Outcome.REFUTED, found.parted
    if found.unknown:
        return Outcome.UNKNOWN, found.unknown
    seen = {
        "is asked": found.asked,
        "is sent": found.sent,
        "is sent without data": found.alone,
        "is kept": found.kept,
    }
    if missing := [what for what, count in seen.items() if not count]:
        return Outcome.VACUOUS, f"nothing {missing[0]}"
    if found.uneven:
        return Outcome.UNKNOWN, f"not item by item: {found.uneven}"
    return Outcome.HOLDS, ""


def prove_reference() -> Evidence:
    """The row of the reference."""
    started = time.perf_counter()
    ideal = FrontEndSemantics()
    outcome, note = outcome_of(explored_reference(ideal))
    twins = []
    for flag in OF_REFERENCE:
        without = {flag: False, "processes_again": False}
        other = replace(ideal, **without)
        seen, _ = outcome_of(explored_reference(ideal, other))
        twins.append(RedTwin(f"the receiver without {flag}", seen is Outcome.REFUTED))
    row = partial(Evidence, CONTRACT, REFERENCE, SUBJECT, METHOD, SCOPE, outcome, note)
    digest = digest_of([inspect.getsource(processor_cache)])
    return row(digest, time.perf_counter() - started, tuple(twins))


def prove_release(name: str, release: InstalledRelease) -> Evidence:
    """The row of a release or a checkout of that name."""
    started = time.perf_counter()
    twins: list[RedTwin] = []
    try:
        with closing(HalvesHost(release)) as host:
            outcome, note = outcome_of(host.explored())
            twins += _twins(host)
    except HarnessError as error:
        outcome, note = Outcome.UNKNOWN, str(error)
    row = partial(Evidence, CONTRACT, name, SUBJECT, METHOD, SCOPE, outcome, note)
    digest = code_digest(["vllm/multimodal"], release.tree)[:12]
    return row(digest, time.perf_counter() - started, tuple(twins))


def _twins(host: HalvesHost) -> Iterator[RedTwin]:
    for twin in TWINS:
        if twin not in NOT_REFUTED:
            yield RedTwin(twin, outcome_of(host.explored(twin))[0] is Outcome.REFUTED)
