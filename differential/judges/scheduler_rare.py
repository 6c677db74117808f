"""Which rare states of a scheduler a trace meets, as far as its steps and updates tell."""

from collections.abc import Callable, Iterable, Mapping

from cacheproof.differential.judges.requests import JudgedRequest
from cacheproof.differential.judges.scheduler_items import PromptItem, UnspentBudget
from cacheproof.differential.traces.manager import Add
from cacheproof.differential.traces.outcomes import StepOutcome, UpdateOutcome
from cacheproof.differential.traces.scheduler import SchedulerConfig
from cacheproof.spec.scheduler_records import StepPlan, Stops


class SchedulerRareStates:
    """Told of every step and update in turn; `meet` counts a state by its name.

    `added` says how a request arrived.
    """

    def __init__(
        self, meet: Callable[[str], None], config: SchedulerConfig, added: Callable[[str], Add]
    ) -> None:
        self._meet = meet
        self._config = config
        self._added = added
        self._groups = {group.kind for group in config.groups}
        self._running: set[str] = set()
        self._tables: dict[str, set[int]] = {}
        self._drafted: dict[str, int] = {}

    def schedule(self, outcome: StepOutcome) -> None:
        """Follow a step that is decided."""
        computed = outcome["computed"]
        for name, end in self._drafted.items():
            goes_on = name in computed and name not in outcome["resumed"]
            if goes_on and computed[name] < end:
                self._meet("drafts rejected")
        self._drafted = {
            name: computed[name] + outcome["scheduled"][name]
            for name in outcome["drafts"]
            if name in computed and not self._added(name).resumable
        }
        resumed = outcome["resumed"]
        if resumed and self._config.kv_connector is None and any(map(computed.get, resumed)):
            self._meet("hit after preemption")
        if outcome.get("rejected"):
            self._meet("reused media id rejected")
        if self._groups:
            self._hold(outcome)
        self._running = set(outcome["running"])

    def whole_items(
        self, plan: StepPlan, running: Iterable[str], requests: Mapping[str, JudgedRequest]
    ) -> None:
        """Follow a step of items that must be whole: which requests stand at one that it does not
        hold whole."""
        for name in running:
            request = requests[name]
            window = plan.windows.get(name)
            start, stop = (request.computed, request.computed) if window is None else window
            for offset, end in request.spans if start < request.end_of_items else ():
                if offset == start and end > stop:
                    self._meet("whole item that does not fit")

    def update(self, outcome: UpdateOutcome, thrown_back: Iterable[str]) -> None:
        """Follow an update; the requests that are `thrown_back` compute KV anew."""
        if not outcome["waiting"]:
            return
        stopped = self._running.intersection(outcome["waiting"]).difference(thrown_back)
        continued = {name for name, _ in outcome.get("continued", ())}
        if any(self._added(name).resumable for name in stopped - continued):
            self._meet("session waits for more prompt")

    def stops(
        self, stops: Stops, items: Callable[[str], Iterable[PromptItem]], rest: UnspentBudget
    ) -> None:
        """Follow windows that have ended among these items of their requests."""
        drafter = self._config.drafter and self._config.num_speculative_tokens > 0
        if not drafter and not stops.refused and not stops.allowed:
            return
        for name, end in stops.ends.items():
            if drafter and any(item.offset == end for item in items(name)):
                self._meet("drafter at an item's edge")
            if end == stops.refused.get(name):
                self._meet("stopped before an item")
            elif end in stops.allowed.get(name, ()):
                there = [item for item in items(name) if item.offset in (end, end + drafter)]
                fits = not any(item.is_refused(rest) for item in there)
                self._meet(f"{'rolled back' if fits else 'stopped'} before an item")

    def _hold(self, outcome: StepOutcome) -> None:
        """Follow what groups beside full attention make of KV blocks."""
        begun = {*outcome["new"], *outcome["resumed"]}
        tables = {name: self._tables.get(name, set()) for name in outcome["running"]}
        for name, groups in outcome["blocks"].items():
            held = {block for group in groups for block in group}
            # Who begins is told all of its blocks, who goes on only the new ones.
            tables[name] = held if name in begun else tables[name] | held
            if name in begun and outcome["computed"][name] and len(groups) > 1:
                self._meet("hit in several groups")
            if name in begun and 0 in held:
                self._meet("null blocks in a hit")
            if "cross" in self._groups and groups[-1]:
                self._meet("cross-attention blocks")
        self._tables = tables
        told = set().union(*tables.values()) - {0}
        if self._config.num_blocks - 1 - outcome["free_blocks"] < len(told):
            self._meet("blocks behind a window given back")
