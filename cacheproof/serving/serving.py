"""`cacheproof http`: what a release's OpenAI server answers under load, beside the runner."""

import itertools
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from cacheproof.audit.listing import listed
from cacheproof.differential.audit.audit import Audit
from cacheproof.differential.errors import InputError
from cacheproof.differential.provision import environment, releases
from cacheproof.differential.provision.cache import Cache, Report
from cacheproof.differential.search import fault_folders
from cacheproof.differential.search.known import KnownFault, called
from cacheproof.differential.search.verdict import HOLDS, INTERRUPTED, UNLISTED, VOID
from cacheproof.differential.serving import operators, recorder
from cacheproof.differential.serving.answers import AnswerTally, RunnerAnswer
from cacheproof.differential.serving.clients import ask_all
from cacheproof.differential.serving.refusals import RefusedRequest, refusals
from cacheproof.differential.serving.server import Server
from cacheproof.differential.serving.traffic import (
    MAX_TOKENS,
    SERVED_MODELS,
    ServedModel,
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
from cacheproof.output.verdict_line import rule_told
from cacheproof.serving.generating import told_by_child
from cacheproof.serving.verdict import ServersAsked
from cacheproof.work.extras import install_line
from cacheproof.work.plan import seed_range

REFERENCE_SHARE, JUDGED_FROM = 0.3, 0.9
"""Shares of a server's whole time: until the reference is done, and until judging begins."""
OPERATED_PATIENCE = 5
"""How often a client asks again where each reset may make its request fail once more."""
_ENDS_AN_ENGINE = frozenset({"SC-2", "SC-8", "SC-9", "WM-1"})
"""Contracts of which a server breaks one when it dies of a listed fault."""
_PARTED = "times its caches of media had parted"
_LEFT_BEHIND = "media-left-behind"
"""What a server does whose caches of processed media part: docs/how-to/serving.md says how."""
_MOVED, _SAYS_MOVED = "shared-media-moved", "has been modified or is invalid"
"""What a worker dies of that finds other media in shared memory than it was sent for, or none."""
_RESETS_MEDIA = ("processed media", "paused", "asleep, level")
"""How operations begin that reset processed media."""
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
    faults: Sequence[KnownFault]
    records: Path | None


@dataclass
class ServerReport:
    """The outcome for one server.

    Attributes:
        died: what it said last; empty for one that still answered in the end.
        broken: contracts that its record breaks, each with the listed faults that break it.
        unjudged: why the audit of its record is not whole; empty for one that is.
        refusals: what it was asked in the end, that it had to refuse.
        parted: how often its caches of media parted over these.
        operations: how often its operator did what.
        may_move: whether its media lie in shared memory, and its release is listed to move them.
    """

    model: ServedModel
    seed: int
    tally: AnswerTally
    met: dict[str, int]
    died: str
    broken: dict[str, list[str]]
    unjudged: str
    refusals: list[RefusedRequest] = field(default_factory=list)
    parted: int = 0
    operations: Mapping[str, int] = field(default_factory=dict)
    may_move: bool = False

    @property
    def media_moved(self) -> bool:
        """Whether a worker found other media at an address, once an operator had reset them."""
        were_reset = any(one.startswith(_RESETS_MEDIA) for one in self.operations)
        return self.may_move and were_reset and _SAYS_MOVED in self.died

    @property
    def is_unlisted(self) -> bool:
        """Whether anything is wrong that no listed fault of the release is known to do."""
        unlisted = [name for name, faults in self.broken.items() if not faults]
        is_known = self.media_moved or not _ENDS_AN_ENGINE.isdisjoint(self.broken)
        unexplained = bool(self.died) and not is_known
        failed = sum(one.failed_after for one in self.refusals) > self.parted
        return bool(self.tally.differences or unlisted or unexplained or failed)


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
) -> int:
    """Ask a server of each kind of model and each seed, and print what came of it; with an operator
    at work where it `has_operator`. Returns the exit code."""
    if find_spec("PIL") is None:
        raise InputError(
            "http makes pictures with Pillow, which this Python has not; expected what "
            f"{install_line('serving')} brings"
        )
    numbers = seed_range(seeds)
    assert numbers is not None
    models = [_model(name) for name in kinds]
    if records is not None:
        folder_of(records, "--records")
    faults = fault_folders.load(known)
    version = _engine(target)
    release = releases.install(version, report=output.say, kind=releases.ENGINE)
    cache = Cache.locate()
    with cache.writing():
        libraries = environment.ensure(cache, environment.SERVER, report=output.say)
    asked = AskedOfServers(
        output, release, libraries.overlays, requests, clients, has_operator, faults, records
    )
    servers = [(kind, seed) for kind in models for seed in numbers]
    told: list[ServerReport] = []
    is_interrupted = False
    try:
        with output.live(f"asking servers of {target}") as live:
            for kind, seed in servers:
                told.append(_one_server(asked, kind, seed, _telling(live, told, servers)))
                _show(output, release.version, told[-1])
    except KeyboardInterrupt:
        is_interrupted = True
    code = INTERRUPTED if is_interrupted else _exit_code(told)
    left = len(servers) - len(told)
    facts = {
        "target": target,
        "servers": [_json(one) for one in told],
        "interrupted": is_interrupted,
    }
    return output.tell(Conclusion(code, _served(target, code, told, left).line, facts))


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
    tokens = sum(one.tally.counts["tokens"] for one in told)
    return VOID if not tokens or any(one.unjudged for one in told) else HOLDS


def _served(target: str, code: int, told: Sequence[ServerReport], left: int) -> ServersAsked:
    """What came of all servers, of which some are `left`."""
    faults = [one for each in told for several in each.broken.values() for one in several]
    faults += [_LEFT_BEHIND for each in told if any(one.failed_after for one in each.refusals)]
    faults += [_MOVED for each in told if each.media_moved]
    return ServersAsked(
        target,
        code,
        len(told),
        sum(one.tally.counts["tokens"] for one in told),
        sum(one.tally.counts["of which equal"] for one in told),
        sum(one.is_unlisted for one in told),
        tuple(dict.fromkeys(faults)),
        sum(bool(one.unjudged) for one in told),
        left,
    )


def _show(output: CommandOutput, release: str, told: ServerReport) -> None:
    counts = {**told.tally.counts, **told.met}
    said = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    settings = traffic(told.seed, told.model, 0).settings
    output.line(f"{release}, {told.model}, seed {told.seed}: {_shown(settings)}")
    output.line(f"  {said}; log probabilities at most {told.tally.apart:.1e} apart")
    if told.operations:
        did = ", ".join(f"{count} times {what}" for what, count in told.operations.items())
        output.line(f"  by its operator: {did}")
    for difference in told.tally.differences:
        output.line(f"  {difference}")
    failed = [one for one in told.refusals if one.failed_after]
    if failed:
        again = sum(one.failed_after > 1 for one in failed)
        output.line(
            f"  {_LEFT_BEHIND}: after {len(failed)} of {len(told.refusals)} refused requests, who "
            f"sent the same medium next was not answered; after {again} not when asked again either"
        )
    if sum(one.failed_after for one in failed) > told.parted:
        output.line(f"  its caches of media parted {told.parted} times over these: not listed")
    for contract, faults in told.broken.items():
        listed_as = ", ".join(faults) or "not listed"
        output.line(f"  its record breaks {rule_told(contract)}: {listed_as}")
    if told.died:
        output.line(f"  it died: {told.died}")
    if told.unjudged:
        output.line(f"  not all of its record was judged: {told.unjudged}")


def _json(told: ServerReport) -> dict[str, object]:
    return {
        "model": told.model,
        "seed": told.seed,
        "counts": {**told.tally.counts, **told.met},
        "apart": told.tally.apart,
        "differences": told.tally.differences,
        "broken": told.broken,
        "died": told.died,
        "unjudged": told.unjudged,
        "refusals": [one._asdict() for one in told.refusals],
        "parted": told.parted,
        "operations": told.operations,
        "unlisted": told.is_unlisted,
    }


def _engine(target: str) -> str:
    """The release of which a target is the engine. Raises InputError where it is none."""
    is_engine = target.startswith(f"{TargetKind.ENGINE.value}@")
    if not is_engine or not named(target).version:
        raise InputError(f"--target {target}: no engine of a release; expected engine@VERSION")
    return named(target).version


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
    traffic_of = traffic(seed, model, asked.requests)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        records = folder / "records"
        directory, truths = truths_of(model, traffic_of, folder, report=asked.output.say)
        server = Server(
            asked.release,
            model,
            directory,
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

            operator = operators.Operator(server.url, seed)
            with operator if asked.has_operator else nullcontext():
                patience = OPERATED_PATIENCE if asked.has_operator else 1
                answers = ask_all(server.url, traffic_of, asked.clients, advance, patience=patience)
            met = server.metrics() | {_PARTED: server.drifts()}
            died = "" if server.is_alive else server.last_words()
            refused = [] if died else list(refusals(server.url, model, seed))
            parted_again = server.drifts() - met[_PARTED]
        tell("its record is judged", JUDGED_FROM)
        broken, unjudged = _audited(records, asked.faults)
        if asked.records is not None:
            shutil.copytree(records, asked.records / f"{model}-{seed}", dirs_exist_ok=True)
            shutil.copy(folder / "server.log", asked.records / f"{model}-{seed}")
    tally = AnswerTally(is_operated=asked.has_operator)
    for number, (request, answer) in enumerate(zip(traffic_of.asks, answers, strict=True)):
        if died and answer.failed:
            tally.counts["unanswered by the server that died"] += 1
        else:
            tally.add(number, request, answer, truths[request.question])
    if not died:
        tally.differences += [
            f"operator: {call}: {said}" for call, said in operator.refused.items()
        ]
    failed = tally.counts["failed once, answered when asked again"]
    if failed > met[_PARTED]:
        tally.differences.append(f"{failed} requests failed once, for no reason that is known")
    moves = called(asked.faults, _MOVED)
    return ServerReport(
        model,
        seed,
        tally,
        met,
        died,
        broken,
        unjudged,
        refused,
        parted_again,
        operations=dict(operator.done),
        may_move=traffic_of.settings.processor_cache == "shm"
        and moves is not None
        and moves.is_in(asked.release.version),
    )


def _audited(records: Path, faults: Sequence[KnownFault]) -> tuple[dict[str, list[str]], str]:
    """Contracts of safety and liveness that a record breaks, with the listed faults that do so; and
    what of it was not judged."""
    try:
        audit_of = Audit(str(records))
        audit_of.look(last=True)
    except InputError as reason:  # nothing was recorded
        return {}, str(reason)
    broken: dict[str, list[str]] = {}
    missing = []
    for auditor in audit_of.auditors.values():
        for found in auditor.found:
            contract = found.violation.contract
            if contract.harm != "efficiency" and broken.get(contract.id, True):
                broken[contract.id] = [one.name for one in listed(faults, auditor, found)]
        account = auditor.account
        missing += [f"{account.judged_steps} of {account.steps} steps"] * (
            account.judged_steps != account.steps or account.gap_count > 0
        )
    return broken, ", ".join(missing or ["no scheduler's record"] * (not audit_of.auditors))


def truths_of(
    model: ServedModel, traffic_of: Traffic, folder: Path, *, report: Report
) -> tuple[Path, list[RunnerAnswer]]:
    """The model's directory, and what the runner says to each question, one after the other,
    without prefix caching."""
    prompts = []
    for question in traffic_of.questions:
        files = []
        for medium in question.media:
            file = folder / f"{medium.name}{medium.suffix}"
            file.write_bytes(medium.data)
            files.append((medium.modality, str(file)))
        prompts.append((question.text, files))
    most = traffic_of.settings.max_model_len
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
    )
    directory = ""
    truths = []
    for told in told_by_child(job, report=report):
        directory = told.get("model", directory)
        if "request" in told:
            tokens = zip(told["token_ids"], told["logprobs"], told["leads"], strict=True)
            truths.append(
                RunnerAnswer(told["prompt_token_ids"], tuple(tokens), _SAID[told["ended"]])
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
    ]
    return ", ".join(parts + ["whole items"] * settings.whole_items)
