"""`cacheproof http`: what a release's OpenAI server answers under load, beside the runner."""

import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from cacheproof.audit.listing import listed, of_answers, of_mixed_steps
from cacheproof.differential.audit.audit import WRITTEN_SECONDS, Audit
from cacheproof.differential.errors import InputError
from cacheproof.differential.provision import environment, releases
from cacheproof.differential.provision.cache import Cache, Report
from cacheproof.differential.search import fault_folders
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.search.verdict import HOLDS, INTERRUPTED, UNLISTED, VOID
from cacheproof.differential.serving import operators, recorder
from cacheproof.differential.serving.answers import AnswerTally, RunnerAnswer
from cacheproof.differential.serving.clients import ask_all
from cacheproof.differential.serving.refusals import RefusedRequest, refusals
from cacheproof.differential.serving.server import Server
from cacheproof.differential.serving.traffic import (
    MAX_TOKENS,
    MODELS_OF,
    SERVED_MODELS,
    SERVED_TASKS,
    UNITS,
    AskedPrompt,
    ServedModel,
    ServedTask,
    Settings,
    Traffic,
    traffic,
)
from cacheproof.differential.targets.named import TargetKind, named
from cacheproof.gpu_runner.jobs import GenerateJob
from cacheproof.output.conclusion import Conclusion
from cacheproof.output.console import CommandOutput
from cacheproof.output.folders import folder_of
from cacheproof.output.progress import Live
from cacheproof.output.verdict_line import counted, rule_told
from cacheproof.reference.releases import NEWEST
from cacheproof.serving.generating import told_by_child
from cacheproof.serving.verdict import ServersAsked
from cacheproof.spec.versions import release_key
from cacheproof.work.extras import install_line
from cacheproof.work.plan import seed_range

VERSIONS = 3
"""Of the weights that an operator loads, those that a server starts with among them."""
KEEPS_FRAME_RATES_SINCE = "0.31.0"
NO_RATE = 1 / 24
"""Seconds that a frame of a film takes for Qwen2.5-VL's processor where nobody tells it how long,
as releases did before (docs/explain/runner.md)."""
REFERENCE_SHARE, JUDGED_FROM = 0.3, 0.9
"""Shares of a server's whole time: until the reference is done, and until judging begins."""
ANSWER_SECONDS = 10.0
"""How long after an engine core has refused a request its client may hear of that."""
OPERATED_PATIENCE = 5
"""How often a client asks again where each reset may make its request fail once more."""
_ENDS_AN_ENGINE = frozenset({"SC-2", "SC-8", "SC-9", "WM-1", "PM-8"})
"""Contracts of which a server breaks one when it dies of a listed fault."""
_POOLS: Mapping[ServedTask, Literal["", "embed", "classify"]] = {
    "generate": "",
    "embed": "embed",
    "classify": "classify",
    "score": "embed",
}
"""What is made of a prompt's last hidden state."""
_SAID = {"stopped": "stop", "length": "length"}
"""Why an answer ended: the reference's word, and the server's."""


@dataclass(frozen=True)
class AskedOfServers:
    """What every server is asked with."""

    output: CommandOutput
    release: releases.InstalledRelease
    libraries: tuple[Path, ...]
    requests: int
    clients: int
    has_operator: bool
    task: ServedTask
    api_servers: int
    engines: int
    faults: Sequence[KnownFault]
    records: Path | None

    def traffic(self, model: ServedModel, seed: int) -> Traffic:
        """What a server is asked, and how it is started."""
        drawn = traffic(seed, model, self.requests, self.task)
        settings = replace(drawn.settings, api_servers=self.api_servers, engines=self.engines)
        return replace(drawn, settings=settings)


@dataclass(frozen=True)
class AuditedRecord:
    """What a server's record says.

    Attributes:
        broken: contracts of safety and liveness that it breaks, with the listed faults that do so,
            none where one of its breaks is not listed.
        unjudged: what of it was not judged; empty for nothing.
        explained: when requests failed of whose processed media it says why, in seconds since the
            epoch.
        front_end: the listed faults of which a front end has ended beside an engine that went on;
            none where one has ended of what is not listed, None where none has ended.
        mixed: when a listed fault has given requests one another's encoder outputs, by its name, in
            seconds since the epoch.
    """

    broken: dict[str, list[str]]
    unjudged: str
    explained: tuple[float, ...] = ()
    front_end: tuple[str, ...] | None = None
    mixed: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def cause(self, asked_at: float, ended_at: float) -> str:
        """The listed fault of which an answer may be wrong that came between these moments; empty
        for none."""
        names = (
            name
            for name, times in self.mixed.items()
            if any(asked_at <= when <= ended_at for when in times)
        )
        return next(names, "")


@dataclass
class ServerReport:
    """The outcome for one server.

    Attributes:
        died: what it said last; empty for one that still answered in the end.
        record: what its record says.
        refusals: what it was asked in the end, that it had to refuse.
        operations: how often its operator did what.
    """

    model: ServedModel
    seed: int
    tally: AnswerTally
    met: dict[str, int]
    died: str
    record: AuditedRecord
    refusals: list[RefusedRequest] = field(default_factory=list)
    operations: Mapping[str, int] = field(default_factory=dict)

    @property
    def failed_at(self) -> list[float]:
        """When requests failed that asked for nothing wrong, each time."""
        after_refusals = [when for one in self.refusals for when in one.failed_at]
        return sorted(self.tally.failed_at + after_refusals)

    @property
    def unexplained(self) -> int:
        """How many of these times nothing that the record explains can have led to."""
        left, count = sorted(self.record.explained), 0
        for when in self.failed_at:
            while left and left[0] < when - ANSWER_SECONDS:
                left.pop(0)
            if left and left[0] <= when:
                left.pop(0)
            else:
                count += 1
        return count

    @property
    def is_unlisted(self) -> bool:
        """Whether anything is wrong that no listed fault of the release is known to do."""
        record = self.record
        unlisted = [name for name, faults in record.broken.items() if not faults]
        is_known = bool(record.front_end) or not _ENDS_AN_ENGINE.isdisjoint(record.broken)
        # Another front end may still answer for the server.
        died = record.front_end == () or (bool(self.died) and not is_known)
        return bool(self.tally.differences or unlisted or died or self.unexplained)


def http(
    output: CommandOutput,
    target: str,
    kinds: Sequence[str],
    seeds: str,
    requests: int,
    clients: int,
    known: Path | None,
    records: Path | None,
    *,
    has_operator: bool = False,
    task: str = "generate",
    api_servers: int = 1,
    engines: int = 1,
) -> int:
    """Ask a server of each kind of model and each seed, and print what came of it; with an operator
    at work where it `has_operator`. A server has so many `api_servers` and `engines`. Returns the
    exit code."""
    if find_spec("PIL") is None:
        raise InputError(
            "http makes pictures with Pillow, which this Python has not; expected what "
            f"{install_line('serving')} brings"
        )
    numbers = seed_range(seeds)
    assert numbers is not None
    asked_for = _task(task)
    models = [_model(name) for name in kinds] or list(MODELS_OF[asked_for])
    for other in set(models) - set(MODELS_OF[asked_for]):
        raise InputError(
            f"--model {other} --task {task}: expected one of {', '.join(MODELS_OF[asked_for])}"
        )
    if records is not None:
        folder_of(records, "--records")
    faults = fault_folders.load(known)
    version = _engine(target)
    release = releases.install(version, report=output.say, kind=releases.ENGINE)
    cache = Cache.locate()
    with cache.writing():
        libraries = environment.ensure(cache, environment.SERVER, report=output.say)
    asked = AskedOfServers(
        output,
        release,
        libraries.overlays,
        requests,
        clients,
        has_operator,
        asked_for,
        api_servers,
        engines,
        faults,
        records,
    )
    servers = [(kind, seed) for kind in models for seed in numbers]
    told: list[ServerReport] = []
    is_interrupted = False
    try:
        with output.live(f"asking servers of {target}") as live:
            for kind, seed in servers:
                told.append(_one_server(asked, kind, seed, _telling(live, told, servers)))
                _show(output, release.version, told[-1], asked.traffic(kind, seed).settings)
    except KeyboardInterrupt:
        is_interrupted = True
    code = INTERRUPTED if is_interrupted else _exit_code(told)
    left = len(servers) - len(told)
    facts = {
        "target": target,
        "servers": [_json(one) for one in told],
        "interrupted": is_interrupted,
    }
    return output.tell(Conclusion(code, _served(target, code, told, left, asked.task).line, facts))


def _telling(
    live: Live, told: Sequence[ServerReport], servers: Sequence[tuple[ServedModel, int]]
) -> Callable[[str, float], None]:
    """A function that takes how far one server is: what it does, and its share from 0 to 1."""
    done = len(told)
    kind, seed = servers[done]
    of = f"{kind}, seed {seed}, server {done + 1} of {len(servers)}"
    return lambda what, share: live.count(done + share, len(servers), f"{of}: {what}")


def _exit_code(told: Sequence[ServerReport]) -> int:
    if any(one.is_unlisted for one in told):
        return UNLISTED
    compared = sum(one.tally.compared for one in told)
    return VOID if not compared or any(one.record.unjudged for one in told) else HOLDS


def _served(
    target: str, code: int, told: Sequence[ServerReport], left: int, task: ServedTask
) -> ServersAsked:
    """What came of all servers, of which some are `left`."""
    records = [one.record for one in told]
    faults = [one for each in records for several in each.broken.values() for one in several]
    faults += [one for each in records for one in each.front_end or ()]
    faults += [one for each in told for one in each.tally.known]
    return ServersAsked(
        target,
        code,
        len(told),
        sum(one.tally.compared for one in told),
        sum(one.tally.counts["of which equal"] for one in told),
        sum(one.is_unlisted for one in told),
        tuple(dict.fromkeys(faults)),
        sum(bool(one.record.unjudged) for one in told),
        left,
        UNITS[task],
        sum(len(some) for one in told for some in one.tally.known.values()),
    )


def _show(output: CommandOutput, release: str, told: ServerReport, settings: Settings) -> None:
    counts = {**told.tally.counts, **told.met}
    said = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    output.line(f"{release}, {told.model}, seed {told.seed}: {_shown(settings)}")
    is_answered = settings.task == "generate"
    what = "log probabilities" if is_answered else f"{UNITS[settings.task]}s"
    output.line(f"  {said}; {what} at most {told.tally.apart:.1e} apart")
    if told.operations:
        did = ", ".join(f"{count} times {what}" for what, count in told.operations.items())
        output.line(f"  by its operator: {did}")
    for difference in (*told.tally.differences, *told.tally.failures):
        output.line(f"  {difference}")
    for fault, known in told.tally.known.items():
        output.line(f"  {fault}, by the record, made {counted(len(known), 'answer')} differ:")
        for difference in known:
            output.line(f"    {difference}")
    failed = [one for one in told.refusals if one.failed_after]
    if failed:
        again = sum(one.failed_after > 1 for one in failed)
        output.line(
            f"  after {len(failed)} of {len(told.refusals)} refused requests, who "
            f"sent the same medium next was not answered; after {again} not when asked again either"
        )
    if told.unexplained:
        times = len(told.failed_at)
        output.line(f"  failed {times} times, {told.unexplained} of them for no reason on record")
    for contract, faults in told.record.broken.items():
        listed_as = ", ".join(faults) or "not listed"
        output.line(f"  its record breaks {rule_told(contract)}: {listed_as}")
    if told.died:
        of = "".join(f" ({one})" for one in told.record.front_end or ())
        output.line(f"  it died{of}: {told.died}")
    if told.record.front_end == ():
        output.line("  a front end ended of what no listed fault does; its record says of what")
    if told.record.unjudged:
        output.line(f"  not all of its record was judged: {told.record.unjudged}")


def _json(told: ServerReport) -> dict[str, object]:
    return {
        "model": told.model,
        "seed": told.seed,
        "counts": {**told.tally.counts, **told.met},
        "apart": told.tally.apart,
        "differences": told.tally.differences,
        "known": told.tally.known,
        "failures": told.tally.failures,
        "broken": told.record.broken,
        "died": told.died,
        "unjudged": told.record.unjudged,
        "refusals": [one._asdict() for one in told.refusals],
        "failed": len(told.failed_at),
        "unexplained": told.unexplained,
        "operations": told.operations,
        "front_end": told.record.front_end,
        "unlisted": told.is_unlisted,
    }


def _engine(target: str) -> str:
    """The release of which a target is the engine. Raises InputError where it is none."""
    is_engine = target.startswith(f"{TargetKind.ENGINE.value}@")
    if not is_engine or not named(target).version:
        raise InputError(f"--target {target}: no engine of a release; expected engine@VERSION")
    return named(target).version


def _task(name: str) -> ServedTask:
    for known in SERVED_TASKS:
        if name == known:
            return known
    raise InputError(f"--task {name}: expected one of {', '.join(SERVED_TASKS)}")


def _model(name: str) -> ServedModel:
    for known in SERVED_MODELS:
        if name == known:
            return known
    raise InputError(f"--model {name}: expected one of {', '.join(SERVED_MODELS)}")


def _one_server(
    asked: AskedOfServers, model: ServedModel, seed: int, tell: Callable[[str, float], None]
) -> ServerReport:
    """Start one, ask it, compare, and audit its record."""
    tell("the reference answers", 0.0)
    traffic_of = asked.traffic(model, seed)
    does = operators.operations_of(asked.release.version)
    loads = asked.has_operator and operators.LOADS in does
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        records = folder / "records"
        versions = [
            truths_of(
                model,
                traffic_of,
                folder,
                version=version,
                release=asked.release.version,
                report=asked.output.say,
            )
            for version in range(VERSIONS if loads else 1)
        ]
        directories = [directory for directory, _ in versions]
        server = Server(
            asked.release,
            model,
            directories[0],
            traffic_of.settings,
            folder,
            variables={
                **recorder.variables(records),
                **(operators.VARIABLES if asked.has_operator else {}),
            },
            search=(*asked.libraries, recorder.installed(folder)),
        )
        tell("it starts", REFERENCE_SHARE)
        with server:
            answered = itertools.count(1)

            def advance() -> None:
                number = next(answered)
                share = REFERENCE_SHARE + (JUDGED_FROM - REFERENCE_SHARE) * number / asked.requests
                tell(f"{number:,} of {asked.requests:,} requests are answered", share)

            operator = operators.Operator(server.url, seed, does, directories)
            with operator if asked.has_operator else nullcontext():
                patience = OPERATED_PATIENCE if asked.has_operator else 1
                answers = ask_all(server.url, traffic_of, asked.clients, advance, patience=patience)
            met = server.metrics()
            died = "" if server.is_alive else server.last_words()
            refused = [] if died else list(refusals(server.url, model, seed, asked.task))
            time.sleep(WRITTEN_SECONDS)
            if refused and not server.is_alive:  # which leaves nobody answered, whatever it dies of
                died = server.last_words()
                refused = [one._replace(failed_at=()) for one in refused]
        tell("its record is judged", JUDGED_FROM)
        audited = _audited(records, asked.faults)
        if asked.records is not None:
            shutil.copytree(records, asked.records / f"{model}-{seed}", dirs_exist_ok=True)
            shutil.copy(folder / "server.log", asked.records / f"{model}-{seed}")
    tally = AnswerTally(operator.has_ended, audited.cause, asked.task)
    for number, (request, answer) in enumerate(zip(traffic_of.asks, answers, strict=True)):
        if died and answer.failed:
            tally.counts["unanswered by the server that died"] += 1
        else:
            of_weights = operator.versions(answer.asked_at, answer.ended_at)
            tally.counts["answered while other weights were loaded"] += len(of_weights) > 1
            tally.counts["answered by other weights than the first"] += 0 not in of_weights
            right = [_truth_of(request, versions[one][1]) for one in of_weights]
            tally.add(number, request, answer, right)
    if not died:
        tally.differences += [
            f"operator: {call}: {said}" for call, said in operator.refused.items()
        ]
    return ServerReport(
        model,
        seed,
        tally,
        met,
        died,
        audited,
        refused,
        operations=dict(operator.done),
    )


def _truth_of(request: AskedPrompt, truths: Sequence[RunnerAnswer]) -> RunnerAnswer:
    """What the runner says to a request. A score is the cosine of the angle between two prompts'
    embeddings, which have length 1."""
    truth = truths[request.question]
    if request.other is None:
        return truth
    pairs = zip(truth.vector, truths[request.other].vector, strict=True)
    return truth._replace(vector=(sum(one * other for one, other in pairs),))


def _audited(records: Path, faults: Sequence[KnownFault]) -> AuditedRecord:
    """Audit what a server has recorded."""
    try:
        audit_of = Audit(str(records))
        audit_of.look(last=True)
    except InputError as reason:  # nothing was recorded
        return AuditedRecord({}, str(reason))
    broken: dict[str, list[list[str]]] = {}
    missing = []
    for auditor in audit_of.auditors.values():
        for found in auditor.found:
            contract = found.violation.contract
            if contract.harm != "efficiency":
                known = [one.name for one in listed(faults, auditor, found)]
                broken.setdefault(contract.id, []).append(known)
        account = auditor.account
        missing += [f"{account.judged_steps} of {account.steps} steps"] * (
            account.judged_steps != account.steps or account.gap_count > 0
        )
    told = {
        contract: list(dict.fromkeys(itertools.chain(*known))) if all(known) else []
        for contract, known in broken.items()
    }
    unjudged = ", ".join(missing or ["no scheduler's record"] * (not audit_of.auditors))
    auditors = audit_of.auditors.values()
    ended = [
        [one.name for one in of_answers(faults, auditor)]
        for auditor in auditors
        if auditor.front_end_failure is not None and auditor.fatal is None
    ]
    front_end = tuple(dict.fromkeys(itertools.chain(*ended))) if all(ended) else ()
    explained = [when for one in auditors for when in one.media.explained]
    mixed: dict[str, list[float]] = {}
    for auditor in auditors:
        fault = of_mixed_steps(faults, auditor)
        if auditor.mixed and fault is not None:
            mixed.setdefault(fault.name, []).extend(auditor.mixed)
    return AuditedRecord(told, unjudged, tuple(explained), front_end if ended else None, mixed)


def truths_of(
    model: ServedModel,
    traffic_of: Traffic,
    folder: Path,
    *,
    version: int = 0,
    release: str = NEWEST,
    report: Report,
) -> tuple[Path, list[RunnerAnswer]]:
    """The directory of that version of the model's weights, and what the runner says with them to
    each question beside a release, one after the other, without prefix caching."""
    prompts = []
    for question in traffic_of.questions:
        files = []
        for medium in question.media:
            file = folder / f"{medium.name}{medium.suffix}"
            file.write_bytes(medium.data)
            files.append((medium.modality, str(file)))
        prompts.append((question.text, files))
    most = traffic_of.settings.max_model_len
    is_before = release_key(release) < release_key(KEEPS_FRAME_RATES_SINCE)
    drops_rate = model == "qwen2_5_vl" and is_before
    job = GenerateJob(
        model=model,
        models=str(Cache.locate().models),
        prompts=prompts,
        device="cpu",
        max_tokens=MAX_TOKENS,
        max_num_batched_tokens=most,
        max_num_seqs=1,
        max_model_len=most,
        max_num_encoder_input_tokens=1,
        encoder_cache_size=1,
        num_blocks=64,
        block_size=32,
        enable_prefix_caching=False,
        pools=_POOLS[traffic_of.settings.task],
        version=version,
        seconds_of_a_frame=NO_RATE if drops_rate else 0.0,
    )
    directory = ""
    truths = []
    for told in told_by_child(job, report=report):
        directory = told.get("model", directory)
        if "request" in told:
            tokens = zip(told["token_ids"], told["logprobs"], told["leads"], strict=True)
            truths.append(
                RunnerAnswer(
                    told["prompt_token_ids"],
                    tuple(tokens),
                    _SAID[told["ended"]],
                    told.get("vector", ()),
                )
            )
    return Path(directory), truths


def _shown(settings: Settings) -> str:
    parts = [
        f"{settings.max_num_batched_tokens} tokens a step",
        f"{settings.max_num_seqs} requests at once",
        f"{settings.num_blocks} blocks",
        "prefix caching" if settings.prefix_caching else "no prefix caching",
        "priority" if settings.is_priority else "first come, first served",
        f"processed media kept: {settings.processor_cache or 'no'}",
        *([f"{settings.api_servers} API servers"] * (settings.api_servers > 1)),
        *([f"{settings.engines} engines"] * (settings.engines > 1)),
    ]
    return ", ".join(parts + ["whole items"] * settings.whole_items)
