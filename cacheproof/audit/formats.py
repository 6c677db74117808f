"""What an audit found of an engine, as JSON and as the record from which other formats are made."""

from msgspec import structs

from cacheproof.audit.answer import Answered, clock, led_to, moment, names_of, when_of
from cacheproof.differential.audit.account import FoundBreak
from cacheproof.differential.audit.ranking import RankedBreak
from cacheproof.differential.provision import releases
from cacheproof.differential.recording.messages import Text
from cacheproof.differential.texts import places
from cacheproof.differential.texts.places import SourceFunction
from cacheproof.differential.traces.trace import Trace
from cacheproof.formats.result import Case, Excuse, Problem, Result, Rule, Suite, rule_of

GOES_ON = Rule(
    "goes-on",
    "The engine does not end by an exception",
    "safety",
    "an engine that raises stops serving",
    "docs/how-to/recording.md",
)


def result_of(one: Answered, *, is_interrupted: bool = False) -> Result:
    """For the formats that pipelines read. A listed fault fails them too: the engine did it, and
    does not only show that it could."""
    auditor = one.auditor
    found: dict[str, list[Problem]] = {}
    for broken in one.broken:
        contract, _ = broken.first.key
        found.setdefault(contract, []).append(_problem(one, broken))
    scope = f"{auditor.account.judged_steps:,} steps"
    cases = [Case(rule_of(rule.id), scope, tuple(found.get(rule.id, ()))) for rule in auditor.rules]
    void = tuple(auditor.account.gaps) if auditor.account.gap_count else ()
    ended = Case(GOES_ON, scope, tuple(_death(one)))
    suites = Suite("engine", (ended,)), Suite("audit", tuple(cases))
    return Result(one.stem, suites, void=void, is_interrupted=is_interrupted)


def _death(one: Answered) -> list[Problem]:
    if (ended := one.front_end_ended) is not None:
        sentence = f"the front end ended, {clock(ended.time)}: {ended.failure.words}"
        detail = "\n".join(f"{label}: {words}" for label, words in one.death())
        kind = f"{ended.failure.operation}: {ended.failure.error}"
        return [Problem("safety", sentence, detail, kind)]
    if one.died is None:
        return []
    at = one.auditor.when(one.died.step)
    sentence = f"died in {moment(at)}: {one.died.words}{_told_as(one, one.cause)}"
    detail = "\n".join(f"{label}: {words}" for label, words in one.death())
    kind = f"{one.died.operation}: {one.died.error}"
    excuse = None if one.cause is None else _excuse(one, one.cause)
    return [Problem("safety", sentence, detail, kind, excuse=excuse)]


def _problem(one: Answered, broken: RankedBreak) -> Problem:
    found, auditor = broken.shown, one.auditor
    violation = found.violation
    way: tuple[SourceFunction, ...]
    if found.is_of_kv_cache:
        way = (places.of_kv_cache(violation.operation),)
    elif found.is_of_media:
        is_shared = auditor.media.is_shared
        way = (places.of_front_end(violation.operation, is_shared=is_shared),)
    else:
        trace = _window(one, found)
        way = tuple(places.way(trace, len(trace.events) - 1, violation.operation))
    release = None if auditor.release is None else releases.find(auditor.release)
    excuse = _excuse(one, broken)
    if broken.harm == "efficiency":
        excuse = Excuse(
            "its harm is efficiency, which fails no command",
            excuse.fault if excuse is not None else "",
            excuse.page if excuse is not None else "",
        )
    when = when_of(found) if found.is_of_media else f"in step {found.at.step:,}"
    return Problem(
        broken.harm,
        f"{violation.contract.id} broken {when}: {violation.contract.title}{_told_as(one, broken)}",
        "\n".join([*led_to(found), violation.why]),
        found.key[1],
        "",
        way,
        places.find(release.tree, way[-1]) if release is not None and way else None,
        excuse,
    )


def _window(one: Answered, found: FoundBreak) -> Trace:
    """The events before a break, as a trace."""
    assert one.auditor.trace is not None
    return one.auditor.trace.with_events(event.event for event in found.events)


def _excuse(one: Answered, broken: RankedBreak) -> Excuse | None:
    if not (faults := one.faults(broken)):
        return None
    return Excuse(_listed_as(one, broken), faults[0].name, faults[0].page or "", fails=True)


def _told_as(one: Answered, broken: RankedBreak | None) -> str:
    """The words after a break's sentence: which fault it is, or may be."""
    told = "" if broken is None else _listed_as(one, broken) or one.akin(broken)
    return f"; {told}" if told else ""


def _listed_as(one: Answered, broken: RankedBreak) -> str:
    if not (faults := one.faults(broken)):
        return ""
    return f"listed as {names_of(faults)}{', by what it breaks alone' * one.by_symptom}"


def json_of(one: Answered, where: str) -> dict[str, object]:
    """An audit in the JSON of `audit`."""
    auditor = one.auditor
    account, opened = auditor.account, auditor.opened
    return {
        "engine": one.stem,
        "vllm": None if opened is None else opened.vllm,
        "manager": None if opened is None else opened.manager_class,
        "text": None if opened is None else _text_json(opened.text),
        "started": account.started,
        "seconds": round(account.seconds, 6),
        "steps": account.steps,
        "judged_steps": account.judged_steps,
        "stores_compared": account.stores,
        "kv_calls": auditor.kv.calls,
        "judged_kv_calls": auditor.kv.judged,
        "requests": account.requests,
        "requests_with_media": auditor.media.received,
        "refused_with_media": auditor.media.failed,
        "closed": account.closed,
        "died": _died_json(one),
        "front_end_ended": _front_end_json(one),
        "lost": account.lost,
        "gaps": account.gaps,
        "gap_count": account.gap_count,
        "raised": account.raised,
        "not_followed": sorted(account.unjudged),
        "broken": [
            {"contract": contract, "kind": kind or None, "times": count}
            for (contract, kind), count in account.broken.items()
        ],
        "findings": [_finding_json(one, broken, where) for broken in one.broken],
    }


def _text_json(text: Text | None) -> dict[str, object] | None:
    return None if text is None else structs.asdict(text)


def _died_json(one: Answered) -> dict[str, object] | None:
    if one.died is None:
        return None
    at = one.auditor.when(one.died.step)
    return {
        "operation": one.died.operation,
        "error": one.died.error,
        "text": one.died.text,
        "place": one.died.place,
        "step": at.step,
        "record": at.record,
        "at": at.time,
        "contract": None if one.cause is None else one.cause.first.key[0],
    }


def _front_end_json(one: Answered) -> dict[str, object] | None:
    ended = one.front_end_ended
    if ended is None:
        return None
    return {
        "operation": ended.failure.operation,
        "error": ended.failure.error,
        "text": ended.failure.text,
        "place": ended.failure.place,
        "at": ended.time,
        "ended_without_result": list(ended.ended),
        "listed": [fault.name for fault in one.front_end_faults],
    }


def _finding_json(one: Answered, broken: RankedBreak, where: str) -> dict[str, object]:
    found, faults = broken.shown, one.faults(broken)
    violation = found.violation
    return {
        "contract": violation.contract.id,
        "harm": broken.harm,
        "kind": found.key[1] or None,
        "step": found.at.step,
        "record": found.at.record,
        "at": found.at.time,
        "times": broken.times,
        "fatal": broken.is_fatal,
        "request": violation.request or None,
        "identifier": violation.identifier or None,
        "why": violation.why,
        "listed": [fault.name for fault in faults],
        "by_symptom": bool(faults) and one.by_symptom,
        "akin": one.akin(broken),
        "what_to_do": [
            {"what": label, "words": words} for label, words in one.advice(broken, where)
        ],
        "before": led_to(found),
    }
