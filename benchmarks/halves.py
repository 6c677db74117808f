"""Whether both halves of the cache of processed media keep alike, release by release.

    .venv/bin/python benchmarks/halves.py
    .venv/bin/python benchmarks/halves.py --release 0.33.0 --twins

Exits 1 where it does not hold of the reference or of a release, or, with `--twins`, where a change
that breaks it is not noticed.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing

COLUMNS = ("target", "outcome", "scripts", "answers", "sent", "refused", "halfway", "modalities")
"""`refused`: scripts whose request is refused, by exception; `halfway`: those of them in which the
sender's cache has changed by then. `modalities`: what is said of messages with items of two."""


def main() -> int:
    from cacheproof.differential.targets.host.faults.halves import TWINS
    from cacheproof.reference.releases import MODELLED

    arguments = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    arguments.add_argument("--release", action="append", help="one release, or several")
    arguments.add_argument("--twins", action="store_true", help="also each change that breaks it")
    asked = arguments.parse_args()
    twins = tuple(TWINS) if asked.twins else ()
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    failed = []
    for release in (None, *(asked.release or MODELLED)):
        for line, is_as_expected in _rows(release, twins):
            print(line, flush=True)
            if not is_as_expected:
                failed.append(line)
    if failed:
        print("not as expected:", *failed, sep="\n", file=sys.stderr)
    return bool(failed)


def _rows(release: str | None, twins: tuple[str, ...]) -> Iterator[tuple[str, bool]]:
    """Lines of the table, and whether each says what it must; of the reference where no release is
    named."""
    from cacheproof.differential.provision import releases
    from cacheproof.differential.targets.halves import TWO_MODALITIES, HalvesHost
    from cacheproof.differential.targets.reference_halves import explored_reference
    from cacheproof.proving.halves import outcome_of
    from cacheproof.reference.semantics.front_end import FrontEndSemantics
    from cacheproof.spec.evidence import Outcome

    if release is None:
        found = explored_reference(FrontEndSemantics())
        outcome, why = outcome_of(found)
        yield _line("reference", outcome, found, ""), outcome is Outcome.HOLDS
        return
    installed = releases.install(release, report=lambda line: print(line, file=sys.stderr))
    with closing(HalvesHost(installed)) as host:
        found = host.explored()
        outcome, why = outcome_of(found)
        mixed, _ = outcome_of(host.explored(modalities=TWO_MODALITIES))
        is_held = outcome is Outcome.HOLDS
        yield _line(f"vllm@{release}", f"{outcome} {why}".strip(), found, mixed), is_held
        for twin in twins:
            found = host.explored(twin)
            outcome, why = outcome_of(found)
            yield _line(f"{twin}", f"{outcome}: {why}", found, ""), outcome is not Outcome.HOLDS


def _line(target: str, outcome: str, found, mixed: str) -> str:
    refused = ", ".join(f"{kind} {count}" for kind, count in sorted(found.refused.items()))
    cells = (target, outcome, found.scripts, found.asked, found.sent, refused)
    return f"| {' | '.join(map(str, cells))} | {found.refused_halfway} | {mixed} |"


if __name__ == "__main__":
    sys.exit(main())
