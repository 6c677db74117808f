"""A pytest file that shows block keys: requests grow as the trace says, and two keys are compared.

What content the two blocks have is read off the trace and stands beside the assertion.
"""

from collections.abc import Iterator

from cacheproof.differential.findings.finding import LOCKSTEP, Finding
from cacheproof.differential.findings.standalone.template import OF_A_DIFFERENCE, render, variables
from cacheproof.differential.judges.block_hash import BlockHashJudge, KeyPlace
from cacheproof.differential.traces.block_hash import (
    BlockHashConfig,
    BlockHashEvent,
    Continue,
    Decode,
    Prompt,
)
from cacheproof.differential.traces.trace import AnyEvent
from cacheproof.differential.traces.wording import literal
from cacheproof.spec.block_hash import BlockContent

_WIDTH = 92


def standalone_test(finding: Finding) -> tuple[str | None, str]:
    """The file's text, or None and why there is none."""
    if finding.parting is not None or finding.contract == LOCKSTEP:
        return None, OF_A_DIFFERENCE
    requests = [event.request for event in finding.events if isinstance(event, Prompt)]
    shown = BlockHashTest(finding, variables(requests))
    return render(
        "block_hash.py.jinja", finding, shown.body(), config=shown.config, **shown.shows
    ), ""


class BlockHashTest:
    """What the template needs for a finding at block-hash depth."""

    def __init__(self, finding: Finding, variables: dict[str, str]) -> None:
        broken = finding.first_break
        assert broken is not None
        assert isinstance(broken.judge, BlockHashJudge)
        self._judge = broken.judge
        self._contract = finding.contract
        self._variables = variables
        self._told = [
            (number, event)
            for number, (event, record) in enumerate(
                zip(finding.events[: finding.event + 1], finding.records, strict=False)
            )
            if isinstance(event, BlockHashEvent)
            and (record.outcome is not None or record.raised is not None)
        ]
        assert isinstance(finding.trace.header.config, BlockHashConfig)
        self.config = finding.trace.header.config

    @property
    def shows(self) -> dict[str, bool]:
        """Which parts of the template the events need."""
        events = [event for _, event in self._told]
        prompts = [event for event in events if isinstance(event, Prompt)]
        return {
            "items": any(event.items for event in events if not isinstance(event, Decode)),
            "continues": any(isinstance(event, Continue) for event in events),
            "embeds": any(prompt.embeds is not None for prompt in prompts),
            "adapters": any(prompt.lora is not None for prompt in prompts),
        }

    def body(self) -> Iterator[str]:
        """The lines of the test."""
        first, second = self._judge.places.get(self._contract, (None, None))
        for number, event in self._told:
            yield from self._lines(event)
            if first is not None and number == first.event:
                yield f"key = {self._key(first)}"
        yield ""
        if first is None or second is None:
            (_, event) = self._told[-1]
            name, compared = self._variables[event.request], self._judge.compared
            cut = f"[:{compared}]" if self.config.lookahead else ""
            yield f"assert {name}.keys(){cut} == {name}.keys_afresh(){cut}"
            return
        yield from self._contents(first, second)
        relation = "==" if self._contract == "BK-4" else "!="
        yield f"assert {self._key(second)} {relation} key"

    def _contents(self, first: KeyPlace, second: KeyPlace) -> Iterator[str]:
        """The first block in which the two prefixes differ, or that they are equal."""
        for number, (one, other) in enumerate(zip(first.prefix, second.prefix, strict=False)):
            if one != other:
                yield f"# block {number} holds {_words(one, other)}, and {_words(other, one)}"
                return
        if len(first.prefix) != len(second.prefix):
            yield f"# {len(first.prefix)} blocks of content, and {len(second.prefix)}"
        else:
            yield "# the same content in every block up to here"

    def _key(self, place: KeyPlace) -> str:
        keys = "keys_afresh" if place.afresh else "keys"
        return f"{self._variables[place.request]}.{keys}()[{len(place.prefix) - 1}]"

    def _lines(self, event: AnyEvent) -> list[str]:
        """What the engine does; on several lines if long."""
        head, arguments = self._call(event)
        line = f"{head}({', '.join(arguments)})"
        if len(line) <= _WIDTH:
            return [line]
        return [f"{head}(", *(f"    {argument}," for argument in arguments), ")"]

    def _call(self, event: AnyEvent) -> tuple[str, list[str]]:
        assert isinstance(event, BlockHashEvent)
        variable = self._variables[event.request]
        if isinstance(event, Decode):
            return f"{variable}.decode", list(map(str, event.tokens))
        arguments = [literal(list(event.tokens))]
        if event.items:
            shown = [(item.identifier, item.offset, item.length) for item in event.items]
            arguments.append(f"items={literal(shown)}")
        if isinstance(event, Continue):
            return f"{variable}.go_on", arguments
        if event.salt is not None:
            arguments.append(f"salt={literal(event.salt)}")
        if event.lora is not None:
            adapter = (event.lora.lora_name, event.lora.lora_int_id, event.lora.lora_path)
            arguments.append(f"lora={literal(adapter)}")
        if event.embeds is not None:
            arguments.append(f"embeds={literal(list(event.embeds))}")
        if event.one_object and event.items:
            arguments.append("one_object=True")
        return f"{variable} = Grown", arguments


def _words(one: BlockContent, other: BlockContent) -> str:
    """The fields of one block's content in which the other differs."""
    return ", ".join(
        f"{name} {literal(getattr(one, name))}"
        for name in one._fields
        if getattr(one, name) != getattr(other, name)
    )
