"""Faults in how a torch runner applies adapters, and in how they keep requests apart. They are
planted in a sound runner, and each must be seen."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...by_name import by_name
from ...protocol import Event
from .salt import Make

Windows = Sequence[tuple[slice, Any]]
"""Rows of a layer's input, each with the adapter that they run under, if any."""


def _change(
    runner: Any, change: Callable[[Windows], Windows], *, of_items: bool | None = None
) -> None:
    """Let rows run under what `change` makes of their adapters: those of items, those of a step's
    tokens, or both."""
    model = runner.model

    class Changed:
        def __getattr__(self, name: str) -> Any:
            return getattr(model, name)

        def adapted(self, windows: Windows) -> Any:
            is_of_items = windows[0][0] == slice(None)
            is_meant = of_items is None or of_items == is_of_items
            return model.adapted(change(windows) if is_meant else windows)

    runner.model = Changed()


def _change_weights(runner: Any, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
    def changed(adapter: Any) -> Any:
        return adapter and type(adapter)(adapter.request, change(adapter.weights))

    _change(runner, lambda windows: [(rows, changed(adapter)) for rows, adapter in windows])


def decodes_under_none(runner: Any) -> None:
    """The decoder runs under no adapter."""
    _change(runner, lambda windows: [(rows, None) for rows, _ in windows], of_items=False)


def encodes_under_none(runner: Any) -> None:
    """Items are encoded under no adapter."""
    _change(runner, lambda windows: [(rows, None) for rows, _ in windows], of_items=True)


def runs_all_under_the_first(runner: Any) -> None:
    """Every request of a step runs under the first one's adapter."""
    _change(runner, lambda windows: [(rows, windows[0][1]) for rows, _ in windows])


def runs_under_the_next(runner: Any) -> None:
    """Each request of a step runs under the adapter of the one after it."""
    _change(
        runner,
        lambda windows: [
            (rows, adapter)
            for (rows, _), (_, adapter) in zip(windows, [*windows[1:], windows[0]], strict=True)
        ],
    )


def takes_the_last_for_none(runner: Any) -> None:
    """Requests without an adapter run under the last one of the step."""

    def filled(windows: Windows) -> Windows:
        last = [adapter for _, adapter in windows if adapter is not None][-1:]
        return [(rows, adapter or (last or [None])[0]) for rows, adapter in windows]

    _change(runner, filled)


def begins_a_row_late(runner: Any) -> None:
    """The first token of each request in a step runs under the adapter of the one before it."""

    def late(windows: Windows) -> Windows:
        adapters = [None, *(adapter for _, adapter in windows)]
        shifted = []
        for (rows, adapter), before in zip(windows, adapters, strict=False):
            shifted.append((slice(rows.start, rows.start + 1), before))
            shifted.append((slice(rows.start + 1, rows.stop), adapter))
        return shifted

    _change(runner, late, of_items=False)


def leaves_out_the_last_layer(runner: Any) -> None:
    """One layer of an adapter is not applied."""
    _change_weights(runner, lambda weights: {name: weights[name] for name in sorted(weights)[:-1]})


def adds_half(runner: Any) -> None:
    """The rows that an adapter adds are scaled by half."""
    _change_weights(
        runner, lambda weights: {name: (down, up / 2) for name, (down, up) in weights.items()}
    )


def keeps_the_first_weights(runner: Any) -> None:
    """All adapters have the weights of the one that was used first: its slot is never filled
    again."""
    kept: list[Mapping[str, Any]] = []

    def first(weights: Mapping[str, Any]) -> Mapping[str, Any]:
        kept.append(weights)
        return kept[0]

    _change_weights(runner, first)


def loses_it_with_a_preemption(runner: Any) -> None:
    """A request that comes back after a preemption has no adapter."""
    apply = runner.batch.apply

    def forgetful(step: Any) -> None:
        apply(step)
        for name in step.scheduled_cached_reqs.resumed_req_ids:
            request = runner.batch.requests[name]
            prompt = request.prompt
            request.prompt = type(prompt)(prompt.token_ids, prompt.items, prompt.cache_salt)

    runner.batch.apply = forgetful


ADAPTER_FAULTS: dict[str, Callable[[Any], None]] = by_name(
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

    def made(event: Event, at: float) -> Any:
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
