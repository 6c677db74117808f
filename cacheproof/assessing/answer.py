"""The answer to a question of a release, from the faults that bear on it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from cacheproof.assessing.questions import AuditQuestion
from cacheproof.differential.search.known import KnownFault
from cacheproof.listed import kept
from cacheproof.listed.pages import told
from cacheproof.reference.releases import within
from cacheproof.spec.evidence import Outcome
from cacheproof.spec.registry import by_id
from cacheproof.spec.versions import release_key

SEEDS = "20261123:20261143"
"""The first seeds of docs/evidence/releases-checked.md."""
CALLERS_OWE = ("CP-1", "CP-2", "CP-3", "CP-4", "CP-5", "CP-6")
"""What the proofs of managers assume of each call."""


class Status(StrEnum):
    """What is known of a fault in a release."""

    SEEN = "seen"
    AS_READ = "as read"
    NOT_RUN = "not run"
    MENDED = "mended"
    ABSENT = "not there"


class AuditVerdict(StrEnum):
    """The answer to a question."""

    YES = "yes"
    AS_READ = "yes, as read"
    NOT_KNOWN = "not known"
    NO = "no known way"


class EvidenceKind(StrEnum):
    """How something is known, the strongest first."""

    PROVED = "proved"
    SEARCHED = "searched"
    REPLAYED = "replayed"
    AS_READ = "as read"


class EvidenceLine(NamedTuple):
    """A line of evidence, and the command that shows it; no command where none does."""

    kind: EvidenceKind
    text: str
    command: str = ""


def status(fault: KnownFault, release: str, question: str = "") -> Status:
    """What is known of a fault in a release; of a question, whether it bears on that there."""
    narrowed = fault.only.get(question)
    is_narrowed = narrowed is not None and release not in within(narrowed)
    if release in within(fault.seen):
        return Status.ABSENT if is_narrowed else Status.SEEN
    if release in within(fault.as_read):
        return Status.ABSENT if is_narrowed else Status.AS_READ
    if release in within(fault.not_run):
        return Status.NOT_RUN
    if fault.mended_in is not None and release_key(release) >= release_key(fault.mended_in):
        return Status.MENDED
    last_run = within(fault.seen)[-1:]
    is_later = not fault.mended_in and release_key(release) > max(map(release_key, last_run))
    return Status.NOT_RUN if is_later else Status.ABSENT


@dataclass(frozen=True)
class AuditAnswer:
    """What the `known` faults say to a question about a modelled release."""

    question: AuditQuestion
    release: str
    known: tuple[KnownFault, ...]

    @property
    def faults(self) -> list[KnownFault]:
        """The listed faults that bear on the question in some release."""
        return [one for one in self.known if self.question.id in (one.questions or ())]

    def of(self, *wanted: Status) -> list[KnownFault]:
        """The question's faults of which that is known."""
        return [one for one in self.faults if status(one, self.release, self.question.id) in wanted]

    @property
    def verdict(self) -> AuditVerdict:
        """Yes where a run showed it; else what was read; else whether something was not run."""
        if self.of(Status.SEEN):
            return AuditVerdict.YES
        if self.of(Status.AS_READ):
            return AuditVerdict.AS_READ
        return AuditVerdict.NOT_KNOWN if self.of(Status.NOT_RUN) else AuditVerdict.NO

    @property
    def words(self) -> str:
        """The answer in a sentence."""
        seen, read, not_run = (
            len(self.of(one)) for one in (Status.SEEN, Status.AS_READ, Status.NOT_RUN)
        )
        match self.verdict:
            case AuditVerdict.YES:
                more = f", and {read} more as read" if read else ""
                return f"Yes: {_ways(seen)}{more}, each under the configuration named with it."
            case AuditVerdict.AS_READ:
                return f"Yes, as read: {_ways(read)}, under the configuration named with it."
            case AuditVerdict.NOT_KNOWN:
                return f"Not known: {_ways(not_run)} in other releases, not run on this one."
            case AuditVerdict.NO:
                return "No way is known. That is no proof that there is none."

    def evidence(self) -> Iterator[EvidenceLine]:
        """What the answer rests on, the strongest kind first."""
        for kind in EvidenceKind:
            yield from (one for one in self._evidence() if one.kind is kind)

    def _evidence(self) -> Iterator[EvidenceLine]:
        yield from _proved(self)
        yield from _searched(self)
        for fault in self.of(Status.SEEN):
            yield from shown(fault, self.release)
        for fault in self.of(Status.AS_READ):
            yield EvidenceLine(
                EvidenceKind.AS_READ, f"{fault.name}: the lines are there, and were not run"
            )


def _ways(count: int) -> str:
    return f"{count} known way{'' if count == 1 else 's'}"


def _proved(given: AuditAnswer) -> Iterator[EvidenceLine]:
    """What is proved and refuted of contracts that bear on the question, and what it assumes."""
    command = f"cacheproof prove --target vllm@{given.release}"
    proofs = [
        (contract, proof)
        for proof in kept.proofs(given.release)
        for contract in proof.contracts
        if contract in given.question.contracts
    ]
    order = list(dict.fromkeys(contract for contract, _ in proofs))
    for contract, proof in sorted(proofs, key=lambda one: order.index(one[0])):
        about = _about(proof, [one.subject for rule, one in proofs if rule == contract])
        text = f"{contract} {proof.outcome} of {about}: {by_id(contract).title}"
        yield EvidenceLine(
            EvidenceKind.PROVED, f"{text} ({_extent(given, proof, contract)})", command
        )
    for text in _assumptions([proof.subject for _, proof in proofs], given.release):
        yield EvidenceLine(EvidenceKind.PROVED, text, command)


def _about(proof: kept.Proof, subjects: Sequence[str]) -> str:
    """What a proof speaks of, as a phrase: a contract of some values may hold where it does not of
    all; `subjects` are those of all proofs of the contract."""
    whole, _, part = proof.subject.partition(": ")
    if part:
        return f"{whole}, given only {part}"
    has_part = any(one.startswith(f"{whole}: ") for one in subjects)
    return f"{whole}, given values of any kind" if has_part else whole


def _assumptions(subjects: Sequence[str], release: str) -> Iterator[str]:
    """What proofs of these subjects assume, and whether a search saw it broken."""
    if any(one.endswith("CacheManager") for one in subjects):
        broken = sorted(one for one in kept.met(release) if one in CALLERS_OWE)
        seen = f"searches of this release broke {', '.join(broken)}" if broken else "none broke"
        yield (
            f"of managers this assumes that a scheduler keeps {CALLERS_OWE[0]} to "
            f"{CALLERS_OWE[-1]}: {seen} (docs/explain/proofs.md)"
        )
    if any(not one.endswith("CacheManager") for one in subjects):
        yield (
            "of keys this reads the reference's text, which writes as the release does "
            "(docs/explain/keys.md)"
        )


def _extent(given: AuditAnswer, proof: kept.Proof, contract: str) -> str:
    """How far a proof reaches; of what is refuted, as which faults it is listed."""
    if proof.outcome is not Outcome.REFUTED:
        return proof.scope or "no scope"
    listed = [
        one.name
        for one in given.known
        if contract in one.contracts and status(one, given.release) is Status.SEEN
    ]
    return f"listed as {', '.join(listed)}" if listed else "not listed"


def _searched(given: AuditAnswer) -> Iterator[EvidenceLine]:
    """What searches of the question's depths came to."""
    for search in kept.searches(given.release):
        if search.depth not in given.question.depths:
            continue
        if not search.compared:
            yield EvidenceLine(
                EvidenceKind.SEARCHED,
                f"{search.what}: not searched, this release has no such depth",
            )
            continue
        text = (
            f"{search.compared:,} {search.what} compared with the reference: {search.differences} "
            f"traces differ, {search.unlisted} unknown breaks"
        )
        options = f"--depth {search.depth} --seeds {SEEDS}"
        yield EvidenceLine(
            EvidenceKind.SEARCHED, text, f"cacheproof fuzz --target vllm@{given.release} {options}"
        )


def shown(fault: KnownFault, release: str) -> Iterator[EvidenceLine]:
    """What shows a fault in a release in which it was seen."""
    found = [*_run_again(fault, release)]
    if not found:
        found = [
            EvidenceLine(
                EvidenceKind.REPLAYED, f"{fault.name}: what was run stands in {fault.page}"
            )
        ]
    yield from found


def _run_again(fault: KnownFault, release: str) -> Iterator[EvidenceLine]:
    """The commands that show a fault again: a search where no trace does."""
    replayed = [*_replayed(fault, release)]
    if fault.search and not replayed:
        options = f"vllm@{release} {fault.search}"
        yield EvidenceLine(EvidenceKind.SEARCHED, fault.name, f"cacheproof fuzz --target {options}")
    if fault.command:
        yield EvidenceLine(EvidenceKind.REPLAYED, fault.name, fault.command_on(release))
    yield from replayed


def _replayed(fault: KnownFault, release: str) -> Iterator[EvidenceLine]:
    """The traces that show a fault on the release, each what no trace before it does, and the first
    that shows it on its engine."""
    replay = "cacheproof replay {} --target {}"
    first = "".join(fault.traces[:1])
    if first and fault.product:
        product, version = fault.product.split(" ")[:2]
        on = replay.format(told(first), f"{product.lower()}@{version}")
        yield EvidenceLine(EvidenceKind.REPLAYED, f"{fault.name}: on {product} {version}", on)
    elif first and not fault.contracts:
        on = replay.format(told(first), f"vllm@{release}")
        yield EvidenceLine(EvidenceKind.REPLAYED, f"{fault.name}: no contract says it", on)
    else:
        for trace, broken in _breaks(fault, release):
            rules = ", ".join(one.contract for one in broken)
            text = f"{fault.name}: breaks {rules}{_runner(fault, broken, release)}"
            yield EvidenceLine(
                EvidenceKind.REPLAYED, text, replay.format(told(trace), f"vllm@{release}")
            )
    for trace, releases in fault.engines.items():
        if release in within(releases):
            command = replay.format(told(trace), f"engine@{release}")
            yield EvidenceLine(EvidenceKind.REPLAYED, f"{fault.name}: on a real engine", command)
            break


def _breaks(fault: KnownFault, release: str) -> Iterator[tuple[str, Sequence[kept.KeptReplay]]]:
    """The fault's traces that break one of its contracts on a release, each with those that it
    breaks; only traces that break one more than those before."""
    told: set[str] = set()
    for trace in fault.traces:
        broken = [
            one
            for one in kept.replays()[trace]
            if one.contract in fault.contracts and release in one.first | one.second
        ]
        rules = {one.contract for one in broken}
        if rules - told:
            told |= rules
            yield trace, broken


def _runner(fault: KnownFault, broken: Sequence[kept.KeptReplay], release: str) -> str:
    """Under which model runner, of a fault that is one runner's."""
    of_first = all(release not in one.second for one in broken)
    is_ones = of_first and fault.runner.startswith("first")
    return " under the first model runner" if is_ones else ""
