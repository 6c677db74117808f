"""Judges identifiers of media: each item is held against all items before it that it meets."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.judges.violation import Violation, first_of_each
from cacheproof.differential.targets.host.managers.media_identifier import key_of, settings_of
from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.traces.base import tag_of
from cacheproof.differential.traces.media_identifier import (
    MOST_ITEMS,
    PICTURES_ALIKE,
    MediaIdentifierConfig,
    MediaIdentifierEvent,
    NamedItem,
    NameItems,
)
from cacheproof.differential.traces.outcomes import IdentifierOutcome
from cacheproof.differential.traces.records import StepRecord
from cacheproof.differential.traces.trace import Trace
from cacheproof.spec.media_identifier import COMPONENT, NamedPair, Naming
from cacheproof.spec.registry import Contract, contracts

OF_SETTINGS = "with other settings"
"""What an engine tells its processor stands in the place of a request's options, or differs."""
OF_COUNT = "among more pictures"
"""The model processes a picture otherwise where its request has many."""


class Called(NamedTuple):
    """What an item is to be told apart by: what it is, its client's id or its content, what its
    processor is told, and whether its request has more pictures than the model processes alike."""

    modality: str
    text: str
    options: int
    is_among_many: bool


class Named(NamedTuple):
    """An item as a request named it, and where: `item` by its client's id or its content, and
    `sent` by its content, None where it came without data; `options` are the request's own; `life`
    is the engine's."""

    item: Called
    sent: Called | None
    by_client: bool
    adapter: str | None
    options: int
    request: str
    engine: int
    life: int
    server: int
    identifier: str
    number: int

    def are_said_to_be_one(self, other: "Named") -> bool:
        """Whether two items that are called otherwise may still share what is kept: a client that
        gives a picture and a sound one id says that they are one, and one that calls its item by
        another's identifier may have that very item."""
        if self.by_client and other.by_client:
            return self.item[1:] == other.item[1:]
        return self.by_client != other.by_client and self.sent == other.sent

    def differs_by_settings_alone(self, other: "Named") -> bool:
        """Whether two items would be one, or said to be one, if their engines told the processor
        the same."""
        if self.options != other.options or self.item.options == other.item.options:
            return False
        return self.but_for(other, options=0, is_among_many=False)

    def but_for(self, other: "Named", **alike: Any) -> bool:
        """Whether two items would be one, or said to be one, if these were alike."""
        mine, theirs = (
            one._replace(
                item=one.item._replace(**alike), sent=one.sent and one.sent._replace(**alike)
            )
            for one in (self, other)
        )
        is_one = (mine.item, mine.by_client) == (theirs.item, theirs.by_client)
        return is_one or mine.are_said_to_be_one(theirs)


class MediaIdentifierJudge:
    """Judges one trace. `by_kind` holds the first violation of each contract and kind;
    `calls_judged` counts identifiers."""

    state = None
    stored: Mapping[str, int] = {}
    resident_sum = 0

    def __init__(self, trace: Trace, release: str | None, reach: Reachability) -> None:
        config = trace.header.config
        assert isinstance(config, MediaIdentifierConfig)
        self.by_kind: dict[tuple[str, str], Violation] = {}
        self.calls_judged = 0
        self._config, self._reach = config, reach
        rules = list(contracts(COMPONENT, release))
        self._of_pairs = [rule for rule in rules if rule.parameters == ("p",)]
        self._of_answers = [rule for rule in rules if rule.parameters == ("c",)]
        self._is_uncached = not config.processor_cache and not config.prefix_caching
        self._named: list[Named] = []
        self._told: list[str] = []
        self._lives: dict[int, int] = {}

    @property
    def violations(self) -> dict[str, Violation]:
        """The first violation of each contract, of any kind."""
        return first_of_each(self.by_kind)

    def judge(self, number: int, event: MediaIdentifierEvent, record: StepRecord) -> None:
        """Judge the record of event number `number`; no-ops have no outcome."""
        outcome: IdentifierOutcome | None = record.outcome
        if record.raised is not None:
            self._judge_answer(number, event, record.raised.type)
        if outcome is None:
            return
        if not isinstance(event, NameItems):
            self._lives[event.engine] = self._lives.get(event.engine, 0) + 1
            return
        if "raises" in outcome:
            self._judge_answer(number, event, outcome["raises"])
            return
        settings = settings_of(self._config.settings, event.engine)
        if settings and not event.options:
            self._reach.meet("an engine with settings of its own")
        options = event.options or settings
        alike = PICTURES_ALIKE.get(self._config.model, MOST_ITEMS)
        is_many = sum(item.modality == "image" for item in event.items) > alike
        if is_many:
            self._reach.meet("more pictures than a model processes alike")
        told = [self._item(item, options, is_many) for item in event.items]
        life = self._lives.get(event.engine, 0)
        for item, (called, by_client), identifier in zip(
            event.items, told, outcome["identifiers"], strict=True
        ):
            self.calls_judged += 1
            adapter = event.adapter if self._config.adapters_reach else None
            where = event.request, event.engine, life, event.server
            data = called._replace(text=str(item.content))
            sent = None if item.content is None else data
            own = event.options
            named = Named(called, sent, by_client, adapter, own, *where, identifier, number)
            self._note(item, named)
            for earlier in self._named:
                self._judge(earlier, named)
            self._named.append(named)
        self._told += outcome["identifiers"]

    def _item(self, item: NamedItem, options: int, is_many: bool) -> tuple[Called, bool]:
        """What an item is to be told apart by, and whether its client says so: two contents that
        a client gives one id are one item."""
        is_among_many = is_many and item.modality == "image"
        if item.uuid is None:
            return Called(item.modality, str(item.content), options, is_among_many), False
        text = item.uuid if isinstance(item.uuid, str) else key_of(self._told[item.uuid])
        return Called(item.modality, text, options, is_among_many), True

    def _note(self, item: NamedItem, named: Named) -> None:
        states = {
            "no cache asks for digests": self._is_uncached,
            "an item named by its client": named.by_client,
            "an identifier given as an id": isinstance(item.uuid, int),
            "an item of an encoder's rows": item.modality == "image_embeds",
            "named after a restart": named.life > 0,
            "named by another server": named.server > 0,
        }
        for state, is_met in states.items():
            if is_met:
                self._reach.meet(state)

    def _judge(self, earlier: Named, named: Named) -> None:
        """Hold two items against each other that meet in a cache, or in a store."""
        is_one_life = (earlier.engine, earlier.life) == (named.engine, named.life)
        if not is_one_life and not self._config.external_store:
            return
        same_item = (earlier.item, earlier.by_client) == (named.item, named.by_client)
        same_adapter = earlier.adapter == named.adapter
        if same_adapter and not same_item and earlier.are_said_to_be_one(named):
            return
        # Where nothing asks for digests, and no store does, an item that its client does not name
        # need not be found again.
        may_part = self._is_uncached and not named.by_client and not self._config.external_store
        pair = NamedPair(same_item, same_adapter, earlier.identifier, named.identifier)
        for rule in self._of_pairs:
            holds: Callable[[NamedPair], bool] = rule.predicate
            if holds(pair) or (same_item and same_adapter and may_part):
                continue
            kind = _kind(earlier, named, is_one=same_item and same_adapter)
            why = f"beside event {earlier.number + 1}, {kind}: {rule.explain(p=pair)}"
            self._break(rule, named.number, "name", named.request, named.identifier, why, kind)

    def _judge_answer(self, number: int, event: MediaIdentifierEvent, raised: str) -> None:
        for rule in self._of_answers:
            answer = Naming(raised)
            if not rule.predicate(answer):
                request = getattr(event, "request", "")
                why = rule.explain(c=answer)
                self._break(rule, number, tag_of(type(event)), request, "", why, raised)

    def _break(
        self,
        rule: Contract,
        number: int,
        operation: str,
        request: str,
        identifier: str,
        why: str,
        kind: str,
    ) -> None:
        violation = Violation(rule, number, operation, request, identifier, why, kind)
        self.by_kind.setdefault((rule.id, kind), violation)


def _kind(earlier: Named, named: Named, *, is_one: bool) -> str:
    """Who named the items, where they are one; else how they differ, and who named them where."""
    if is_one and earlier.options != named.options:
        return OF_SETTINGS
    if is_one:
        return "by a client's id" if named.by_client else "by its content"
    if earlier.differs_by_settings_alone(named):
        return OF_SETTINGS
    is_count_alike = earlier.item.is_among_many == named.item.is_among_many
    if not is_count_alike and earlier.but_for(named, is_among_many=False):
        return OF_COUNT
    if earlier.by_client == named.by_client and earlier.item[:2] == named.item[:2]:
        is_adapter = earlier.item == named.item
        return "with another adapter" if is_adapter else "with other options"
    if earlier.by_client or named.by_client:
        return "with a client's id"
    if earlier.engine != named.engine:
        return "of another engine"
    if earlier.life != named.life:
        return "of before a restart"
    if earlier.server != named.server:
        return "of another server"
    return "of one request's id" if earlier.request == named.request else "of another request"


def judge_of(
    trace: Trace, release: str | None, protocol: Protocol, reach: Reachability
) -> MediaIdentifierJudge:
    """The judge for a trace; `release` is the target's, None where it is no release."""
    return MediaIdentifierJudge(trace, release, reach)
