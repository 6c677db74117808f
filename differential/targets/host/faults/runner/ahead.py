"""Faults of a torch runner whose steps are ahead of what is known: with drafts to verify, or with
two steps in flight. They are planted in a sound runner, and each must be seen.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ...by_name import by_name
from .fault import RunnerFault

if TYPE_CHECKING:
    from cacheproof.gpu_runner.requests import RequestState
    from cacheproof.gpu_runner.runner import Runner, Sampled
    from cacheproof.reference.scheduler.output import SchedulerOutput

Tokens = list["Sampled"]


def _change_acceptance(
    runner: "Runner", change: Callable[[Tokens, Sequence["Sampled"], Sequence[int]], Tokens]
) -> None:
    """Accept what `change` makes of what was accepted, all that was sampled, and the drafts."""
    accepted = runner._accepted
    runner._accepted = lambda sampled, drafts: change(accepted(sampled, drafts), sampled, drafts)


def accepts_one_too_many(runner: "Runner") -> None:
    """The token after a wrong draft is taken too."""
    _change_acceptance(runner, lambda right, sampled, drafts: list(sampled[: len(right) + 1]))


def takes_the_wrong_draft(runner: "Runner") -> None:
    """A wrong draft is answered instead of the token sampled in its place."""

    def take(right: Tokens, sampled: Sequence["Sampled"], drafts: Sequence[int]) -> Tokens:
        if len(right) > len(drafts) or drafts[len(right) - 1] < 0:
            return right
        return [*right[:-1], right[-1]._replace(token_id=drafts[len(right) - 1])]

    _change_acceptance(runner, take)


def skips_an_accepted_token(runner: "Runner") -> None:
    """The first of several accepted tokens is lost."""
    _change_acceptance(runner, lambda right, sampled, drafts: right[1:] or right)


def compares_with_the_next_row(runner: "Runner") -> None:
    """A draft counts as right if it is the token sampled after it."""

    def compare(right: Tokens, sampled: Sequence["Sampled"], drafts: Sequence[int]) -> Tokens:
        count = 0
        while count < len(drafts) and sampled[count + 1].token_id != drafts[count]:
            count += 1
        return list(sampled[: count + 1])

    _change_acceptance(runner, compare)


def reads_an_item_ahead(runner: "Runner") -> None:
    """The drafting model reads items far after a step."""
    read = runner._read_ahead
    runner._read_ahead = lambda request_id, request, end: read(request_id, request, end + 8)


def does_not_roll_back(runner: "Runner") -> None:
    """A step begins where it would if all drafts before it had been right."""
    take = runner._take_drafts

    def stay(request: "RequestState", told: Sequence[int]) -> None:
        claimed = request.num_computed_tokens
        take(request, told)
        request.num_computed_tokens = claimed

    runner._take_drafts = stay


def feeds_the_token_before(runner: "Runner") -> None:
    """The last decoded token is read as the one before it."""
    take = runner._take_drafts

    def stale(request: "RequestState", told: Sequence[int]) -> None:
        take(request, told)
        if len(request.token_ids) > 1 + len(request.prompt.token_ids):
            request.token_ids[-1] = request.token_ids[-2]

    runner._take_drafts = stale


def forgets_the_last_token(runner: "Runner") -> None:
    """The last of several tokens that a request was answered is missing in its text."""
    execute = runner.execute

    def forget(step: "SchedulerOutput") -> dict[str, Tokens]:
        answers = execute(step)
        for name, tokens in answers.items():
            if len(tokens) > 1:
                runner.batch.requests[name].token_ids.pop()
        return answers

    runner.execute = forget


def crosses_answers(runner: "Runner") -> None:
    """Two requests of a step get each other's tokens."""
    execute = runner.execute

    def crossed(step: "SchedulerOutput") -> dict[str, Tokens]:
        answers = execute(step)
        return dict(zip(answers, reversed(list(answers.values())), strict=True))

    runner.execute = crossed


def frees_a_step_late(runner: "Runner") -> None:
    """A step's notices are heard with the next one."""
    free = runner.encoder_store.free
    waiting: list[str] = []
    runner.encoder_store.capacity *= 2

    def late(identifiers: Iterable[str]) -> None:
        free(list(waiting))
        waiting[:] = identifiers

    runner.encoder_store.free = late


AHEAD_FAULTS: dict[str, RunnerFault] = by_name(
    accepts_one_too_many,
    takes_the_wrong_draft,
    skips_an_accepted_token,
    compares_with_the_next_row,
    reads_an_item_ahead,
    does_not_roll_back,
    feeds_the_token_before,
    forgets_the_last_token,
    crosses_answers,
    frees_a_step_late,
)
