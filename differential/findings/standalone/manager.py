"""A test of a manager alone: the calls that were recorded, and the contract at their end.

It repeats the calls, not the events. `claims` writes the assertion.
"""

from collections.abc import Iterator

from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.findings.standalone.assertions import (
    ANSWERS,
    CLASSES,
    NAMES,
    OF_THE_STORE,
    TELLS,
    AssertedCase,
    claim,
)
from cacheproof.differential.findings.standalone.template import PLUG_IN, render, variables
from cacheproof.differential.traces.manager import Add, ManagerConfig, Notices, Walk
from cacheproof.differential.traces.outcomes import WalkOutcome
from cacheproof.differential.traces.records import CallRecord
from cacheproof.differential.traces.trace import AnyEvent
from cacheproof.differential.traces.wording import literal, told

_MODULE = "vllm.v1.core.encoder_cache_manager"
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


def standalone_test(finding: Finding) -> tuple[str | None, str]:
    """The file's text, or None and why there is none."""
    retrace, parting = finding.retrace, finding.parting
    if parting is None:
        broken = finding.first_break
    else:
        broken = None if parting.call is None else retrace.at(finding.event, parting.call + 1)
    text = None if broken is None else ManagerTest(AssertedCase(finding, broken)).text()
    return text, "no attribute of the manager shows it"


class ManagerTest:
    def __init__(self, case: AssertedCase) -> None:
        self._case = case
        self._finding = case.finding
        self._methods = _METHODS_PER_INPUT if case.per_input else _METHODS
        self._variables = variables(case.requests)
        plug_in = PLUG_IN.fullmatch(case.finding.target)
        self._module = plug_in[1] if plug_in else _MODULE
        self._class = plug_in[2] if plug_in else CLASSES[case.finding.configuration.manager]

    def text(self) -> str | None:
        case, finding = self._case, self._finding
        end = claim(case)
        if end is None:
            return None
        body = [*self._body(), "", *end] if end else list(self._body())
        return render(
            "manager.py.jinja",
            finding,
            per_input=case.per_input,
            counts_embeds=finding.protocol["counts_embeds"],
            module=self._module,
            class_name=self._class,
            sizes=literal(case.sizes) if any("SIZE" in line for line in body) else None,
            claims=any("CLAIMS_LATER_OCCURRENCES" in line for line in body),
            store=finding.contract in OF_THE_STORE,
            body=body,
        )

    def _body(self) -> Iterator[str]:
        finding, broken = self._finding, self._case.broken
        assert isinstance(finding.configuration.config, ManagerConfig)
        keeps_store = finding.contract in OF_THE_STORE
        yield f"manager = {self._class}(cache_size={finding.configuration.config.capacity})"
        if keeps_store:
            yield "store = {}"
        encoded: list[object] = []
        for number, event in enumerate(finding.events[: broken.event + 1]):
            outcome, calls = finding.records[number].outcome, finding.records[number].calls
            is_last = number == broken.event
            if is_last:
                calls = calls[: broken.call]
            yield from self._heading(event, outcome, bool(calls))
            for position, call in enumerate(calls, start=1):
                is_breaking = is_last and position == len(calls)
                yield from self._breaking(call) if is_breaking else (self._line(call),)
                if call.operation == "allocate":
                    encoded.append(self._case.entry_of(call.request or "", call.input or 0))
            if isinstance(event, Walk) and outcome and not is_last:
                yield from self._later_occurrences(event.request, outcome[1])
            if isinstance(event, Notices) and keeps_store:
                yield from self._executed(encoded, is_last)
                encoded = []

    def _heading(
        self, event: AnyEvent, outcome: WalkOutcome | None, has_calls: bool
    ) -> Iterator[str]:
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

    def _executed(self, encoded: list[object], is_last: bool) -> Iterator[str]:
        if is_last:
            yield "before = set(store)"
            yield f"encoded = {literal(encoded)}"
        yield f"execute(store, notices, {'encoded' if is_last else literal(encoded)})"

    def _expression(self, call: CallRecord) -> str:
        arguments = [self._variables[call.request]] if call.request is not None else []
        numbers = (call.input, call.budget, call.pending)
        arguments += [str(value) for value in numbers if value is not None]
        return f"manager.{self._methods[call.operation]}({', '.join(arguments)})"

    def _line(self, call: CallRecord) -> str:
        keeps = call.operation == "notices" and self._finding.contract in OF_THE_STORE
        expression = ("notices = " if keeps else "") + self._expression(call)
        return expression if call.answer is None else f"{expression}  # {literal(call.answer)}"

    def _breaking(self, call: CallRecord) -> Iterator[str]:
        """The call after which the contract is broken, or which must be answered otherwise."""
        parting = self._finding.parting
        if self._case.compares_with_before:
            yield f"before = {self._case.snapshot}"
        expression = self._expression(call)
        if self._finding.contract in ANSWERS:
            yield f"assert {expression} is {not call.answer}"
        elif self._finding.contract in TELLS:
            entry = self._case.entry_of(call.request or "", call.input or 0)
            size = self._case.shared_before.size.get(entry) if isinstance(entry, str) else None
            yield f"assert {expression} {'is' if size is None else '=='} {size}"
            if isinstance(call.answer, bool):  # which is equal to a number
                yield f"assert type({expression}) is int"
        elif self._finding.contract in NAMES:
            request, before = call.request or "", self._case.shared_before
            items = [one.identifier for one in self._case.requests[request].items]
            held = sorted(h for h, holders in before.holders.items() if request in holders)
            yield f"items = {literal(items)}"
            yield f"told = {{items[number] for number in {expression}}}"
            yield f"assert set({literal(held)}) <= told <= set({literal(sorted(before.size))})"
        elif parting is not None and parting.field == "answer":
            answer = f"sorted({expression})" if call.operation == "inputs" else expression
            yield f"assert {answer} == {literal(parting.reference)}"
        else:
            yield self._line(call)
