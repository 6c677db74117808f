"""Which contract kills which variant, and whether each contract is needed for that."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from cacheproof.differential.judges.examination import examine
from cacheproof.differential.judges.rules import SCHEDULER, rules_for
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.gallery import (
    block_hash,
    encoder_cache,
    encoder_connector,
    front_end,
    kv_cache,
    media_hash,
    media_identifier,
    scheduler,
)
from cacheproof.differential.search.gallery.variant import (
    BLOCK_HASH,
    CONNECTOR,
    FRONT_END,
    IDENTIFIER,
    KV_CACHE,
    MEDIA_HASH,
    Variant,
)
from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.differential.targets.reference_manager import MANAGERS
from cacheproof.differential.targets.reference_media_hash import missing_media_libraries
from cacheproof.differential.traces.trace import Trace
from cacheproof.spec.registry import Contract, contracts

VARIANTS: tuple[Variant, ...] = (
    *encoder_cache.VARIANTS,
    *block_hash.VARIANTS,
    *media_hash.VARIANTS,
    *media_identifier.VARIANTS,
    *kv_cache.VARIANTS,
    *encoder_connector.VARIANTS,
    *front_end.VARIANTS,
    *scheduler.VARIANTS,
)
SEEDS = range(60)
KV_CACHE_TRACES = 16
CONNECTOR_TRACES = 40
SCHEDULER_TRACES = 30
GROUPS = 24
"""Jobs into which variants are dealt: a process takes a second to start."""
KEPT_BECAUSE = {
    "EC-14": "it says at the call what EC-7 notices at a later eviction, and under asynchronous "
    "scheduling too, where EC-7 is not judged",
    "ED-1": "the headline of the public report, which ED-5 implies",
    "ED-2": "it names the call at fault, where ED-5 names the sum",
    "BP-1": "it names the block that is queued and held, where BP-3 names the sum",
    "MH-3a": "the public report, which MH-3 implies",
    "BK-1": "it names what the key of a block forgot, where BK-2 says that two prefixes differ",
    "SC-1a": "it names the budget, where SC-14 and SC-17 are what comes of more",
    "SC-1b": "it names the budget, where SC-5 says that an item is encoded twice to exceed it",
    "SC-1c": "it names the limit, where EC-6 is what comes of running what was never scheduled",
    "SC-10": "it names what the workers are told of nobody, where SC-15 is what comes of it",
    "SC-12": "it names what was offered, where SC-3 says that less was computed than could be",
    "SC-20": "it speaks beside KV loads too, where SC-14 and SC-15 do not",
    "DF-1": "it names the notice that came too early, where WM-2 says that a read misses",
    "LV-2": "it speaks when the request arrives, LV-1 only once steps come back empty",
    "EX-4": "it says whose the rows are, where EX-7 says that they are of other weights",
    "EX-11": "it names the promise of what cannot be had, where EX-1 is what comes of it",
    "BK-3": "two keys for one content lose a hit (BK-4); that growing gave the other is a fault",
}


@dataclass(frozen=True)
class KillMatrix:
    """Which contract kills which variant, over the traces of `seeds`.

    `kills` maps each variant to the ids of the contracts that it breaks, `false_alarms` are the
    ids that the unmodified reference breaks under the same seeds: none, or the matrix is void.
    `component` is the one whose variants alone were run; None where all were.
    """

    seeds: tuple[int, ...]
    kills: dict[Variant, frozenset[str]]
    false_alarms: frozenset[str]
    contracts: tuple[Contract, ...]
    component: str | None = None

    @property
    def survivors(self) -> list[Variant]:
        """Variants that no contract kills."""
        return [variant for variant, killed_by in self.kills.items() if not killed_by]

    def killed_by(self, contract: str) -> frozenset[str]:
        """Names of the variants that a contract kills."""
        return frozenset(variant.name for variant, ids in self.kills.items() if contract in ids)

    def covered_by(self, contract: str) -> list[str]:
        """Other contracts that kill all that this one kills: it must then say why it stays."""
        killed = self.killed_by(contract)
        return [
            other.id
            for other in self.contracts
            if other.id != contract and killed <= self.killed_by(other.id)
        ]

    def alone(self, contract: str) -> list[str]:
        """Names of the variants that this contract alone kills."""
        return [variant.name for variant, ids in self.kills.items() if ids == {contract}]

    def to_json(self) -> dict[str, object]:
        """Plain data: variants with `name` and `killed_by`, contracts with what they kill."""
        return {
            "seeds": len(self.seeds),
            "false_alarms": sorted(self.false_alarms),
            "variants": [
                {
                    "name": variant.name,
                    "manager": variant.manager,
                    "sentence": variant.sentence,
                    "killed_by": self._in_order(ids),
                }
                for variant, ids in self.kills.items()
            ],
            "contracts": [
                {
                    "id": rule.id,
                    "kills": len(self.killed_by(rule.id)),
                    "alone": self.alone(rule.id),
                    "covered_by": self.covered_by(rule.id),
                    "kept_because": KEPT_BECAUSE.get(rule.id),
                }
                for rule in self.contracts
            ],
        }

    def to_markdown(self) -> str:
        """The page docs/evidence/kill-matrix.md."""
        lines = [
            "# The kill matrix",
            "",
            "Each variant is a manager, a hasher, a connector or a scheduler of the reference with "
            "one fault. A "
            "seeded search runs it under "
            f"the driver of a correct scheduler, {len(self.seeds)} traces each, or "
            f"{KV_CACHE_TRACES} of the KV cache's longer ones, {SCHEDULER_TRACES} of a scheduler's "
            f"and {CONNECTOR_TRACES} of each lane of connectors, or those at which a rare fault "
            "shows itself. It is killed by the contracts that it breaks. The unmodified "
            "reference, over the same seeds, breaks "
            f"{'none' if not self.false_alarms else ', '.join(sorted(self.false_alarms))}. "
            f"{self._extent()}",
            "",
            _row("variant", ["its fault", "killed by"]),
            _row("---", ["---", "---"]),
        ]
        lines += [
            _row(variant.name, [variant.sentence, " ".join(self._in_order(killed_by))])
            for variant, killed_by in self.kills.items()
        ]
        lines += [
            "",
            "## Why each contract stays",
            "",
            "A contract earns its place when no other single contract kills all that it kills.",
            "",
            _row("contract", ["says", "kills", "alone", "kept because"]),
            _row("---", ["---", "--:", "---", "---"]),
        ]
        for rule in self.contracts:
            covered_by = self.covered_by(rule.id)
            reason = KEPT_BECAUSE.get(rule.id, "") if covered_by else "no other covers it"
            alone = ", ".join(self.alone(rule.id))
            count = str(len(self.killed_by(rule.id)))
            lines.append(_row(rule.id, [rule.title, count, alone, reason]))
        return "\n".join(lines) + "\n"

    def _extent(self) -> str:
        if self.component is None:
            return "`cacheproof gallery` prints this page afresh."
        return (
            f"Here are only the variants of what the contracts of {self.component} judge; "
            "`cacheproof gallery` runs all, of which a contract may kill more."
        )

    def _in_order(self, ids: Iterable[str]) -> list[str]:
        return [rule.id for rule in self.contracts if rule.id in ids]


def _row(first: str, rest: Sequence[str]) -> str:
    return f"| {' | '.join([first, *rest])} |"


Killed = list[frozenset[str]]
"""For each of some variants, the contracts that catch it."""


@dataclass(frozen=True)
class Killing:
    """Some variants, or their twins, over the traces of the seeds. They are given by their places
    in VARIANTS: what makes them does not pickle."""

    places: tuple[int, ...]
    as_twins: bool
    seeds: tuple[int, ...]

    def run(self) -> Killed:
        """The contracts that catch each of them."""
        variants = [VARIANTS[place] for place in self.places]
        return [killers(_twin(one) if self.as_twins else one, self.seeds) for one in variants]


Results = Callable[[Callable[[Killing], Killed], Sequence[Killing]], Iterable[tuple[int, Killed]]]
"""A function that does jobs, and yields the number and the outcome of each as it comes."""


def one_by_one(
    run: Callable[[Killing], Killed], jobs: Sequence[Killing]
) -> Iterable[tuple[int, Killed]]:
    """Jobs done in this process."""
    return enumerate(map(run, jobs))


def kill_matrix(
    seeds: Sequence[int] = SEEDS, results: Results = one_by_one, component: str | None = None
) -> KillMatrix:
    """Run every variant, or those of a component, and the reference beside it, over the traces of
    the seeds."""
    variants = [one for one in runnable() if component is None or component in components_of(one)]
    places = [VARIANTS.index(variant) for variant in variants]
    twins = list({_twin(VARIANTS[place]): place for place in places}.values())
    jobs = [
        Killing(tuple(some[first::GROUPS]), as_twins, tuple(seeds))
        for some, as_twins in ((places, False), (twins, True))
        for first in range(min(GROUPS, len(some)))
    ]
    kills: dict[int, frozenset[str]] = {}
    alarms: set[str] = set()
    for number, found in results(Killing.run, jobs):
        if jobs[number].as_twins:
            alarms.update(*found)
        else:
            kills.update(zip(jobs[number].places, found, strict=True))
    return KillMatrix(
        seeds=tuple(seeds),
        kills={VARIANTS[place]: kills[place] for place in places},
        false_alarms=frozenset(alarms),
        contracts=_all_contracts(variants),
        component=component,
    )


def _twin(variant: Variant) -> Variant:
    """The reference as it is, run as the variant is."""
    return Variant(
        "",
        "",
        variant.manager,
        MANAGERS.get(variant.manager),
        variant.resized,
        shape=variant.shape,
        seeds=variant.seeds,
        lane=variant.lane,
    )


def runnable() -> list[Variant]:
    """The variants that this interpreter has the libraries for."""
    return [
        variant
        for variant in VARIANTS
        if variant.manager != MEDIA_HASH or not missing_media_libraries()
    ]


def components_of(variant: Variant) -> frozenset[str]:
    """The components whose contracts judge what the variant is a variant of."""
    return frozenset(rule.component for rule in rules_for(variant.manager, release=None).all)


def killers(variant: Variant, seeds: Sequence[int] = SEEDS) -> frozenset[str]:
    """Ids of the contracts that a variant breaks over the traces of the seeds."""
    broken: set[str] = set()
    target = target_of(variant)
    for trace in traces_of(variant, seeds):
        result = target.run([trace], variant.fault)[0]
        broken.update(examine(trace, result, target).violations)
    return frozenset(broken)


def target_of(variant: Variant) -> ReferenceTarget:
    """The reference with the variant's fault, but for one that is planted when it runs."""
    if variant.factory is None:
        return ReferenceTarget(variant.semantics)
    protocol = Protocol(refuses_resized=not variant.resized)
    managers = {variant.manager: variant.factory}
    return ReferenceTarget(variant.semantics, protocol, managers=managers)


def traces_of(variant: Variant, seeds: Sequence[int] = SEEDS) -> Iterator[Trace]:
    """What a variant is run over: of the seeds as many as a kind takes, or those that it names."""
    most = _SEEDS_OF.get(variant.manager)
    for seed in variant.seeds or seeds[:most]:
        for lane in _lanes(variant):
            yield _trace(lane, seed, variant.shape)


def _lanes(variant: Variant) -> tuple[str, ...]:
    """The names of those that a variant is run over."""
    if variant.manager == SCHEDULER:
        return (variant.lane,)
    return ("reused media ids",) if variant.resized else _LANES_OF[variant.manager]


@cache
def _trace(lane: str, seed: int, shape: str | None) -> Trace:
    return LANES[lane].trace(seed, None) if shape is None else LANES[lane].make(seed, shape)


_LANES_OF = {
    "encoder_cache": ("encoder cache",),
    "encoder_decoder": ("encoder-decoder",),
    BLOCK_HASH: ("block keys",),
    MEDIA_HASH: ("media hash",),
    IDENTIFIER: ("media identifier",),
    KV_CACHE: ("KV cache",),
    CONNECTOR: ("connectors on a disk", "connectors in memory"),
    FRONT_END: (
        *("front end", "front end, mixed media", "front end, several servers"),
        *("front end, shared memory", "front end, several answers"),
    ),
}
_SEEDS_OF = {
    KV_CACHE: KV_CACHE_TRACES,
    SCHEDULER: SCHEDULER_TRACES,
    CONNECTOR: CONNECTOR_TRACES,
}
"""The most seeds at which a variant of these managers is run; one of another is run at all, and one
that names seeds at those."""


def _all_contracts(variants: Iterable[Variant]) -> tuple[Contract, ...]:
    """The contracts of all that has such variants, component by component."""
    judged = {variant.manager for variant in variants}
    judging = {rule.id for manager in judged for rule in rules_for(manager, release=None).all}
    found = [rule for rule in contracts() if rule.id in judging]
    return tuple(sorted(found, key=lambda rule: rule.component))  # whatever was imported first
