"""A pytest file that needs only vLLM: the calls that were recorded, and the contract at their end.

It repeats the calls, not the events, so that whoever reads it needs to know nothing of this
project. `claims` writes the assertion.
"""

import re
from collections.abc import Iterable, Iterator
from importlib import resources
from typing import Any

import jinja2

from cacheproof.differential.claims import ANSWERS, CLASSES, OF_THE_STORE, Case, claim
from cacheproof.differential.finding import LOCKSTEP, Finding
from cacheproof.differential.media_hash_program import IMPORTS, arguments, kinds_in
from cacheproof.differential.record import CallRecord
from cacheproof.differential.standalone_block_hash import BlockHashTest
from cacheproof.differential.standalone_kv_cache import KVCacheTest
from cacheproof.differential.standalone_scheduler import SchedulerTest
from cacheproof.differential.trace import (
    Add,
    AnyEvent,
    Arrive,
    Hash,
    ManagerConfig,
    MediaHashConfig,
    Notices,
    Prompt,
    Walk,
)
from cacheproof.differential.words import literal, told, visible_line

_MODULE = "vllm.v1.core.encoder_cache_manager"
APART = ("MH-3", "MH-3a")
"""Contracts of two digests that must differ; by the others of that component two must be one."""
_METHODS = {
    "check": "check_and_update_cache",
    "can": "can_allocate",
    "allocate": "allocate",
    "release": "free_encoder_input",
    "free": "free",
    "notices": "get_freed_mm_hashes",
    "inputs": "get_cached_input_ids",
    "embeds": "get_cached_num_encoder_embeds",
    "reset": "reset",
}
_METHODS_PER_INPUT = {**_METHODS, "check": "has_cache", "notices": "get_freed_ids"}
_PLUG_IN = re.compile(r"(?!path:)([\w.]+):(\w+)(@.*)?")


def standalone_test(finding: Finding) -> str | None:
    """The file's text; None where `why_none` says why."""
    return _written(finding)[0]


def why_none(finding: Finding) -> str:
    """Why a finding has no standalone test; empty when it has one."""
    text, reason = _written(finding)
    return reason if text is None else ""


def _written(finding: Finding) -> tuple[str | None, str]:
    if finding.trace.depth == "block_hash":
        return _block_hash_test(finding), "a difference from the reference is shown by its replay"
    if finding.trace.depth == "kv_cache":
        return _kv_cache_test(finding), "what this rule compares is shown by its replay"
    if finding.trace.depth == "media_hash":
        return _media_hash_test(finding), "a difference from the reference is shown by its replay"
    if finding.trace.depth == "engine":
        return None, "an engine is made of more than a script can hold"
    if finding.trace.depth == "scheduler":
        return _scheduler_test(finding)
    retrace, parting = finding.retrace, finding.parting
    if parting is None:
        broken = retrace.first_break(finding.contract)
    else:
        broken = None if parting.call is None else retrace.at(finding.event, parting.call + 1)
    text = None if broken is None else _Test(Case(finding, broken)).text()
    return text, "no attribute of the manager shows it"


class _Test:
    def __init__(self, case: Case) -> None:
        self._case = case
        self._finding = case.finding
        self._methods = _METHODS_PER_INPUT if case.per_input else _METHODS
        self._variables = _variables(case.requests)
        plug_in = _PLUG_IN.fullmatch(case.finding.target)
        self._module = plug_in[1] if plug_in else _MODULE
        self._class = plug_in[2] if plug_in else CLASSES[case.finding.configuration.manager]

    def text(self) -> str | None:
        case, finding = self._case, self._finding
        end = claim(case)
        if end is None:
            return None
        body = [*self._body(), "", *end] if end else list(self._body())
        return _template("standalone.py.jinja").render(
            finding=finding,
            story=_story(finding),
            per_input=case.per_input,
            counts_embeds=finding.protocol["counts_embeds"],
            module=self._module,
            class_name=self._class,
            sizes=literal(case.sizes) if any("SIZE" in line for line in body) else None,
            claims=any("CLAIMS_LATER_OCCURRENCES" in line for line in body),
            store=finding.contract in OF_THE_STORE,
            name=re.sub(r"\W+", "_", finding.contract).lower(),
            body=[_one_line(line) for line in body],
        )

    def _body(self) -> Iterator[str]:
        finding, broken = self._finding, self._case.broken
        assert isinstance(finding.configuration.config, ManagerConfig)
        keeps_store = finding.contract in OF_THE_STORE
        yield f"manager = {self._class}(cache_size={finding.configuration.config.capacity})"
        if keeps_store:
            yield "store = {}"
        encoded: list[Any] = []
        for number, event in enumerate(finding.events[: broken.event + 1]):
            outcome, calls, _, _ = finding.records[number]
            is_last = number == broken.event
            if is_last:
                calls = calls[: broken.call]
            yield from self._heading(event, outcome, bool(calls))
            for position, call in enumerate(calls, start=1):
                is_breaking = is_last and position == len(calls)
                yield from self._breaking(call) if is_breaking else (self._line(call),)
                if call[0] == "allocate":
                    encoded.append(self._case.entry_of(call[1] or "", call[2] or 0))
            if isinstance(event, Walk) and outcome and not is_last:
                yield from self._later_occurrences(event.request, outcome[1])
            if isinstance(event, Notices) and keeps_store:
                yield from self._executed(encoded, is_last)
                encoded = []

    def _heading(self, event: AnyEvent, outcome: Any, has_calls: bool) -> Iterator[str]:
        """What the engine does, in words."""
        if isinstance(event, Add):
            items = "".join(
                f", ({literal(item.identifier)}, {size})"
                for item, size in zip(event.items, self._case.item_sizes(event), strict=True)
            )
            name = literal(event.request)
            yield f"{self._variables[event.request]} = make_request({name}{items})"
        elif has_calls:
            yield ""
            yield f"# {told(event, outcome)}"

    def _later_occurrences(self, request: str, duplicates: list[int]) -> Iterator[str]:
        """Claims that newer schedulers make and that of the finding does not."""
        if duplicates and not self._finding.protocol["claims_duplicates"]:
            yield "if CLAIMS_LATER_OCCURRENCES:"
            for number in duplicates:
                yield f"    manager.check_and_update_cache({self._variables[request]}, {number})"

    def _executed(self, encoded: list[Any], is_last: bool) -> Iterator[str]:
        if is_last:
            yield "before = set(store)"
            yield f"encoded = {literal(encoded)}"
        yield f"execute(store, notices, {'encoded' if is_last else literal(encoded)})"

    def _expression(self, call: CallRecord) -> str:
        operation, request, number, budget, pending, _, _ = call
        arguments = [self._variables[request]] if request is not None else []
        arguments += [str(value) for value in (number, budget, pending) if value is not None]
        return f"manager.{self._methods[operation]}({', '.join(arguments)})"

    def _line(self, call: CallRecord) -> str:
        keeps = call[0] == "notices" and self._finding.contract in OF_THE_STORE
        expression = ("notices = " if keeps else "") + self._expression(call)
        return expression if call[5] is None else f"{expression}  # {literal(call[5])}"

    def _breaking(self, call: CallRecord) -> Iterator[str]:
        """The call after which the contract is broken, or which must be answered otherwise."""
        parting = self._finding.parting
        if self._case.compares_with_before:
            yield f"before = {self._case.snapshot}"
        expression = self._expression(call)
        if self._finding.contract in ANSWERS:
            yield f"assert {expression} is {not call[5]}"
        elif parting is not None and parting.field == "answer":
            answer = f"sorted({expression})" if call[0] == "inputs" else expression
            yield f"assert {answer} == {literal(parting.reference)}"
        else:
            yield self._line(call)


def _media_hash_test(finding: Finding) -> str | None:
    """The two calls, or the one made twice, on the release's hasher."""
    calls = [event.value for event in finding.events if isinstance(event, Hash)]
    config = finding.configuration.config
    if finding.parting is not None or len(calls) > 2 or not isinstance(config, MediaHashConfig):
        return None
    kinds = set().union(*map(kinds_in, calls))
    return _template("standalone_media_hash.py.jinja").render(
        finding=finding,
        story=_story(finding),
        imports=[line for kind, line in IMPORTS.items() if kind in kinds],
        has_media="media" in kinds,
        has_images="image" in kinds,
        algorithm=config.algorithm,
        name=re.sub(r"\W+", "_", finding.contract).lower(),
        one=arguments(calls[0]),
        other=arguments(calls[-1]),
        relation="!=" if finding.contract in APART else "==",
    )


def _block_hash_test(finding: Finding) -> str | None:
    """Two keys that must not be equal, or must."""
    if finding.parting is not None or finding.contract == LOCKSTEP:
        return None
    requests = [event.request for event in finding.events if isinstance(event, Prompt)]
    shown = BlockHashTest(finding, _variables(requests))
    return _template("standalone_block_hash.py.jinja").render(
        finding=finding,
        story=_story(finding),
        config=shown.config,
        **shown.shows,
        name=re.sub(r"\W+", "_", finding.contract).lower(),
        body=[_one_line(line) for line in shown.body()],
    )


def _kv_cache_test(finding: Finding) -> str | None:
    """The calls of a scheduler on the release's manager, and what they left."""
    if finding.contract == LOCKSTEP:
        return None
    requests = [event.request for event in finding.events if isinstance(event, Arrive)]
    shown = KVCacheTest(finding, _variables(dict.fromkeys(requests)))
    if not shown.is_shown:
        return None
    return _template("standalone_kv_cache.py.jinja").render(
        finding=finding,
        story=_story(finding),
        config=shown.config,
        **shown.shows,
        name=re.sub(r"\W+", "_", finding.contract).lower(),
        body=[_one_line(line) for line in shown.body()],
    )


def _scheduler_test(finding: Finding) -> tuple[str | None, str]:
    """The events of a trace, given to the real scheduler; or why there is no such file."""
    is_plug_in = _PLUG_IN.fullmatch(finding.target) is not None
    shown = SchedulerTest(finding, is_plug_in=is_plug_in)
    if shown.missing:
        return None, shown.missing
    text = _template("standalone_scheduler.py.jinja").render(
        finding=finding,
        story=_story(finding),
        **shown.shows,
        name=re.sub(r"\W+", "_", finding.contract).lower(),
        body=[_one_line(line) for line in shown.body()],
    )
    return text, ""


def _story(finding: Finding) -> str:
    known = finding.known_note and f" Known: {finding.known or 'yes'}, {finding.known_note}."
    return (
        f"{finding.sentence}. Found on {finding.target}, where this test fails. "
        f"The rule: {finding.source}.{known or ''}"
    )


def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    environment.filters["quoted"] = lambda text: (
        visible_line(text).replace("\\", "/").replace('"', "'")
    )
    path = resources.files("cacheproof.differential") / name
    return environment.from_string(path.read_text())


def _one_line(line: str) -> str:
    """A line of the body, whatever is in the names that it shows."""
    return visible_line(" ".join(line.splitlines()))


def _variables(requests: Iterable[str]) -> dict[str, str]:
    """A variable for each request: its name where that can be one."""
    return {
        request: request if _is_plain(request) else f"request_{number}"
        for number, request in enumerate(requests)
    }


def _is_plain(name: str) -> bool:
    """Whether a request's name can be the name of its variable."""
    return name.isascii() and name.isidentifier() and len(name) == 1
