"""Faults in how a torch runner applies adapters, and in how they keep requests apart. They are
planted in a sound runner, and each must be seen."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from ...by_name import by_name
from ...protocol import Event
from .fault import RunnerFault, replace_in_model
from .salt import Make

if TYPE_CHECKING:
    from torch import Tensor

    from cacheproof.gpu_runner.adapters import LoadedAdapter, Windows
    from cacheproof.gpu_runner.runner import Runner
    from cacheproof.reference.scheduled_request import ScheduledRequest
    from cacheproof.reference.scheduler.output import SchedulerOutput

Weights = Mapping[str, tuple["Tensor", "Tensor"]]
"""The two matrices of each layer of an adapter."""


def _change(
    runner: "Runner", change: Callable[["Windows"], "Windows"], *, of_items: bool | None = None
) -> None:
    """Let rows run under what `change` makes of their adapters: those of items, those of a step's
    tokens, or both."""
    model = runner.model

    def adapted(windows: "Windows") -> AbstractContextManager[None]:
        is_of_items = windows[0][0] == slice(None)
        is_meant = of_items is None or of_items == is_of_items
        return model.adapted(change(windows) if is_meant else windows)

    replace_in_model(runner, adapted=adapted)


def _change_weights(runner: "Runner", change: Callable[[Weights], Weights]) -> None:
    def changed(adapter: "LoadedAdapter | None") -> "LoadedAdapter | None":
        return adapter and type(adapter)(adapter.request, change(adapter.weights))

    _change(runner, lambda windows: [(rows, changed(adapter)) for rows, adapter in windows])


def decodes_under_none(runner: "Runner") -> None:
    """The decoder runs under no adapter."""
    _change(runner, lambda windows: [(rows, None) for rows, _ in windows], of_items=False)


def encodes_under_none(runner: "Runner") -> None:
    """Items are encoded under no adapter."""
    _change(runner, lambda windows: [(rows, None) for rows, _ in windows], of_items=True)


def runs_all_under_the_first(runner: "Runner") -> None:
    """Every request of a step runs under the first one's adapter."""
    _change(runner, lambda windows: [(rows, windows[0][1]) for rows, _ in windows])


def runs_under_the_next(runner: "Runner") -> None:
    """Each request of a step runs under the adapter of the one after it."""
    _change(
        runner,
        lambda windows: [
            (rows, adapter)
            for (rows, _), (_, adapter) in zip(windows, [*windows[1:], windows[0]], strict=True)
        ],
    )


def takes_the_last_for_none(runner: "Runner") -> None:
    """Requests without an adapter run under the last one of the step."""

    def filled(windows: "Windows") -> "Windows":
        adapters = [adapter for _, adapter in windows if adapter is not None]
        last = adapters[-1] if adapters else None
        return [(rows, adapter or last) for rows, adapter in windows]

    _change(runner, filled)


def begins_a_row_late(runner: "Runner") -> None:
    """The first token of each request in a step runs under the adapter of the one before it."""

    def late(windows: "Windows") -> "Windows":
        adapters: list[LoadedAdapter | None] = [None, *(adapter for _, adapter in windows)]
        shifted = []
        for (rows, adapter), before in zip(windows, adapters, strict=False):
            shifted.append((slice(rows.start, rows.start + 1), before))
            shifted.append((slice(rows.start + 1, rows.stop), adapter))
        return shifted

    _change(runner, late, of_items=False)


def leaves_out_the_last_layer(runner: "Runner") -> None:
    """One layer of an adapter is not applied."""
    _change_weights(runner, lambda weights: {name: weights[name] for name in sorted(weights)[:-1]})


def adds_half(runner: "Runner") -> None:
    """The rows that an adapter adds are scaled by half."""
    _change_weights(
        runner, lambda weights: {name: (down, up / 2) for name, (down, up) in weights.items()}
    )


def keeps_the_first_weights(runner: "Runner") -> None:
    """All adapters have the weights of the one that was used first: its slot is never filled
    again."""
    kept: list[Weights] = []

    def first(weights: Weights) -> Weights:
        kept.append(weights)
        return kept[0]

    _change_weights(runner, first)


def loses_it_with_a_preemption(runner: "Runner") -> None:
    """A request that comes back after a preemption has no adapter."""
    apply = runner.batch.apply

    def forgetful(step: "SchedulerOutput") -> None:
        apply(step)
        for name in step.scheduled_cached_reqs.resumed_req_ids:
            request = runner.batch.requests[name]
            prompt = request.prompt
            request.prompt = type(prompt)(prompt.token_ids, prompt.items, prompt.cache_salt)

    runner.batch.apply = forgetful


ADAPTER_FAULTS: dict[str, RunnerFault] = by_name(
    decodes_under_none,
    encodes_under_none,
    runs_all_under_the_first,
    runs_under_the_next,
    takes_the_last_for_none,
    begins_a_row_late,
    leaves_out_the_last_layer,
    adds_half,
    keeps_the_first_weights,
    loses_it_with_a_preemption,
)


def shares_kv_across_adapters(make: Make) -> Make:
    """Keys of blocks do not name the adapter."""

    def made(event: Event, at: float) -> "ScheduledRequest":
        request = make({**event, "lora": None}, at)
        request.lora_request = make(event, at).lora_request
        return request

    return made


def shares_rows_across_adapters(make: Make) -> Make:
    """An item has one identifier under all adapters."""

    def plain(event: Event) -> Event:
        items = [
            {**item, "identifier": item["mm_hash"] or item["identifier"]} for item in event["items"]
        ]
        return {**event, "items": items}

    return lambda event, at: make(plain(event), at)


ADAPTER_KEY_FAULTS: dict[str, Callable[[Make], Make]] = by_name(
    shares_kv_across_adapters, shares_rows_across_adapters
)
