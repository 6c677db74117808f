"""Where a step may stop computing a prompt on account of an item."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import NamedTuple

from cacheproof.differential.targets.host.protocol import Protocol
from cacheproof.differential.traces.scheduler import SchedulerConfig
from cacheproof.reference.semantics import Semantics
from cacheproof.spec.scheduler_records import Span, StepPlan, Stops


class Advance(NamedTuple):
    """How far a step brings its requests, in tokens.

    ends: where each of them then is.
    windows: what it computes of those that were not past their items.
    unfinished: those whose prompt goes on after it.
    """

    ends: dict[str, int]
    windows: dict[str, Span]
    unfinished: set[str]


class UnspentBudget(NamedTuple):
    """What a step leaves unspent: tokens, encoder compute, and slots of the encoder cache; None
    where slots come free after its admissions, so that they say nothing of these."""

    tokens: int
    compute: int
    slots: int | None


class PromptItem(NamedTuple):
    """An item of a prompt, as admission sees it: `is_there` when the cache has its entry,
    `is_resized` when its identifier stands for another size as well."""

    offset: int
    length: int
    size: int
    is_there: bool
    is_resized: bool

    def is_refused(self, rest: UnspentBudget) -> bool:
        """Whether a step that leaves `rest` may have had neither an entry nor room for the item."""
        if self.is_resized:
            return True
        if self.is_there:
            return False
        # Slots that are not known may have been too few.
        return rest.slots is None or self.size > min(rest.compute, rest.slots)


class Stopping:
    """The rules of one release by which items stop a chunk; a change of it may have mended them."""

    def __init__(self, config: SchedulerConfig, facts: Semantics, protocol: Protocol) -> None:
        self._config = config
        drafter = int(config.drafter and config.num_speculative_tokens > 0)
        # The release does so, and the text that runs (`protocol`) has not mended it.
        rolls_back = (
            protocol.rolls_back
            and facts.scheduler.rolls_back_for_drafter
            and not facts.scheduler.ends_at_whole_items
        )
        clamps = (
            protocol.clamps
            and facts.scheduler.encodes_ahead
            and not facts.scheduler.reads_ahead_without
        )
        self._before_refused = drafter if clamps else 0
        self._before_whole = drafter if rolls_back else 0

    def judge(
        self,
        plan: StepPlan,
        advance: Advance,
        refused: Mapping[str, int],
        items: Callable[[str], Iterable[PromptItem]],
        rest: UnspentBudget,
        *,
        preempted: bool,
    ) -> Stops:
        """Where the step stops. `refused` says where the items start that the cache refused,
        `items` what a request's are; a step that preempts gives tokens back, which hides what each
        request could have had."""
        allowed: dict[str, Set[int]] = {}
        if advance.unfinished and not preempted:
            allowed = dict(self._allowed(plan, advance, items, rest))
        if refused:
            refused = {name: start - self._before_refused for name, start in refused.items()}
        return Stops(advance.ends, refused, allowed)

    def _allowed(
        self,
        plan: StepPlan,
        advance: Advance,
        items: Callable[[str], Iterable[PromptItem]],
        rest: UnspentBudget,
    ) -> Iterator[tuple[str, Set[int]]]:
        """Where those may end that could have had more tokens and did not get them."""
        left = plan.token_budget
        threshold = self._config.long_prefill_token_threshold
        for name, count in plan.tokens.items():
            most = min(left, threshold) if threshold else left
            if name in advance.unfinished and count < most:
                furthest = advance.ends[name] - count + most
                yield name, frozenset(self._ends(items(name), furthest, rest))
            left -= count

    def _ends(
        self, items: Iterable[PromptItem], furthest: int, rest: UnspentBudget
    ) -> Iterator[int]:
        """Where an item may end a chunk that could reach token `furthest`."""
        for item in items:
            if item.is_refused(rest):
                yield item.offset - self._before_refused
            if self._config.disable_chunked_mm_input and item.offset + item.length > furthest:
                yield item.offset - self._before_whole
