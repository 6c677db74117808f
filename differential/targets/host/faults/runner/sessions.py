"""Faults in how a torch runner goes on with a session. They are planted in a sound runner, and each
must be seen."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ...by_name import by_name

if TYPE_CHECKING:
    from cacheproof.gpu_runner.requests import RequestState
    from cacheproof.gpu_runner.runner import Runner
    from cacheproof.reference.scheduler.output import SchedulerOutput


def _change_turns(
    runner: "Runner", change: "Callable[[RequestState, RequestState, int], RequestState]"
) -> None:
    """Let a session's next turn begin with what `change` makes of the request before, of the
    request now, and of the first token of the chunk between."""
    go_on = runner._go_on

    def changed(step: "SchedulerOutput") -> None:
        before = {new.req_id: runner.batch.of(new.req_id) for new in step.scheduled_new_reqs}
        chunks = {name: len(one.chunks[0].token_ids) for name, one in before.items() if one.chunks}
        go_on(step)
        for name, length in chunks.items():
            old, now = before[name], runner.batch.of(name)
            if now is not old:
                kept = len(now.token_ids) - length
                runner.batch.requests[name] = change(old, now, kept)

    runner._go_on = changed


def keeps_the_last_of_a_turn(runner: "Runner") -> None:
    """The token that ended the turn before stands in the place of the chunk's first."""

    def change(old: "RequestState", now: "RequestState", kept: int) -> "RequestState":
        token_ids = [*now.token_ids[:kept], old.token_ids[kept], *now.token_ids[kept + 1 :]]
        return replace(now, token_ids=token_ids)

    _change_turns(runner, change)


def places_items_behind_the_prompt(runner: "Runner") -> None:
    """A chunk's items have places as if the turn before had decoded nothing."""

    def change(old: "RequestState", now: "RequestState", kept: int) -> "RequestState":
        back = len(old.prompt.token_ids) - kept
        items = [
            replace(item, feature=item.feature.moved(back))
            for item in now.prompt.items[len(old.prompt.items) :]
        ]
        prompt = replace(now.prompt, items=(*old.prompt.items, *items))
        return replace(now, prompt=prompt)

    _change_turns(runner, change)


def turns_by_the_positions_of_before(runner: "Runner") -> None:
    """Rotary positions stay those of the prompt before, and count on behind it."""
    _change_turns(runner, lambda old, now, kept: replace(now, positions=old.positions))


SESSION_FAULTS = by_name(
    keeps_the_last_of_a_turn,
    places_items_behind_the_prompt,
    turns_by_the_positions_of_before,
)
