"""Whatever field a type of traces has, shrinking makes it plain where nothing depends on it: the
cases come from the types, so that one which gets a new field has it tried."""

from typing import Any, NamedTuple

import msgspec
import pytest
from msgspec import NODEFAULT
from msgspec.inspect import (
    BoolType,
    DictType,
    FloatType,
    IntType,
    LiteralType,
    StrType,
    StructType,
    TupleType,
    Type,
    VarTupleType,
    type_info,
)
from msgspec.structs import replace

from cacheproof.differential.depths import DEPTHS
from cacheproof.differential.findings.shrinking import edits, fields
from cacheproof.differential.findings.shrinking.fields import (
    TraceField,
    extras_of,
    fields_of,
    measure,
)
from cacheproof.differential.findings.shrinking.shrink import shrink
from cacheproof.differential.media.descriptions import call
from cacheproof.differential.traces.base import SCHEMA, Group
from cacheproof.differential.traces.block_hash import EMBEDDED, Prompt
from cacheproof.differential.traces.encoder_connector import (
    EncoderConnectorConfig,
    EncoderConnectorHeader,
    Plan,
    StoredItem,
    StoringModel,
)
from cacheproof.differential.traces.front_end import MOST_CONTENTS, MediaItem, Process
from cacheproof.differential.traces.manager import Preempt
from cacheproof.differential.traces.scheduler import SchedulerConfig
from cacheproof.differential.traces.trace import Trace
from cacheproof.differential.traces.trace_file import dump, parse
from tests.differential.traces.fields import config_of, inside, paths

NAMES = {
    "request", "identifier", "engine", "item", "name", "lora_name", "lora_path", "lora_int_id",
    "value",
}  # fmt: skip
"""Fields that say which one is meant, or what it is: of those nothing is plainer by itself. What a
call of the media hasher holds is made smaller by edits of its own."""
ROOM = 9
"""Tokens of prompts, in which what is tried has room."""
ROW = "0000803f"
PLAIN_ROW = "00000000"


class Case(NamedTuple):
    """A field, of the configuration or an event of a depth or of what they list."""

    depth: str
    holder: type[msgspec.Struct] | None
    path: tuple[str, ...]

    def __str__(self) -> str:
        where = self.holder.__name__ if self.holder else "config"
        return f"{self.depth}-{where}-{'.'.join(self.path)}"


def cases() -> list[Case]:
    return [
        Case(depth, holder, path)
        for depth, record in DEPTHS.items()
        for holder in (None, *record.events)
        for path in paths(holder or config_of(depth))
        if path[-1] not in NAMES and (path[0] != "embeds" or depth in ("engine", "block_hash"))
    ]


def made(kind: Type, plain: Any, choices: tuple[Any, ...], *, other: bool) -> Any:
    """A value of a type: the plainest, or an `other` one."""
    match inside(kind):
        case IntType(ge=lowest):
            return (lowest or 0) + 3 * other
        case BoolType():
            return (plain is not True and choices != (True, False)) if other else choices[0]
        case FloatType():
            return 0.5
        case StrType(pattern=str()):
            return ROW if other else PLAIN_ROW
        case StrType():
            return "b" if other else "a"
        case LiteralType(values=values) if choices:
            assert set(choices) == set(values)
            return choices[-1] if other else choices[0]
        case LiteralType(values=values):
            return next(one for one in values if one != plain)
        case TupleType(item_types=types):
            return tuple(made(one, NODEFAULT, (), other=other) for one in types)
        case VarTupleType(item_type=of, min_length=least):
            return (made(of, NODEFAULT, (), other=other),) * ((least or 0) + other)
        case StructType(cls=of):
            return instance(of)
        case DictType():
            return call()
        case unknown:
            raise AssertionError(f"no value of {unknown}")


def instance(kind: type[msgspec.Struct], path: tuple[str, ...] = ()) -> Any:
    """The plainest of a type, but for the field at that path, and with room in a prompt."""
    info = type_info(kind)
    assert isinstance(info, StructType)
    values = {}
    for field, known in zip(info.fields, fields_of(kind), strict=True):
        if path[:1] == (field.name,) and path[1:]:
            of = inside(field.type)
            assert isinstance(of, VarTupleType)
            values[field.name] = (instance(inside(of.item_type).cls, path[1:]),)  # type: ignore[attr-defined]
        elif path == (field.name,):
            values[field.name] = made(field.type, known.plain, known.choices, other=True)
        elif field.required:
            values[field.name] = made(field.type, NODEFAULT, known.choices, other=False)
    return kind(**values)


def with_room(event: Any) -> Any:
    """The event, legal: a prompt that is as long as what it holds."""
    match event:
        case Prompt(embeds=rows) if rows is not None:
            return replace(event, tokens=(EMBEDDED,) * len(rows))
        case _ if getattr(event, "items", ()) and hasattr(event, "tokens"):
            return replace(event, tokens=tuple(range(EMBEDDED)))
        case _ if getattr(event, "items", ()) and hasattr(event, "text"):
            return replace(event, text=((0, ROOM),))
        case _ if hasattr(event, "prompt"):
            return replace(event, prompt=ROOM)
    return event


def masked(holder: Any) -> Any:
    """Items whose masks are as long as they are."""
    items = [
        replace(item, is_embed=(True,) * item.length) if getattr(item, "is_embed", None) else item
        for item in getattr(holder, "items", ())
    ]
    return replace(holder, items=tuple(items)) if items else holder


def windowed(config: Any) -> Any:
    """Groups that have the window that their kind asks for."""
    groups = [
        replace(group, window=ROOM) if group.kind in ("sliding_window", "chunked_local") else group
        for group in getattr(config, "groups", ())
    ]
    return replace(config, groups=tuple(groups)) if groups else config


def trace_of(case: Case) -> Trace:
    """One event, plain but for the case's field."""
    depth = DEPTHS[case.depth]
    config = windowed(instance(config_of(case.depth), () if case.holder else case.path))
    kind = case.holder or depth.events[-1]
    event = masked(with_room(instance(kind, case.path if case.holder else ())))
    if case.path[0] == "embeds" and case.depth == "engine":
        config = replace(config, prompt_embeds=True)
    if isinstance(event, Process):
        known = MediaItem(event.items[0].name, (1,) * MOST_CONTENTS)
        config = replace(config, items=(known,))
    manager = {"manager": "encoder_cache"} if depth.has_ledger else {}
    trace = Trace(depth.header(schema=SCHEMA, config=config, **manager), (event,))
    assert parse(dump(trace).encode().splitlines(), str(case)) == trace
    return trace


def holder_at(case: Case, trace: Trace) -> Any:
    """What has the case's field."""
    holder: Any = trace.events[0] if case.holder else trace.header.config
    for name in case.path[:-1]:
        holder = getattr(holder, name)[0]
    return holder


def is_plain(case: Case, trace: Trace) -> bool:
    """Whether the field is; of names in a list, whether there are as few as may be."""
    holder, name = holder_at(case, trace), case.path[-1]
    value, plain = getattr(holder, name), getattr(instance(type(holder)), name)
    known = {field.name: field for field in fields_of(type(holder))}[name]
    return len(value) == len(plain) if known.holds == "names" else bool(value == plain)


def shrunk(case: Case) -> Trace:
    """The smallest trace of the same event that still lists what the case is of."""

    def has_it(trace: Trace) -> bool:
        holder = trace.events[0] if case.holder else trace.header.config
        is_it = type(trace.events[0]) is (case.holder or type(trace.events[0]))
        return is_it and all(getattr(holder, name) for name in case.path[:-1])

    return shrink(trace_of(case), lambda candidates: [has_it(one) for one in candidates]).trace


@pytest.mark.parametrize("case", cases(), ids=str)
def test_a_field_that_nothing_depends_on_becomes_plain(case: Case) -> None:
    assert not is_plain(case, trace_of(case))
    assert is_plain(case, shrunk(case))


@pytest.mark.parametrize(
    ("depth", "holder", "path"),
    [
        ("scheduler", None, ("policy",)),
        ("kv_cache", None, ("groups", "window")),
        ("engine", DEPTHS["engine"].events[-1], ("version",)),
    ],
)
def test_a_field_that_is_not_read_of_its_type_stays(
    monkeypatch: pytest.MonkeyPatch, depth: str, holder: Any, path: tuple[str, ...]
) -> None:
    case = Case(depth, holder, path)
    read = fields_of

    def without_it(kind: type[msgspec.Struct]) -> tuple[TraceField, ...]:
        return tuple(field for field in read(kind) if field.name != path[-1])

    with monkeypatch.context() as change:
        change.setattr(fields, "fields_of", without_it)
        change.setattr(edits, "fields_of", without_it)
        small = shrunk(case)
    assert not is_plain(case, small)


def test_choices_come_in_the_order_in_which_the_type_names_them() -> None:
    kinds = {field.name: field for field in fields_of(Group)}["kind"]
    assert kinds.choices == ("full", "sliding_window", "chunked_local", "cross")
    assert measure(Group("cross", 1)).numbers > measure(Group("full", 1)).numbers


def test_what_is_plain_counts_for_nothing() -> None:
    plain = SchedulerConfig(1, 1, 1, 1, 1, 1, 1)
    drafts = replace(plain, num_speculative_tokens=3, policy="priority")
    assert extras_of(plain) == {}
    assert extras_of(drafts) == {"num_speculative_tokens": 0, "policy": "fcfs"}
    assert measure(drafts).extras == measure(plain).extras + 2


def test_steps_of_two_engines_become_those_of_one() -> None:
    config = EncoderConnectorConfig((StoredItem("a", 1),), (StoringModel("m"),))
    header = EncoderConnectorHeader(SCHEMA, config)
    trace = Trace(header, (Plan("first", ("a",)), Plan("second", ("a",))))
    small = shrink(trace, lambda candidates: [len(one.events) == 2 for one in candidates]).trace
    assert small.events == (Plan("first", ("a",)), Plan("first", ("a",)))


@pytest.mark.parametrize(("depth", "kinds"), [("manager", {"finish"}), ("kv_cache", set())])
def test_a_preemption_becomes_an_end_where_there_is_one(depth: str, kinds: set[str]) -> None:
    trace = trace_of(Case(depth, Preempt, ("request",)))
    plainer = [one for one in edits.plainer_kinds(trace) if one is not None]
    assert {edits.kind(event) for one in plainer for event in one.events} == kinds
