"""The encoder cache manager: what a scheduler asks of it, in the words of its own text.

The object under proof is owner "m"; "g" is spec's ghost, whose own text is run beside it; "w" is
the step in the making. What a scheduler owes a manager is said at each operation.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import z3

from cacheproof.proofs.crosshair.states import state_of
from cacheproof.proofs.logic import Formula, disjunction, negated
from cacheproof.proofs.symbolic.deciding.play import Play
from cacheproof.proofs.symbolic.deciding.replay import CounterexampleReplay
from cacheproof.proofs.symbolic.deciding.subject import (
    Aggregate,
    Attributes,
    CallEnd,
    Names,
    Operation,
    Subject,
)
from cacheproof.proofs.symbolic.reading.source import Source, source_of
from cacheproof.proofs.symbolic.rules.rules import Predicate, of_contract
from cacheproof.proofs.symbolic.subjects.calls import (
    GHOST,
    TOLD,
    Assumption,
    call_record,
    end_of,
    kept,
    leaves_out,
    named_by,
    one_input,
    one_request,
    sizes_at_least_one,
    sources_with,
    types_with,
)
from cacheproof.proofs.symbolic.subjects.encoder_cache_loops import loops
from cacheproof.proofs.symbolic.subjects.encoder_cache_rules import auxiliaries
from cacheproof.proofs.symbolic.values.records import Record
from cacheproof.proofs.symbolic.values.state import Operand, RequestOf, State, term_of
from cacheproof.proofs.symbolic.values.values import (
    IDENTIFIER,
    INPUT,
    INT,
    REQUEST,
    ListOf,
    MapOf,
    SetOf,
    Type,
    Value,
)
from cacheproof.proofs.symbolic.values.words import Words
from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.semantics.encoder_cache import EncoderCacheSemantics
from cacheproof.spec import encoder_cache as contracts_of_component
from cacheproof.spec.registry import Contract, contracts
from cacheproof.spec.versions import release_key

COMPONENT = contracts_of_component.COMPONENT
OF_SCHEDULER = frozenset({"EC-8b"})
"""Contracts of the component that speak of what a scheduler does with a manager's answers."""
SAFETY = "EC-13"
CLASS = "EncoderCacheManager"
REFERENCE = "reference"
MANAGER: Mapping[str, Type] = {
    "cache_size": INT,
    "num_free_slots": INT,
    "num_freeable_slots": INT,
    "cached": MapOf(IDENTIFIER, SetOf(REQUEST)),
    "num_embeds_by_hash": MapOf(IDENTIFIER, INT),
    "freeable": MapOf(IDENTIFIER, INT, ordered=True),
    "freed": ListOf(IDENTIFIER),
    "_claims": MapOf(REQUEST, MapOf(INPUT, IDENTIFIER)),
    "request_cached_ids": MapOf(REQUEST, SetOf(INPUT)),
    "request_hash_refs": MapOf(REQUEST, MapOf(IDENTIFIER, INT)),
}
"""The attributes of managers, of which each release's has some."""
CLAIMS = ("_claims", "request_cached_ids")
OF_ONES_OWN = {
    "request_cached_ids": "dict[str, set[int]]",
    "request_hash_refs": "dict[str, dict[str, int]]",
}
"""Attributes that nobody else looks at, which may have any name, by how they are annotated."""
HANGS_ON = {
    "EC-9": ("m", "get_freed_mm_hashes"),
    "EC-14": ("m", "free"),
    "EC-18": ("m", "get_cached_input_ids"),
}
"""Contract -> owner and method to change so that it is broken, where little else breaks it."""
NOTICED_BY = {
    "EC-5": ("reset", "without 'self.num_embeds_by_hash.clear()'"),
    "EC-7": ("can_allocate", "the newest entry for the oldest"),
    "EC-8a": ("can_allocate", ">= self.num_free_slots"),
}
"""Contract -> method and words of a change that breaks it in a small scope, where few changes
do."""

ALSO_CALLED = {"get_manager_metadata": "0.27.0", "create_manager": "0.28.0"}
"""Methods that a scheduler calls since a release, and that change nothing of a manager."""
OF_REQUESTS = {
    "get_num_encoder_embeds": ("0.13.0", None),
    "get_num_encoder_tokens": (None, "0.12.0"),
    "mm_hashes": (None, "0.10.2"),
}
"""What requests of some releases have: the first release that is read and has it, and the last."""


class EncoderCacheView:
    """The records that contracts look at, of a manager with these attributes."""

    def __init__(self, attributes: Sequence[str]) -> None:
        self._attributes = attributes

    def __call__(self, get: Callable[[str, str], Operand]) -> Names:
        fields = {name: get("m", name) for name in self._attributes}
        ghost = {name: get("g", name) for name in GHOST}
        manager, told = Record(fields), Record(ghost)
        state = {
            "capacity": fields["cache_size"],
            "free_slots": fields["num_free_slots"],
            "freeable_slots": fields["num_freeable_slots"],
            "size": fields.get("num_embeds_by_hash") or _sizes(manager, told),
            "holders": fields["cached"],
            "queue": fields["freeable"],
            "notices": fields["freed"],
        }
        for name in CLAIMS:
            if name in fields:
                fields["claims"] = fields[name]
        return {
            "s": Record(state),
            "m": manager,
            "g": told,
            "w": Record({"encoded": get("w", "encoded")}),
        }


def _sizes(manager: Record, ghost: Record) -> Value:
    """The sizes of a manager that stores none: what its entries were debited."""
    cached, size = manager.container("cached"), ghost.container("size")
    return Value(cached.universe, size.kind, (cached.terms[0], size.terms[1]))


# calls, as a scheduler makes them


def begin(play: Play, state: State) -> Iterator[CallEnd]:
    """A manager of some capacity, and a ghost that was told nothing."""
    capacity = z3.Int("capacity")
    state = state.assuming(capacity >= 0)
    state = play.machine.emptied(state, [("g", one) for one in GHOST] + [("w", "encoded")])
    method = play.subject.sources["m"].methods["__init__"]
    known = play.subject.constants
    further = (("m", one.arg) for one in method.args.args[2:])
    given = [capacity, *(known[one] for one in further if one in known)]
    for built, _ in play.machine.call("m", "__init__", given, state):
        after = built.snapshot(anew=True)
        yield end_of(play, after, after, after, call_record(play, "init", None))


def check(play: Play, state: State) -> Iterator[CallEnd]:
    state, r, i = one_input(play, state)
    m, words = play.machine, play.words
    for answered, answer in m.asked("check_and_update_cache", [RequestOf(r), i], state):
        for after, granted in m.split(answer, answered):
            told = [after]
            if granted:
                given = [r, words.item(r, i), words.end(r, i)]
                told = [end for end, _ in m.call("g", "claim", given, after)]
            call = call_record(play, "check", r, i, granted=granted)
            for end in told:
                yield end_of(play, state, after, end, call)


def can(play: Play, state: State) -> Iterator[CallEnd]:
    state, r, i = one_input(play, state)
    budget, pending = z3.Int("budget"), z3.Int("pending")
    given = [RequestOf(r), i, budget, pending]
    for after, answer in play.machine.asked("can_allocate", given, state):
        call = call_record(play, "can", r, i, budget=budget, pending=pending, granted=answer)
        yield end_of(play, state, after, after, call)


def allocate(play: Play, state: State) -> Iterator[CallEnd]:
    state, r, i = one_input(play, state)
    m, words = play.machine, play.words
    identifier, need = words.item(r, i), words.embeds(r, i)
    state = kept(play, state, call_record(play, "allocate", r, i))
    for told, _ in m.call("g", "encode", [r, i, identifier, need], state):
        for after, _ in m.call("m", "allocate", [RequestOf(r), i], told):
            for claimed, _ in m.call("g", "claim", [r, identifier, words.end(r, i)], after):
                encoded = m.put("w", "encoded", identifier, need, claimed)
                yield end_of(play, told, after, encoded, call_record(play, "allocate", r, i))


def release(play: Play, state: State) -> Iterator[CallEnd]:
    state, r, i = one_input(play, state)
    m = play.machine
    state = kept(play, state, call_record(play, "release", r, i))
    for after, _ in m.call("m", "free_encoder_input", [RequestOf(r), i], state):
        for told, _ in m.call("g", "release", [r, i], after):
            yield end_of(play, state, after, told, call_record(play, "release", r, i))


def withdraw(play: Play, state: State) -> Iterator[CallEnd]:
    """A request ends, or stops running."""
    r = one_request(play)
    state = kept(play, state, call_record(play, "withdraw", r))
    state = state.assuming(*_nothing_held_in_vain(play, state))
    for after, _ in play.machine.call("g", "withdraw", [r], state):
        yield end_of(play, after, after, after, call_record(play, "withdraw", r))


def free(play: Play, state: State) -> Iterator[CallEnd]:
    """A request that was withdrawn gives up all that it holds."""
    r = one_request(play)
    state = kept(play, state, call_record(play, "free", r))
    for after, _ in play.machine.call("m", "free", [RequestOf(r)], state):
        yield end_of(play, state, after, after, call_record(play, "free", r))


def consume(play: Play, state: State) -> Iterator[CallEnd]:
    """A worker has executed a request's tokens up to some progress; no step is in the making."""
    r = one_request(play)
    encoded = play.names(state)["w"].container("encoded")
    state = state.assuming(encoded.is_empty, *_nothing_held_in_vain(play, state))
    for after, _ in play.machine.call("g", "consume", [r, z3.Int("progress")], state):
        yield end_of(play, after, after, after, call_record(play, "consume", r))


def _nothing_held_in_vain(play: Play, state: State) -> list[Formula]:
    """What a request has got past it has released before anything else happens: what CP-5 says of
    releases, of the order in which a scheduler's update takes requests."""
    names = play.names(state)
    holders, needed = names["s"].container("holders"), names["g"].container("needed")
    return [
        holders.all(
            lambda h: disjunction((negated(holders.has(h)), needed.has(h), holders.at(h).is_empty))
        )
    ]


def notices(play: Play, state: State) -> Iterator[CallEnd]:
    """A step ends: the worker drops what the notices name, then encodes."""
    m = play.machine
    for after, told in m.kept_by_caller("m", "get_freed_mm_hashes", state):
        reported = after.value(told)
        encoded = after.attributes["w", "encoded"]
        for executed, _ in m.call("g", "step", [told, encoded], after):
            done = m.emptied(executed, [("w", "encoded")])
            names = play.names(done)
            step = {
                "notices": reported,
                "ledger": names["s"].container("size"),
                "store": names["g"].container("stored"),
                "pending": play.universe.empty(SetOf(IDENTIFIER)),
            }
            end = end_of(play, state, after, done, call_record(play, "notices", None))
            yield CallEnd(end.after, {**end.names, "w": Record(step)})


def inputs(play: Play, state: State) -> Iterator[CallEnd]:
    r = one_request(play)
    m, method = play.machine, "get_cached_input_ids"
    for after, answer in m.call("m", method, [RequestOf(r)], state):
        inputs = m.inputs_in("m", method, answer, after)
        known, told = named_by(play, after, r, inputs)
        left_out = leaves_out(play, state, r, inputs)
        call = call_record(play, "inputs", r, told=told, leaves_out=left_out)
        yield end_of(play, state, known, known, call)


def embeds(play: Play, state: State) -> Iterator[CallEnd]:
    state, r, i = one_input(play, state)
    m = play.machine
    for after, answer in m.call("m", "get_cached_num_encoder_embeds", [RequestOf(r), i], state):
        number = _number_of(answer)
        call = call_record(play, "embeds", r, i, tells=answer is not None, answered=number)
        yield end_of(play, state, after, after, call)


def _number_of(answer: Operand) -> z3.ArithRef | int:
    """An answer as contracts look at it: as spec's `number_of`."""
    number = term_of(answer)
    is_number = isinstance(number, int | z3.ArithRef) and not isinstance(number, bool)
    return number if is_number else 0


def reset(play: Play, state: State) -> Iterator[CallEnd]:
    """Both sides forget every entry."""
    for after, _ in play.machine.call("m", "reset", [], state):
        for told, _ in play.machine.call("g", "reset", [], after):
            done = play.machine.emptied(told, [("w", "encoded")])
            yield end_of(play, state, done, done, call_record(play, "reset", None))


_OPERATIONS = (
    Operation("init", begin, "__init__", begins=True),
    Operation("check", check, "check_and_update_cache"),
    Operation("can", can, "can_allocate"),
    Operation("allocate", allocate, "allocate"),
    Operation("release", release, "free_encoder_input"),
    Operation("free", free, "free"),
    Operation("notices", notices, "get_freed_mm_hashes"),
    Operation("inputs", inputs, "get_cached_input_ids"),
    Operation("embeds", embeds, "get_cached_num_encoder_embeds", since="0.31.0"),
    Operation("reset", reset, "reset", since="0.16.0"),
    Operation("consume", consume),
    Operation("withdraw", withdraw),
)


# sums


def _aggregates() -> list[Aggregate]:
    def share_of_total(words: Words, names: Names, key: z3.ExprRef) -> z3.ArithRef:
        size = names["s"].container("size")
        return z3.If(size.has(key), size.at(key).term, 0)

    def share_unheld(words: Words, names: Names, key: z3.ExprRef) -> z3.ArithRef:
        s = names["s"]
        return words.unheld(s.container("size"), s.container("holders"), key)

    def one_each(words: Words, names: Names, key: z3.ExprRef) -> z3.ArithRef:
        return z3.If(names["s"].container("queue").has(key), 1, 0)

    whole = Aggregate(IDENTIFIER, lambda w, n: w.total(n["s"].container("size")), share_of_total)
    unheld = Aggregate(
        IDENTIFIER,
        lambda w, n: w.total_unheld(n["s"].container("size"), n["s"].container("holders")),
        share_unheld,
        at_most=whole,
    )
    queued = Aggregate(IDENTIFIER, lambda w, n: w.number(n["s"].container("queue")), one_each)
    return [whole, unheld, queued]


# subjects


def subject_of(
    name: str,
    source: Source,
    release: str | None,
    assumptions: Sequence[Assumption] = (),
    constants: Attributes | None = None,
) -> Subject:
    """A manager by its text.

    Args:
        name: of the target.
        source: its class.
        release: of which the contracts are; None: all contracts.
        assumptions: what is assumed beside that sizes are at least one.
        constants: attributes that are known, such as the reference's semantics.
    """
    source = source.named(_names_of(source))
    attributes = [one for one in MANAGER if one in source.attributes]
    claims = ["claims"] if any(one in attributes for one in CLAIMS) else []
    rules = [
        rule
        for rule in contracts(COMPONENT, release)
        if rule.component == COMPONENT and rule.id not in OF_SCHEDULER
    ]
    operations = [one for one in _OPERATIONS if one.is_asked(source, release)]
    return Subject(
        name,
        sources_with(source),
        types_with({one: MANAGER[one] for one in attributes}),
        constants or {},
        EncoderCacheView(attributes),
        [
            *(of_contract(rule) for rule in rules if rule.kind == "state"),
            *auxiliaries([*attributes, *claims]),
        ],
        {one.name: judged_at(one.name, rules) for one in operations},
        operations,
        _aggregates(),
        loops,
        SAFETY,
        lambda play: [
            *(one(play) for one in (sizes_at_least_one, *assumptions)),
            *(play.words.laws_of_occurrences() if "request_hash_refs" in attributes else ()),
        ],
        CounterexampleReplay(state_of, has_ledger=True),
        component=COMPONENT,
        told=TOLD,
        hangs_on=HANGS_ON,
        noticed_by=NOTICED_BY,
        also_called=also_called(release),
        absent=absent_of(release),
    )


def _names_of(source: Source) -> dict[str, str]:
    """What attributes are called here that have other names in a text: of each kind the one that is
    annotated as such."""
    annotated = source.annotated()
    found: dict[str, str] = {}
    for name, annotation in OF_ONES_OWN.items():
        others = [one for one in annotated if one not in MANAGER and annotated[one] == annotation]
        if name not in annotated and len(others) == 1:
            found[others[0]] = name
    return found


def also_called(release: str | None) -> list[str]:
    """What a scheduler of a release calls beside the operations; nothing for the reference."""
    return [
        name
        for name, since in ALSO_CALLED.items()
        if release is not None and release_key(release) >= release_key(since)
    ]


def absent_of(release: str | None) -> list[str]:
    """What a request of a release does not have; of the reference's nothing is said."""
    if release is None:
        return []
    now = release_key(release)
    return [
        name
        for name, (first, last) in OF_REQUESTS.items()
        if (first and now < release_key(first)) or (last and now > release_key(last))
    ]


def judged_at(operation: str, rules: Sequence[Contract]) -> list[Predicate]:
    """The contracts of one call, of the calls of an event, and of a step at its end."""
    return [
        of_contract(rule)
        for rule in rules
        if operation in rule.calls
        or (rule.kind == "trace" and operation == "notices")
        or "event" in rule.calls
    ]


def of_reference(assumptions: Sequence[Assumption] = ()) -> Subject:
    """The reference manager, as it should be."""
    path = Path(inspect.getfile(EncoderCacheManager))
    constants = {("m", "semantics"): EncoderCacheSemantics()}
    return subject_of(REFERENCE, source_of(path, CLASS), None, assumptions, constants)


def of_release(release: str, source: Source, assumptions: Sequence[Assumption] = ()) -> Subject:
    """The manager of a release, judged by the contracts that the release promises."""
    return subject_of(f"vllm@{release}", source, release, assumptions)
