"""A pytest file that gives a real scheduler the events of a trace: what its parts are made of.

The file plays the engine itself, in as few lines as the trace at hand needs. What it has no lines
for it does not leave out: such a trace has no test, and is shown by its replay.
"""

from collections.abc import Iterator

from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.findings.standalone import steps
from cacheproof.differential.findings.standalone.assertions import (
    AFTER_AN_EVENT,
    CLASSES,
    OF_ITEMS_BY_NUMBER,
    OF_THE_STORE,
    RAISES,
    AssertedCase,
    claim,
)
from cacheproof.differential.findings.standalone.template import PLUG_IN, render
from cacheproof.differential.targets.host.scheduler.settings import LATER
from cacheproof.differential.traces import scheduler
from cacheproof.differential.traces.base import Group, tag_of
from cacheproof.differential.traces.manager import Add, Update
from cacheproof.differential.traces.trace import AnyEvent
from cacheproof.differential.traces.wording import literal, told

_COMMENTED = 90
"""Letters of a call and of what became of it that fit into a line."""
_LONG = 94
"""Letters of a call that has an argument a line."""
_SPECS = {
    "full": ("FullAttentionSpec", None),
    "sliding_window": ("SlidingWindowSpec", "sliding_window"),
    "chunked_local": ("ChunkedLocalAttentionSpec", "attention_chunk_size"),
    "cross": ("CrossAttentionSpec", None),
}


def standalone_test(finding: Finding) -> tuple[str | None, str]:
    """The file's text, or None and why there is none."""
    is_plug_in = PLUG_IN.fullmatch(finding.target) is not None
    shown = SchedulerTest(finding, is_plug_in=is_plug_in)
    if shown.missing:
        return None, shown.missing
    return render("scheduler.py.jinja", finding, shown.body(), **shown.shows), ""


class SchedulerTest:
    """What a finding's file shows. `missing` says why there is none, empty where there is one."""

    def __init__(self, finding: Finding, *, is_plug_in: bool) -> None:
        self._finding = finding
        self._case = AssertedCase(finding, finding.retrace.whole(finding.event))
        config = finding.configuration.config
        assert isinstance(config, scheduler.SchedulerConfig)
        self.config = config
        self.missing = next((f"{what} shown by their replay" for what in self._lacks()), "")
        if self._case.per_input or is_plug_in:
            self.missing = "managers of other shapes in a scheduler are shown by their replay"
        end = claim(self._case) if not self.missing and self._is_claim else []
        if not self.missing and not self._is_claim:
            end = steps.claim(
                finding.contract,
                config.block_size,
                has_loads=config.kv_connector is not None,
                loads_end=self._loads_end,
            )
        if not self.missing and not end and finding.contract not in RAISES:
            self.missing = "no attribute shows it after the event"
        self._end = end or []

    @property
    def _loads_end(self) -> bool:
        return any(isinstance(event, scheduler.Received) for event in self._finding.events)

    @property
    def _is_claim(self) -> bool:
        return self._finding.contract in AFTER_AN_EVENT

    def _lacks(self) -> Iterator[str]:
        """What the trace asks for, and the file's engine does not have."""
        config, events, contract = self.config, self._finding.events, self._finding.contract
        if contract in steps.OF_BLOCKS and len(config.groups) > 1:
            yield "blocks of several groups are"
        if contract in steps.OF_THE_LEDGER and self._case.is_decoder:
            yield "outputs that nobody shares are"
        if config.num_speculative_tokens and not (config.drafter or config.async_scheduling):
            yield "drafts by prompt lookup are"
        if config.prefix_cache_retention_interval is not None:
            yield "windows that are cached sparsely are"
        if config.one_text:
            yield "requests that decode one text are"
        for event in events:
            match event:
                case Add(lora=lora) if lora is not None:
                    yield "adapters are"
                case Add(skip_reading=True):
                    yield "requests that skip reading the prefix cache are"
                case scheduler.Chunk() if event.stop_after is not None:
                    yield "stops of later turns are"
                case scheduler.Chunk() if (
                    event.items and contract in OF_ITEMS_BY_NUMBER | steps.OF_ITEMS
                ):
                    yield "items of later turns are"
                case scheduler.Pause():
                    yield "pauses are"
                case scheduler.Transfer(state="pending" | "failed"):
                    yield "transfers that requests wait for are"
                case scheduler.Sent():
                    yield "ends of KV sendings are"

    @property
    def shows(self) -> dict[str, object]:
        """What the template asks for, beside the body."""
        config, case = self.config, self._case
        groups = config.groups or (Group("full", config.block_size),)
        sizes = any("SIZE" in line for line in self._end)
        return {
            "config": config,
            "manager": CLASSES[self._finding.configuration.manager],
            "is_decoder": case.is_decoder,
            "longest": max(case.largest_items, default=0),
            "capacity": self._finding.capacity or config.capacity,
            "compute_budget": max(config.compute_budget, *case.largest_items, 0),
            "sizes": literal(case.sizes) if sizes else None,
            "specs": sorted({_SPECS[group.kind][0] for group in groups}),
            "groups": list(map(_spec, groups)),
            "later": {
                name: getattr(config, name)
                for name, nothing in LATER.items()
                if getattr(config, name) != nothing
            },
            "drafts": config.num_speculative_tokens,
            "follows_windows": any("engine.windows" in line for line in self._end),
            "follows_items": self._finding.contract in steps.OF_ITEMS,
            "follows_blocks": any("engine.misread" in line for line in self._end),
            "follows_delivery": self._finding.contract in steps.OF_LOADS,
            "loads_end": self._loads_end,
        }

    def body(self) -> Iterator[str]:
        """The events, and the claim at their end."""
        finding = self._finding
        for event, record in zip(
            finding.events[: finding.event + 1], finding.records, strict=False
        ):
            if record.outcome is None and not record.calls and record.raised is None:
                continue
            call = f"engine.{self._engine_call(event)}"
            what = told(event, record.outcome).removeprefix("schedule(): ")
            if len(call) > _LONG and isinstance(event, Add | scheduler.Chunk):
                arguments = self._arrival(event)
                yield from ("engine.add(", *(f"    {one}," for one in arguments), ")")
            elif not isinstance(event, scheduler.Schedule | scheduler.Chunk | scheduler.Close):
                yield call
            elif len(call) + len(what) <= _COMMENTED:
                yield f"{call}  # {what}"
            else:
                yield from (f"# {what}", call)
        if not self._is_claim:
            yield from ("", *self._end) if self._end else ()
            return
        yield ""
        yield "manager = engine.manager"
        if finding.contract in OF_THE_STORE:
            yield "store, before = engine.store, engine.before"
            yield "notices, encoded = engine.notices, engine.encoded"
        yield from self._end

    def _engine_call(self, event: AnyEvent) -> str:
        match event:
            case Add() | scheduler.Chunk():
                return f"add({', '.join(self._arrival(event))})"
            case scheduler.Close():
                return f"add({literal(event.request)}, prompt=1)"
            case Update():
                steps = [str(event.steps)] if event.steps > 1 else []
                accepts = [f"accepts={event.accepts}"] if any(event.accepts) else []
                return f"update({', '.join([*steps, *accepts])})"
            case scheduler.Abort():
                return f"abort({literal(event.request)})"
            case scheduler.ResetPrefix():
                return f"reset_prefix({'running=True' if event.running else ''})"
            case scheduler.Transfer():
                return f"transfer({literal(event.identifier)}, ready={event.state == 'ready'})"
            case scheduler.Elsewhere():
                later = ", later=True" if event.later else ""
                return f"elsewhere({literal(event.request)}, tokens={event.tokens}{later})"
            case scheduler.Received():
                failed = "" if event.failed is None else f", failed={event.failed}"
                return f"received({literal(event.request)}{failed})"
            case _:
                return f"{tag_of(type(event))}()"

    def _arrival(self, event: Add | scheduler.Chunk) -> list[str]:
        """The arguments with which a request, or a part of a session, arrives."""
        first = self._case.requests[event.request]
        items = ", ".join(
            literal((item.identifier, item.offset, item.length, item.is_embed))
            for item in event.items
        )
        more = {
            f"items=[{items}]": items,
            f"max_tokens={event.max_tokens}": event.max_tokens > 1,
            f"priority={first.priority}": first.priority,
            f"salt={literal(first.salt)}": first.salt,
            f"stop_after={event.stop_after}": event.stop_after,
            "resumable=True": first.resumable,
        }
        is_said = [argument for argument, wanted in more.items() if wanted]
        return [literal(event.request), f"prompt={event.prompt}", *is_said]


def _spec(group: Group) -> tuple[str, str]:
    """The release's class for a group, and the argument that it has beside the others."""
    name, window = _SPECS[group.kind]
    return name, f"{window}={group.window}" if window else ""
