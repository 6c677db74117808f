"""What connectors of external encoder caches promise and keep, on real releases.

    .venv/bin/python benchmarks/encoder_connectors.py > docs/evidence/encoder-connectors-checked.md

Each connector plays the traces of its lanes, and contracts judge them. What is not installed is
installed first; `redis-server` has to be on PATH.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.seeded import search
from cacheproof.differential.targets.resolve import resolve
from cacheproof.reference.releases import MODELLED
from cacheproof.spec.encoder_connector import COMPONENT
from cacheproof.spec.registry import contracts
from cacheproof.work.workplace import Workplace

LMCACHE = ("0.5.6", "0.5.7rc2")
OWN = "cacheproof.gpu_runner.encoder_connector.vllm_connector:EncoderConnector"
KEPT = "kept"
DISK, MEMORY = "connectors on a disk", "connectors in memory"
LMCACHE_MEMORY = "LMCache in memory"
FOLDER, LOCAL = "LMCache over a folder", "LMCache on its disk"
SERVER, SERVED = "connectors over a server", "LMCache over a server"
OWN_SERVER = "LMCache over its own server"


@dataclass(frozen=True)
class Column:
    """A connector in one lane: its name, and the target of each version."""

    name: str
    lane: str
    targets: dict[str, str]


@dataclass(frozen=True)
class Task:
    """The seeds of a lane on a target."""

    target: str
    lane: str
    seeds: int


def columns() -> list[Column]:
    """All connectors that are played."""
    own = _offered(DISK, OWN)
    lmcache = {version: f"lmcache@{version}" for version in LMCACHE}
    return [
        Column("vLLM's ECExampleConnector", DISK, _offered(DISK, "vllm")),
        Column("vLLM's ECCPUConnector", MEMORY, _offered(MEMORY, "vllm")),
        Column("LMCache over `fs://`", FOLDER, lmcache),
        Column("LMCache with `local_disk`", LOCAL, lmcache),
        Column("LMCache with `local_cpu` alone", LMCACHE_MEMORY, lmcache),
        Column("LMCache over Redis", SERVED, lmcache),
        Column("LMCache over its own server", OWN_SERVER, {LMCACHE[0]: lmcache[LMCACHE[0]]}),
        Column("cacheproof's, on a disk", DISK, own),
        Column("cacheproof's, in memory", MEMORY, own),
        Column("cacheproof's, over Redis", SERVER, {"without vLLM": "reference"}),
    ]


def _offered(lane: str, of: str) -> dict[str, str]:
    """The target of each release that has what the lane is about."""
    return {one: f"{of}@{one}" for one in MODELLED if LANES[lane].is_offered_by(one)}


Outcome = tuple[dict[tuple[str, str], int], list[str]]


def broken(task: Task) -> Outcome:
    """How many traces break each contract in each way, and what went wrong."""
    with closing(resolve(task.target, report=lambda line: print(line, file=sys.stderr))) as target:
        found = search(target, [LANES[task.lane]], against=None, seeds=range(task.seeds))
    kinds = Counter({(one, kind): count for (one, _, kind), count in found.kinds.items()})
    return dict(kinds), found.harness_errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--cluster", metavar="ADDRESS", help="of a Ray cluster that does the work")
    options = parser.parse_args()
    seeds, place = options.seeds, Workplace(cluster=options.cluster)
    tasks = [
        Task(one, column.lane, seeds) for column in columns() for one in column.targets.values()
    ]
    for target in dict.fromkeys(task.target for task in tasks):
        resolve(target, report=lambda line: print(line, file=sys.stderr)).close()
    said = {tasks[number]: outcome for number, outcome in place.results(broken, tasks)}
    errors = [f"{task.target}: {one}" for task, (_, wrong) in said.items() for one in wrong]
    if errors:
        raise SystemExit("\n".join(errors))
    print("\n".join(page(said, seeds)))


HEAD = """# Connectors of external encoder caches, checked

    .venv/bin/python benchmarks/encoder_connectors.py > docs/evidence/encoder-connectors-checked.md

Each cell is SEEDS random traces of the lane, on that version: engines in processes of their own, on
one store. Their schedulers and workers are played, in the order of vLLM's calls. A cell says in how
many traces the rule was broken, and after what; `kept`: in none. What breaks is explained in
[their faults](../../faults/README.md), the rules in [contracts.md](../reference/contracts.md).
"""
NOT_LOOKED_AT = """
Not looked at: `ECMooncakeConnector`; `ECCPUConnector` with NIXL; several hosts; releases of vLLM
before those; reports that come twice, which no worker sends. `ECCPUConnector` is its real
scheduler's side with its table and region, and played workers, of up to three ranks, whose copies
end up to four steps late: the real ones copy on a GPU. vLLM's source calls `ECExampleConnector`
simple and for debugging.
"""


def page(said: dict[Task, Outcome], seeds: int) -> Iterator[str]:
    """The page, line by line."""
    yield HEAD.replace("SEEDS", str(seeds)).rstrip()
    for column in columns():
        yield f"\n## {column.name}\n\nLane *{column.lane}*.\n"
        yield f"| | {' | '.join(column.targets)} |"
        yield "|---|" + "---|" * len(column.targets)
        for rule in contracts(COMPONENT):
            cells = [
                _cell(rule.id, said[Task(target, column.lane, seeds)][0])
                for target in column.targets.values()
            ]
            if rule.id not in LANES[column.lane].silent_on or set(cells) != {KEPT}:
                yield f"| {rule.id}: {rule.title} | {' | '.join(cells)} |"
    yield NOT_LOOKED_AT.rstrip()


def _cell(contract: str, counts: dict[tuple[str, str], int]) -> str:
    found = {kind: count for (one, kind), count in sorted(counts.items()) if one == contract}
    return ", ".join(f"{count} {kind}".strip() for kind, count in found.items()) or KEPT


if __name__ == "__main__":
    main()
