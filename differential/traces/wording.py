"""Events, states and traces in words: what the report and the standalone tests print."""

from typing import Any

import msgspec

from cacheproof.differential.media.values import written
from cacheproof.differential.traces import front_end, manager, media_identifier, scheduler
from cacheproof.differential.traces.base import tag_of
from cacheproof.differential.traces.block_hash import Continue, Decode, Prompt
from cacheproof.differential.traces.kv_cache import Arrive, Slots
from cacheproof.differential.traces.media_hash import Hash
from cacheproof.differential.traces.outcomes import FrontEndOutcome, WalkOutcome
from cacheproof.differential.traces.trace import AnyEvent, Trace
from cacheproof.spec.records import LedgerState

_POSITIONAL = ("request", "identifier", "value")
_WIDTH = 92


def told(event: AnyEvent, outcome: Any) -> str:
    """What the engine does, given what came of it."""
    match event:
        case manager.Add() | Prompt():
            return f"{event.request} arrives"
        case Arrive():
            return f"{event.request} arrives"
        case Slots():
            return f"{event.request} asks for slots for {_tokens(event.tokens)}"
        case Decode():
            return f"{event.request} decodes {_tokens(len(event.tokens))}"
        case Continue():
            return f"{event.request} goes on with {_tokens(len(event.tokens))} more of prompt"
        case scheduler.Chunk():
            return f"{_tokens(event.prompt)} more of prompt arrive for {event.request}"
        case scheduler.Close():
            return f"no more prompt will come for {event.request}"
        case manager.Finish():
            return f"{event.request} ends"
        case scheduler.Abort():
            return f"{event.request} is aborted"
        case manager.Preempt():
            return f"{event.request} is preempted"
        case manager.Reset():
            return "the encoder cache is reset"
        case scheduler.ResetPrefix():
            return "the prefix cache is reset"
        case scheduler.Elsewhere():
            known = "nobody knows how much" if event.tokens is None else _tokens(event.tokens)
            return f"{known} of {event.request} can be had elsewhere{', later' * event.later}"
        case scheduler.Received():
            failed = "" if event.failed is None else f", which failed from block {event.failed}"
            return f"the load of {event.request} ends{failed}"
        case scheduler.Sent():
            return f"{event.request} has been sent elsewhere"
        case scheduler.Transfer():
            return f"elsewhere {event.identifier} is {event.state}"
        case manager.Notices():
            return "schedule() returns, and the worker runs"
        case manager.Update():
            return "the step's output arrives"
        case manager.Stall():
            return f"{event.request} is walked, finds no KV blocks, and waits on"
        case front_end.Process() | front_end.Deliver():
            return _sent(event, outcome)
        case front_end.Withdraw():
            return f"{event.request} is refused, or its client is gone: no message is sent"
        case front_end.Report():
            return f"the front end hears what was lacking for {event.request}"
        case front_end.ResetMedia():
            whose = {"sender": "front end's", "receiver": "engine core's"}
            where = f" by server {event.server}" if event.server else ""
            caches = "cache" + "s" * (event.half == "both")
            return f"the {whose.get(event.half, 'two')} {caches} reset{where}"
        case media_identifier.NameItems():
            return _named(event)
        case media_identifier.RestartEngine():
            return f"engine {event.engine} is started again"
        case Hash():
            return f"hash {written(event.value)}"
        case manager.Release():
            return f"input {event.input} of {event.request} is released once more"
        case manager.Walk():
            return _walked(event, outcome)
        case scheduler.Schedule():
            scheduled = (outcome or {}).get("scheduled", {})
            parts = [f"{_tokens(count)} of {request}" for request, count in scheduled.items()]
            return f"schedule(): {', '.join(parts) or 'nothing'}"
        case _:
            kind = tag_of(type(event)).replace("_", " ")
            who = getattr(event, "request", "") or getattr(event, "engine", "")
            items = ", ".join(getattr(event, "items", ()))
            about = items or getattr(event, "item", "")
            words = " ".join(filter(None, (kind, who)))
            return f"{words}: {about}" if about else words


def _sent(event: front_end.Process | front_end.Deliver, outcome: FrontEndOutcome | None) -> str:
    """What goes on with a request's items: with data, or without."""
    outcome = outcome or FrontEndOutcome(sender=[], receiver=[], counted=[])
    refused = f", refused: {outcome['refused']}" if "refused" in outcome else ""
    if isinstance(event, front_end.Deliver):
        lacking = ", and the engine core lacks items" if "lacking" in outcome else ""
        return f"the message of {event.request} arrives{lacking}{refused}"
    sent = outcome.get("sent", [None] * len(event.items))
    items = [
        item.name if says is None else f"{item.name} with data"
        for item, says in zip(event.items, sent, strict=True)
    ]
    where = f" by server {event.server}" if event.server else ""
    return f"{event.request} is processed{where}: {', '.join(items)}{refused}"


def _named(event: media_identifier.NameItems) -> str:
    """Which items a request has, by which server and under what they are named."""
    items = []
    for item in event.items:
        what = f"{item.modality} {'without data' if item.content is None else item.content}"
        whose = "" if item.uuid is None else f", with id {item.uuid}"
        given = f", with identifier {item.uuid} for an id" if isinstance(item.uuid, int) else whose
        items.append(what + given)
    under = [f"adapter {event.adapter}"] * (event.adapter is not None)
    under += [f"options {event.options}"] * (event.options > 0)
    beside = f" under {' and '.join(under)}" if under else ""
    where = f"server {event.server} of engine {event.engine}"
    return f"{where} names what {event.request} has{beside}: {'; '.join(items)}"


def _walked(event: manager.Walk, outcome: WalkOutcome | None) -> str:
    if not outcome or outcome[0] == 0:
        return f"nothing of {event.request} can be scheduled"
    if outcome[0] < 0:
        return f"{event.request} is refused"
    return (
        f"{_tokens(outcome[0])} of {event.request} {'is' if outcome[0] == 1 else 'are'} scheduled"
    )


def _tokens(count: int) -> str:
    return f"{count} token" if count == 1 else f"{count} tokens"


def changed_fields(before: LedgerState, after: LedgerState) -> dict[str, tuple[str, str]]:
    """Fields of two states of a ledger that differ, with both values."""
    changed: dict[str, tuple[str, str]] = {}
    for name in before._fields:
        one, two = getattr(before, name), getattr(after, name)
        if name in ("size", "holders"):
            for identifier in dict.fromkeys((*one, *two)):
                here, there = one.get(identifier), two.get(identifier)
                if here != there:
                    changed[f"{name} of {identifier}"] = value(here), value(there)
        elif one != two or (name == "queue" and list(one) != list(two)):
            changed[name.replace("_", " ")] = value(one), value(two)
    return changed


def value(thing: object) -> str:
    """A value of a state: sets as {a, b}, maps as x:1, what is not there as a dash."""
    match thing:
        case None:
            return "-"
        case dict():
            return ", ".join(f"{key}:{value(inner)}" for key, inner in thing.items()) or "empty"
        case set() | frozenset():
            return "{" + ", ".join(sorted(thing)) + "}"
        case list() | tuple():
            return ", ".join(map(value, thing)) or "none"
        case _:
            return str(thing)


def visible(text: str) -> str:
    """The text, with all that is neither printable nor the end of a line as Python escapes it: what
    strangers wrote does nothing to a terminal or to a file's syntax."""
    if text.isprintable():
        return text
    return "\n".join(map(visible_line, text.split("\n")))


def visible_line(text: str) -> str:
    """The text in one line, with all that is not printable as Python escapes it."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def literal(thing: object) -> str:
    """A Python literal, in double quotes where that is possible."""
    text = repr(thing)
    return text if '"' in text or "\\" in text else text.replace("'", '"')


def program(trace: Trace) -> list[str]:
    """The trace as lines of Python: constructors of `differential.trace`, ready to be pasted."""
    lines = _call("config = ", trace.header.config)
    header = type(trace.header).__name__
    named = literal(trace.header.manager)
    lines.append(f"header = {header}(schema={trace.header.schema}, manager={named}, config=config)")
    lines.append("trace = Trace(header, (")
    for event in trace.events:
        lines += [f"    {line}" for line in _call("", event, ",")]
    return [*lines, "))"]


def constructor(struct: msgspec.Struct) -> str:
    """A struct as its constructor's call, without what is default, in one line however long."""
    return f"{type(struct).__name__}({', '.join(_arguments(struct))})"


def _call(before: str, struct: msgspec.Struct, after: str = "") -> list[str]:
    """A struct as its constructor's call, without what is default; on several lines if long."""
    arguments = _arguments(struct)
    name = f"{before}{type(struct).__name__}"
    line = f"{before}{constructor(struct)}{after}"
    if len(line) <= _WIDTH:
        return [line]
    return [f"{name}(", *(f"    {argument}," for argument in arguments), f"){after}"]


def _arguments(struct: msgspec.Struct) -> list[str]:
    arguments = []
    for field in msgspec.structs.fields(struct):
        content = getattr(struct, field.name)
        if content == field.default:
            continue
        if field.name == "items" and isinstance(content[0], msgspec.Struct):
            items = [f"{type(item).__name__}({', '.join(_arguments(item))})" for item in content]
            shown = f"({', '.join(items)}{',' if len(items) == 1 else ''})"
        elif isinstance(struct, Hash):
            shown = written(content)
        else:
            shown = literal(content)
        arguments.append(shown if field.name in _POSITIONAL else f"{field.name}={shown}")
    return arguments
