"""A pytest file that shows what a connector does: its engines are played in one process."""

from collections.abc import Iterator

from cacheproof.differential.findings.finding import LOCKSTEP, Finding
from cacheproof.differential.findings.standalone.template import (
    OF_A_DIFFERENCE,
    PLUG_IN,
    render,
    variables,
)
from cacheproof.differential.judges.retrace import violation_of
from cacheproof.differential.traces import encoder_connector as connector
from cacheproof.differential.traces.trace import AnyEvent
from cacheproof.differential.traces.wording import literal

SHOWN = frozenset({"EX-1", "EX-2", "EX-3", "EX-4", "EX-5", "EX-7", "EX-8", "EX-12"})


def standalone_test(finding: Finding) -> tuple[str | None, str]:
    """The file's text, or None and why there is none."""
    events = finding.events[: finding.event + 1]
    if finding.parting is not None or finding.contract == LOCKSTEP:
        return None, OF_A_DIFFERENCE
    if finding.contract not in SHOWN:
        return None, f"what {finding.contract} says is of processes: its replay shows it"
    config = finding.trace.header.config
    assert isinstance(config, connector.EncoderConnectorConfig)
    if any(isinstance(one, connector.Stop | connector.Reach) or _dies(one) for one in events):
        return None, "an engine ends, or a store goes: its replay shows it"
    if any(isinstance(one, connector.Execute) and one.late for one in events) or config.ranks > 1:
        return None, "copies end late, or on one rank later than on another: its replay shows it"
    if config.store in connector.SERVERS:
        return None, "it needs a server: its replay starts one"
    if any(isinstance(one, connector.Spoil) for one in events) and len(config.items) > 1:
        return None, "one file of several is spoiled: its replay shows it"
    if PLUG_IN.fullmatch(finding.target) or finding.target.startswith("reference"):
        return None, "it is written for vLLM's own connectors and LMCache's"
    shown = ConnectorTest(finding, events)
    return render("encoder_connector.py.jinja", finding, shown.body(), **shown.shows), ""


def _dies(event: AnyEvent) -> bool:
    return isinstance(event, connector.Execute) and event.dies_at is not None


class ConnectorTest:
    """What the template needs for a finding."""

    def __init__(self, finding: Finding, events: tuple[AnyEvent, ...]) -> None:
        assert isinstance(finding.trace.header.config, connector.EncoderConnectorConfig)
        self.config = finding.trace.header.config
        self._finding, self._events = finding, events
        names = [event.engine for event in events if isinstance(event, connector.Start)]
        self._variables = {
            name: f"engine_{variable.removeprefix('request_')}"
            for name, variable in variables(dict.fromkeys(names)).items()
        }

    @property
    def shows(self) -> dict[str, object]:
        """Which connector, over what, and of which model."""
        connector = "ECCPUConnector" if self.config.store == "cpu" else "ECExampleConnector"
        gaps = {item.identifier: item.gaps for item in self.config.items}
        is_lmcache = self._finding.target.startswith("lmcache@")
        return {
            "connector": "LMCache" if is_lmcache else connector,
            "store": self.config.store,
            "capacity": self.config.capacity,
            "model": self.config.models[0],
            "layers": any(model.layers > 1 for model in self.config.models),
            "rows": {item.identifier: item.rows for item in self.config.items},
            "gaps": gaps if any(gaps.values()) else None,
        }

    def body(self) -> Iterator[str]:
        """The lines of the test."""
        *before, last = self._events
        started: set[str] = set()
        for event in before:
            yield from self._lines(event, started)
        yield from self._claim(last, started)

    def _lines(self, event: AnyEvent, started: set[str]) -> Iterator[str]:
        engine = self._variables.get(getattr(event, "engine", ""), "")
        match event:
            case connector.Start():
                if event.engine not in started:
                    started.add(event.engine)
                    told = ", ".join(["folder", *self._of_model(event.model)])
                    yield f"{engine} = Engine({told})"
            case connector.Plan():
                first, *further = event.requests
                given = [literal(name) for name in first]
                if further:
                    given.append(f"further={literal([list(items) for items in further])}")
                for name in ("refused", "preempted"):
                    if some := getattr(event, name):
                        given.append(f"{name}={literal(list(some))}")
                yield f"{engine}.plan({', '.join(given)})"
            case connector.Execute():
                yield f"{engine}.execute()"
            case connector.AbortPlanned():
                yield f"{engine}.abort()"
            case connector.Forget():
                yield f"{engine}.forget({', '.join(map(literal, event.items))})"
            case connector.NewWeights():
                for name in started:
                    if self._model_of(name) == event.model:
                        yield f"{self._variables[name]}.new_weights()"
            case connector.Spoil():
                yield from self._spoiled(event)
            case connector.Ask():
                pass

    def _of_model(self, number: int) -> Iterator[str]:
        """What an engine is told of its model, where that is not as of the first."""
        first, own = self.config.models[0], self.config.models[number]
        yield f"model={literal(own.name)}"
        if own.dtype != first.dtype:
            yield f"dtype=torch.{own.dtype}"
        for field in ("width", "layers"):
            if getattr(own, field) != getattr(first, field):
                yield f"{field}={getattr(own, field)}"

    def _spoiled(self, event: connector.Spoil) -> Iterator[str]:
        yield f"# somebody spoils the file of {literal(event.item)}: {event.how}"
        yield "for file in [path for path in folder.rglob('*') if path.is_file()]:"
        yield "    data = file.read_bytes()"
        yield "    file.unlink()"
        if event.how == "half":
            yield "    file.write_bytes(data[: len(data) // 2])"
        elif event.how == "garbage":
            yield "    file.write_bytes(bytes(byte ^ 0xA5 for byte in data))"

    def _claim(self, last: AnyEvent, started: set[str]) -> Iterator[str]:
        """The last event, and what does not hold after it."""
        broken = self._finding.first_break
        assert broken is not None
        violation = violation_of(broken.judge, self._finding.contract, self._finding.kind)
        assert violation is not None
        engine = self._variables.get(violation.request, "")
        item = literal(violation.identifier)
        if self._finding.contract == "EX-12":
            yield f"assert {engine}.plan({item})[{item}]  # it was saved before"
            return
        yield from self._lines(last, started)
        match self._finding.contract:
            case "EX-1":
                yield f"assert {item} in {engine}.encoder_cache  # promised, so not encoded"
            case "EX-2":
                yield f"metadata, _, encodes = {engine}.planned[-1]"
                for name in last.items if isinstance(last, connector.Plan) else ():
                    shown = literal(name)
                    yield f"assert {shown} in encodes or {shown} in metadata.loads  # and pinned"
            case "EX-3":
                yield f"assert not {engine}.planned"
                yield f"assert not {engine}.scheduler.has_pending_push_work()"
            case "EX-4" | "EX-7":
                yield f"loaded = {engine}.encoder_cache[{item}]"
                yield f"assert torch.equal(loaded, {engine}.rows({item}))"
            case "EX-8":
                yield "outside = [path for path in folder.parents[3].rglob('*') if path.is_file()]"
                yield "assert all(folder in path.parents for path in outside)"

    def _model_of(self, name: str) -> int:
        return next(
            event.model
            for event in self._events
            if isinstance(event, connector.Start) and event.engine == name
        )
