"""What a fault of the torch runner is, and how one changes the runner's model."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from cacheproof.gpu_runner.models.base import MultiModalModel
    from cacheproof.gpu_runner.runner import Runner

RunnerFault = Callable[["Runner"], None]


class _Changed:
    """A model some of whose methods are others; all else is the model's."""

    def __init__(self, model: "MultiModalModel", methods: dict[str, Callable[..., object]]) -> None:
        self._model = model
        vars(self).update(methods)

    def __getattr__(self, name: str) -> object:
        return getattr(self._model, name)


def replace_in_model(runner: "Runner", **methods: Callable[..., object]) -> None:
    """Let the runner's model have these methods; the model itself, which other runners have too,
    stays as it is."""
    vars(runner)["model"] = _Changed(runner.model, methods)


def whole_of(runner: "Runner") -> "PreTrainedModel":
    """The model of transformers' that a runner's is made around."""
    whole: PreTrainedModel = vars(runner.model)["_whole"]
    return whole
