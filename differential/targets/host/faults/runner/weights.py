"""Faults in how a torch runner loads new weights, and in what its scheduler resets then. They are
planted in a sound runner, and each must be seen."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...by_name import by_name
from .fault import RunnerFault, replace_in_model, whole_of

if TYPE_CHECKING:
    from cacheproof.gpu_runner.models.base import Encoded
    from cacheproof.gpu_runner.requests import MediaItem
    from cacheproof.gpu_runner.runner import Runner, Sampled
    from cacheproof.reference.scheduler.output import SchedulerOutput
    from cacheproof.reference.scheduler.scheduler import Scheduler


def _change_reload(
    runner: "Runner", change: Callable[[Callable[[Path], None], Path], None]
) -> None:
    """`change` gets what takes the weights of a directory, and the directory."""
    reload = runner.model.reload

    replace_in_model(runner, reload=lambda directory: change(reload, directory))


def _keeps(runner: "Runner", is_kept: Callable[[str], bool]) -> None:
    """Let weights of such names stay as they are."""
    weights = dict(whole_of(runner).named_parameters())

    def partly(reload: Callable[[Path], None], directory: Path) -> None:
        old = {name: one.detach().clone() for name, one in weights.items() if is_kept(name)}
        reload(directory)
        for name, one in old.items():
            weights[name].data.copy_(one)

    _change_reload(runner, partly)


def keeps_old_weights(runner: "Runner") -> None:
    """Nothing is loaded."""
    _keeps(runner, lambda name: True)


def keeps_the_tower(runner: "Runner") -> None:
    """The weights that encode items stay as they are."""
    _keeps(runner, lambda name: "language_model" not in name and "lm_head" not in name)


def keeps_the_decoder(runner: "Runner") -> None:
    """The weights of the decoder stay as they are."""
    _keeps(runner, lambda name: "language_model" in name)


def keeps_the_first_layer(runner: "Runner") -> None:
    """The weights of the decoder's first layer stay as they are."""
    _keeps(runner, lambda name: "language_model.layers.0." in name)


def keeps_the_head(runner: "Runner") -> None:
    """The weights that make logits stay as they are."""
    _keeps(runner, lambda name: "lm_head" in name)


def loads_the_version_before(runner: "Runner") -> None:
    """Each load takes the weights that the load before should have taken."""
    asked: list[Path] = []

    def late(reload: Callable[[Path], None], directory: Path) -> None:
        asked.append(directory)
        if len(asked) > 1:
            reload(asked[-2])

    _change_reload(runner, late)


def loads_after_the_next_step(runner: "Runner") -> None:
    """One more step is executed with the old weights."""
    asked: list[Callable[[], None]] = []
    execute = runner.execute
    _change_reload(runner, lambda reload, directory: asked.append(lambda: reload(directory)))

    def first(step: "SchedulerOutput") -> dict[str, list["Sampled"]]:
        answers = execute(step)
        while asked:
            asked.pop(0)()
        return answers

    runner.execute = first


def keeps_what_it_encoded(runner: "Runner") -> None:
    """An item is encoded once, and never again."""
    model = runner.model
    kept: dict[str, Encoded] = {}

    def encode(items: Sequence["MediaItem"]) -> list["Encoded"]:
        names = [item.feature.identifier for item in items]
        fresh = model.encode(items)
        return [kept.setdefault(*one) for one in zip(names, fresh, strict=True)]

    replace_in_model(runner, encode=encode)


def keeps_its_store(runner: "Runner") -> None:
    """Only notices drop encoder outputs."""
    store, execute = runner.encoder_store, runner.execute
    free = store.free
    store.capacity *= 100
    store.free = lambda identifiers: None

    def executed(step: "SchedulerOutput") -> dict[str, list["Sampled"]]:
        free(step.free_encoder_mm_hashes)
        return execute(step)

    runner.execute = executed


WEIGHT_FAULTS: dict[str, RunnerFault] = by_name(
    keeps_old_weights,
    keeps_the_tower,
    keeps_the_decoder,
    keeps_the_first_layer,
    keeps_the_head,
    loads_the_version_before,
    loads_after_the_next_step,
    keeps_what_it_encoded,
    keeps_its_store,
)


def keeps_who_runs(scheduler: "Scheduler") -> None:
    """Requests in flight do not start over."""
    scheduler.reset_prefix_cache = lambda reset_running_requests=False: True


def keeps_cached_blocks(scheduler: "Scheduler") -> None:
    """Requests in flight start over, but cached blocks can still be hit."""
    scheduler.kv_cache_manager.reset_prefix_cache = lambda: True


def keeps_the_ledger(scheduler: "Scheduler") -> None:
    """The scheduler takes items for encoded that no worker has any more."""
    scheduler.reset_encoder_cache = lambda: None


RESET_FAULTS: dict[str, Callable[["Scheduler"], None]] = by_name(
    keeps_who_runs, keeps_cached_blocks, keeps_the_ledger
)
