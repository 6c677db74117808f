"""A pytest file that shows KV blocks: the calls on a manager that the events came to, as a program.

The driver of every KV trace runs once more, over a scribe in the manager's place, which writes the
calls down and answers as the records say. So what a test does is what a search did.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import starmap
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec

from cacheproof.differential.findings.finding import LOCKSTEP, Finding
from cacheproof.differential.findings.standalone.template import render, variables
from cacheproof.differential.judges.kv_cache import KVCacheJudge
from cacheproof.differential.targets.host.managers.kv_cache import Clock, KVCacheKit, KVCacheSession
from cacheproof.differential.targets.host.protocol import Event as HostEvent
from cacheproof.differential.traces.kv_cache import (
    Arrive,
    End,
    KVCacheConfig,
    Loaded,
    Output,
    Settle,
)
from cacheproof.differential.traces.manager import Preempt
from cacheproof.differential.traces.records import KVCacheCall, StepRecord
from cacheproof.differential.traces.trace import AnyEvent
from cacheproof.differential.traces.wording import literal

_WIDTH = 92
_TAKEN = ("full_sequence_must_fit", "has_scheduled_reqs", "pop_blocks_for_free", "reserved_blocks")
_DEFAULTS = {"has_scheduled_reqs": True}
"""Defaults of `allocate_slots` that are not 0, False or None."""
_BY_CALL = frozenset({"BP-8", "KV-7"})
"""Contracts of what the last call answers."""
_RAISES = frozenset({"KV-3"})
"""Contracts that an exception breaks: the call itself fails the test."""
_STATUSES = {
    "waiting": "RequestStatus.WAITING",
    "running": "RequestStatus.RUNNING",
    "preempted": "RequestStatus.PREEMPTED",
    "loading": "RequestStatus.WAITING_FOR_REMOTE_KVS",
}
_FIRST_STATE = {
    "num_computed_tokens": 0,
    "num_in_flight_tokens": 0,
    "status": "RequestStatus.WAITING",
}
"""What a request's attributes are before a scheduler sets them, by name."""


class Statement(NamedTuple):
    """A call, or an assignment without arguments; what the engine does stands beside it."""

    head: str
    arguments: tuple[str, ...] | None = None
    tail: str = ""
    remark: str = ""

    @property
    def lines(self) -> list[str]:
        """On one line, or an argument a line."""
        arguments = self.arguments
        inside = "" if arguments is None else f"({', '.join(arguments)})"
        line = f"{self.head}{inside}{self.tail}"
        remark = f"# {self.remark}" if self.remark else ""
        if remark and len(line) + 2 + len(remark) <= _WIDTH:
            return [f"{line}  {remark}"]
        lines = [line]
        if arguments and len(line) > _WIDTH:
            lines = [f"{self.head}(", *(f"    {one}," for one in arguments), f"){self.tail}"]
        return [remark, *lines] if remark else lines


NO_TEST = "what this rule compares is shown by its replay"


def standalone_test(finding: Finding) -> tuple[str | None, str]:
    """The file's text, or None and why there is none."""
    if finding.contract == LOCKSTEP:
        return None, NO_TEST
    requests = [event.request for event in finding.events if isinstance(event, Arrive)]
    shown = KVCacheTest(finding, variables(dict.fromkeys(requests)))
    if not shown.is_shown:
        return None, NO_TEST
    return render(
        "kv_cache.py.jinja", finding, shown.body(), config=shown.config, **shown.shows
    ), ""


class KVCacheTest:
    """What the template needs for a finding at kv_cache depth."""

    def __init__(self, finding: Finding, variables: dict[str, str]) -> None:
        broken = finding.first_break
        assert broken is not None
        assert isinstance(broken.judge, KVCacheJudge)
        assert isinstance(finding.configuration.config, KVCacheConfig)
        self.config = finding.configuration.config
        self._finding = finding
        self._variables = variables
        self._event = broken.event
        self._subject = broken.judge.subjects[finding.contract]

    @property
    def is_shown(self) -> bool:
        """Whether an attribute of the manager, or an answer of its, shows the contract broken."""
        return self._finding.contract in _CLAIMS.keys() | _BY_CALL | _RAISES

    @property
    def shows(self) -> dict[str, object]:
        """Which parts of the template the events need."""
        arrivals = [event for event in self._finding.events if isinstance(event, Arrive)]
        return {
            "items": any(event.items for event in arrivals),
            "adapters": any(event.lora is not None for event in arrivals),
            "skips": any(event.skip_reading for event in arrivals),
            "watermark": self.config.watermark > 0,
            "marked": [n for n, group in enumerate(self.config.groups) if group.has_drafter],
        }

    def body(self) -> Iterator[str]:
        """The lines of the test."""
        finding = self._finding
        scribe = _Scribe(self.config, self._variables)
        session = KVCacheSession(msgspec.to_builtins(self.config), scribe.kit)
        for event, record in zip(finding.events[: self._event + 1], finding.records, strict=False):
            if record.outcome is not None or record.raised is not None:
                scribe.begin(event, record)
                try:
                    session.apply(msgspec.to_builtins(event))
                except _Unanswered:
                    break
        *statements, last = scribe.statements
        if finding.contract in _BY_CALL:
            statements.append(last._replace(head=f"assert {last.head}", tail=self._wanted))
        else:
            statements.append(last)
        for statement in statements:
            yield from statement.lines
        if finding.contract in _CLAIMS:
            yield ""
            yield from _CLAIMS[finding.contract](self)

    @property
    def _wanted(self) -> str:
        """What the last call must come to: not what it came to."""
        granted = self._finding.records[self._event][0]["answer"]
        if self._finding.contract == "BP-8":
            return f" is {not granted}"
        return " is None" if granted else " is not None"

    def queue_is_unreferenced(self) -> list[str]:
        return [
            "pool = manager.block_pool",
            "free = [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]",
            "used = [block for block in pool.blocks if not block.is_null]",
            "assert len(free) == pool.get_num_free_blocks()",
            "assert sorted(free) == [block.block_id for block in used if block.ref_cnt == 0]",
        ]

    def events_carry_own_tokens(self) -> list[str]:
        return [
            "for event in events:",
            '    if type(event).__name__ == "BlockStored":',
            "        assert len(event.token_ids) == len(event.block_hashes) * event.block_size",
        ]

    def shared_blocks_agree(self) -> list[str]:
        return [
            "places = {}  # block -> where it stands first",
            f"for request in {self._requests(self._arrived)}:",
            "    for place, block in table_of(manager, request).items():",
            "        assert places.setdefault(block, place) == place",
        ]

    def slots_have_blocks(self) -> list[str]:
        return [
            "# (group, position in its block table) of what the tokens read and are written to",
            f"needed = {_places(self._subject.needed)}",
            f"assert needed <= table_of(manager, {self._request}).keys()",
        ]

    def blocks_have_slots(self) -> list[str]:
        idle = self._subject.filled - self._subject.needed
        return [
            "# (group, position in its block table) of what no token reads or is written to",
            f"idle = {_places(idle)}",
            f"assert idle.isdisjoint(table_of(manager, {self._request}))",
        ]

    def misses_nothing(self) -> list[str]:
        return [
            f"assert hit >= {self._subject.longest}  # the longest prefix that is cached",
        ]

    def common_prefix_is_common(self) -> list[str]:
        running = self._requests(name for name in self._subject.tables)
        return [
            f"own = table_of(manager, {self._request})",
            "shared = {block for (group, at), block in own.items() if at < common[group]}",
            f"for request in {running}:",
            "    assert shared <= set(table_of(manager, request).values())",
        ]

    def load_is_readable(self) -> list[str]:
        return [
            "# (group, position in its block table) of what the first token behind the load reads",
            f"read = {_places(self._subject.read)}",
            f"assert read <= table_of(manager, {self._request}).keys()",
        ]

    @property
    def _request(self) -> str:
        event: Any = self._finding.events[self._event]
        return self._variables[event.request]

    @property
    def _arrived(self) -> Iterable[str]:
        return dict.fromkeys(
            event.request
            for event in self._finding.events[: self._event + 1]
            if isinstance(event, Arrive)
        )

    def _requests(self, names: Iterable[str]) -> str:
        variables = [self._variables[name] for name in names]
        return f"({', '.join(variables)}{',' if len(variables) == 1 else ''})"


_CLAIMS: dict[str, Callable[[KVCacheTest], list[str]]] = {
    "BP-1": KVCacheTest.queue_is_unreferenced,
    "BP-6": KVCacheTest.events_carry_own_tokens,
    "KV-4": KVCacheTest.shared_blocks_agree,
    "KV-5": KVCacheTest.slots_have_blocks,
    "KV-6": KVCacheTest.blocks_have_slots,
    "KV-9": KVCacheTest.misses_nothing,
    "KV-10": KVCacheTest.common_prefix_is_common,
    "KV-12": KVCacheTest.load_is_readable,
}


class _Unanswered(Exception):
    """The release raised in this event: the records have no answer."""


class _Hit:
    """Blocks as a manager gives them; the hit's own ids do not matter to the driver."""

    def __init__(self, ids: list[list[int]], *, of_lookup: bool = False) -> None:
        self.of_lookup = of_lookup
        self._ids = ids

    def get_block_ids(self) -> list[list[int]]:
        return self._ids


class _Request:
    """A request as far as the driver reads it; what is set is told to the scribe."""

    def __init__(self, event: HostEvent, token_ids: list[int], scribe: "_Scribe") -> None:
        self.request_id: str = event["request"]
        self.all_token_ids = token_ids
        self.block_hashes: list[bytes] = []
        self.num_preemptions = 0
        self.num_computed_tokens = 0
        self.num_in_flight_tokens = 0
        self.status = _STATUSES["waiting"]
        self.told = dict(_FIRST_STATE)
        self._scribe = scribe

    @property
    def num_tokens(self) -> int:
        return len(self.all_token_ids)

    def append_output_token_ids(self, token_ids: list[int]) -> None:
        self.all_token_ids.extend(token_ids)
        self._scribe.write(f"{self._scribe.name(self)}.append_output_token_ids", str(token_ids))


class _Scribe:
    """Stands in for a manager, its pool and its collector: writes calls down, answers by record."""

    def __init__(self, config: KVCacheConfig, variables: dict[str, str]) -> None:
        self.statements: list[Statement] = []
        self.usage = 0.0
        self.empty_kv_cache_blocks = _Hit([[] for _ in config.groups])
        self.block_pool = SimpleNamespace(
            blocks=[SimpleNamespace(is_null=True)] * config.num_blocks,
            free_block_queue=SimpleNamespace(get_all_free_blocks=list),
            get_num_free_blocks=int,
            cached_block_hash_to_block={},
            free_blocks=self._free_blocks,
        )
        self.coordinator = SimpleNamespace(single_type_managers=())
        self._shown = [name for name in _FIRST_STATE if name != "status" or config.watermark]
        self._has_watermark = config.watermark > 0
        self._variables = variables
        self._answers: deque[Any] = deque()
        self._answer: Any = None
        self._remark = ""
        self._put_off: deque[str] = deque()

    @property
    def kit(self) -> KVCacheKit:
        scribe: Any = self  # it answers as a manager, as far as it is asked
        return KVCacheKit(
            scribe,
            self._make_request,
            dict(_STATUSES),
            frozenset(_TAKEN),
            SimpleNamespace(drain_events=list),
            Clock(),
        )

    def begin(self, event: AnyEvent, record: StepRecord) -> None:
        """The next event: what the release answered to its calls, and what it came to."""
        outcome = record.outcome or {"answer": None, "calls": ()}
        self._answer = outcome["answer"]
        self._answers = deque(call.answer for call in starmap(KVCacheCall, outcome["calls"]))
        self._remark = _remark(event)

    def name(self, request: _Request) -> str:
        return self._variables[request.request_id]

    def write(self, head: str, *arguments: str) -> None:
        """Write a call, the first of an event with what the engine does."""
        self.statements.append(Statement(head, arguments, remark=self._remark))
        self._remark = ""

    def get_computed_blocks(self, request: _Request) -> tuple[_Hit, int]:
        self._call(request, "blocks, hit = look_up", "manager", self.name(request))
        ids, hit, _ = self._answers.popleft() if self._answers else ([], 0, None)
        return _Hit(ids, of_lookup=True), hit

    def allocate_slots(self, request: _Request, count: int, **arguments: Any) -> _Hit | None:
        name, tokens = self.name(request), str(count)
        blocks = arguments.pop("new_computed_blocks", None)
        shown = {key: value for key, value in arguments.items() if self._has_effect(key, value)}
        if blocks is not None and blocks.of_lookup:
            hit = arguments["num_new_computed_tokens"]
            external = arguments["num_external_computed_tokens"]
            if count and hit + external + count == request.num_tokens:
                tokens = f"{name}.num_tokens - hit" + (f" - {external}" if external else "")
            shown.pop("num_new_computed_tokens", None)
            shown = {"num_new_computed_tokens": "hit", "new_computed_blocks": "blocks", **shown}
        named = [f"{key}={value}" for key, value in shown.items()]
        self._call(request, "slots", "manager", name, tokens, *named)
        if not self._answers:
            raise _Unanswered
        ids = self._answers.popleft()
        return None if ids is None else _Hit(ids)

    def free(self, request: _Request) -> None:
        self._call(request, "manager.free", self.name(request))

    def cache_blocks(self, request: _Request, tokens: int) -> None:
        self._call(request, "manager.cache_blocks", self.name(request), str(tokens))

    def remove_skipped_blocks(self, request_id: str, tokens: int) -> None:
        self.write("manager.remove_skipped_blocks", literal(request_id), str(tokens))

    def pop_blocks_for_free(self, request: _Request) -> list[object]:
        """Where the release has no such method the driver's records show that it was not asked."""
        if not isinstance(self._answer, list):
            self.free(request)
            return []
        name = self.name(request)
        self._put_off.append(f"blocks_of_{name}")
        self._call(request, f"{self._put_off[-1]} = manager.pop_blocks_for_free", name)
        return []

    def evict_blocks(self, ids: set[int]) -> None:
        self.write("manager.evict_blocks", literal(ids))

    def reset_prefix_cache(self) -> bool:
        self.write("manager.reset_prefix_cache")
        return bool(self._answer)

    def get_num_common_prefix_blocks(self, request_id: str) -> list[int]:
        self.write("common = manager.get_num_common_prefix_blocks", literal(request_id))
        common: list[int] = self._answer
        return common

    def take_events(self) -> list[object]:
        self.write("events = manager.take_events")
        return []

    def make_prefix_cache_stats(self) -> None:
        """No contract is about statistics."""

    def _free_blocks(self, blocks: object) -> None:
        if self._put_off:
            self.write("manager.block_pool.free_blocks", f"reversed({self._put_off.popleft()})")

    def _make_request(self, event: HostEvent, token_ids: list[int]) -> _Request:
        name = event["request"]
        arguments = [literal(name), literal([tuple(run) for run in event["text"]])]
        if event["items"]:
            items = [(i["identifier"], i["offset"], i["length"]) for i in event["items"]]
            arguments.append(f"items={literal(items)}")
        if event["salt"] is not None:
            arguments.append(f"salt={literal(event['salt'])}")
        if event["lora"] is not None:
            arguments.append(f"lora={literal(tuple(event['lora'].values()))}")
        if event["skip_reading"]:
            arguments.append("skip_reading=True")
        self.write(f"{self._variables[name]} = make_request", *arguments)
        return _Request(event, token_ids, self)

    def _call(self, request: _Request, head: str, *arguments: str) -> None:
        """A call about a request, after what has been set of it since the last one."""
        for attribute in self._shown:
            value = getattr(request, attribute)
            if value != request.told[attribute]:
                request.told[attribute] = value
                name = self.name(request)
                is_all = attribute == "num_computed_tokens" and value == request.num_tokens
                what = f"{name}.num_tokens" if is_all else value
                self.statements.append(Statement(f"{name}.{attribute} = {what}"))
        self.write(head, *arguments)

    def _has_effect(self, argument: str, value: object) -> bool:
        if argument == "has_scheduled_reqs" and not self._has_watermark:
            return False
        return bool(value != _DEFAULTS.get(argument, 0))


def _places(places: Iterable[tuple[int, int]]) -> str:
    return "{" + ", ".join(map(str, sorted(places))) + "}"


def _remark(event: AnyEvent) -> str:
    """What the engine does, where the calls alone do not say it."""
    match event:
        case Output():
            return f"a step of {event.request} ends"
        case Loaded():
            return f"the load of {event.request} ends"
        case Preempt():
            return f"{event.request} is preempted"
        case End():
            return f"{event.request} ends"
        case Settle():
            return "the blocks of a request that ended are read no longer"
        case _:
            return ""
