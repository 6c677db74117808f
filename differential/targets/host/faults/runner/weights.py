"""Faults in how a torch runner loads new weights, and in what its scheduler resets then. They are
planted in a sound runner, and each must be seen."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...by_name import by_name


def _change_reload(runner: Any, change: Callable[[Callable[[Path], None], Path], None]) -> None:
    """`change` gets what takes the weights of a directory, and the directory."""
    reload = runner.model.reload

    class Changed:
        def __init__(self, model: Any) -> None:
            self._model = model

        def __getattr__(self, name: str) -> Any:
            return getattr(self._model, name)

        def reload(self, directory: Path) -> None:
            change(reload, directory)

    runner.model = Changed(runner.model)


def _keeps(runner: Any, is_kept: Callable[[str], bool]) -> None:
    """Let weights of such names stay as they are."""
    weights = dict(runner.model._whole.named_parameters())

    def partly(reload: Callable[[Path], None], directory: Path) -> None:
        old = {name: one.detach().clone() for name, one in weights.items() if is_kept(name)}
        reload(directory)
        for name, one in old.items():
            weights[name].data.copy_(one)

    _change_reload(runner, partly)


def keeps_old_weights(runner: Any) -> None:
    """Nothing is loaded."""
    _keeps(runner, lambda name: True)


def keeps_the_tower(runner: Any) -> None:
    """The weights that encode items stay as they are."""
    _keeps(runner, lambda name: "language_model" not in name and "lm_head" not in name)


def keeps_the_decoder(runner: Any) -> None:
    """The weights of the decoder stay as they are."""
    _keeps(runner, lambda name: "language_model" in name)


def keeps_the_first_layer(runner: Any) -> None:
    """The weights of the decoder's first layer stay as they are."""
    _keeps(runner, lambda name: "language_model.layers.0." in name)


def keeps_the_head(runner: Any) -> None:
    """The weights that make logits stay as they are."""
    _keeps(runner, lambda name: "lm_head" in name)


def loads_the_version_before(runner: Any) -> None:
    """Each load takes the weights that the load before should have taken."""
    asked: list[Path] = []

    def late(reload: Callable[[Path], None], directory: Path) -> None:
        asked.append(directory)
        if len(asked) > 1:
            reload(asked[-2])

    _change_reload(runner, late)


def loads_after_the_next_step(runner: Any) -> None:
    """One more step is executed with the old weights."""
    asked: list[Callable[[], None]] = []
    execute = runner.execute
    _change_reload(runner, lambda reload, directory: asked.append(lambda: reload(directory)))

    def first(step: Any) -> Any:
        answers = execute(step)
        while asked:
            asked.pop(0)()
        return answers

    runner.execute = first


def keeps_what_it_encoded(runner: Any) -> None:
    """An item is encoded once, and never again."""
    model, kept = runner.model, dict[str, Any]()

    class Remembering:
        def __getattr__(self, name: str) -> Any:
            return getattr(model, name)

        def encode(self, items: Any) -> list[Any]:
            names = [item.feature.identifier for item in items]
            fresh = model.encode(items)
            return [kept.setdefault(*one) for one in zip(names, fresh, strict=True)]

    runner.model = Remembering()


def keeps_its_store(runner: Any) -> None:
    """Only notices drop encoder outputs."""
    store, execute = runner.encoder_store, runner.execute
    free = store.free
    store.capacity *= 100
    store.free = lambda identifiers: None

    def executed(step: Any) -> Any:
        free(step.free_encoder_mm_hashes)
        return execute(step)

    runner.execute = executed


WEIGHT_FAULTS: dict[str, Callable[[Any], None]] = by_name(
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


def keeps_who_runs(scheduler: Any) -> None:
    """Requests in flight do not start over."""
    scheduler.reset_prefix_cache = lambda running=False: True


def keeps_cached_blocks(scheduler: Any) -> None:
    """Requests in flight start over, but cached blocks can still be hit."""
    scheduler.kv_cache_manager.reset_prefix_cache = lambda: True


def keeps_the_ledger(scheduler: Any) -> None:
    """The scheduler takes items for encoded that no worker has any more."""
    scheduler.reset_encoder_cache = lambda: None


RESET_FAULTS: dict[str, Callable[[Any], None]] = by_name(
    keeps_who_runs, keeps_cached_blocks, keeps_the_ledger
)
