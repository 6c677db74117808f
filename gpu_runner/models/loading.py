"""A model from its directory, by the type that its configuration names."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from cacheproof.gpu_runner.models.base import MultiModalModel
from cacheproof.gpu_runner.models.cohere2_vision import Cohere2Vision
from cacheproof.gpu_runner.models.llava import Llava
from cacheproof.gpu_runner.models.qwen2_5_vl import Qwen25VL
from cacheproof.gpu_runner.models.qwen2_audio import Qwen2Audio
from cacheproof.gpu_runner.models.qwen3_vl import Qwen3VL
from cacheproof.gpu_runner.models.whisper import Whisper

_LOADERS: dict[str, Callable[..., MultiModalModel]] = {
    "cohere2_vision": Cohere2Vision,
    "llava": Llava,
    "qwen2_5_vl": Qwen25VL.load,
    "qwen2_audio": Qwen2Audio,
    "qwen3_vl": Qwen3VL.load,
    "whisper": Whisper,
}


def load(
    kind: str, directory: Path, *, dtype: torch.dtype, device: torch.device, **own: Any
) -> MultiModalModel:
    """The model of a local directory of weights; `own` is what only its kind takes."""
    return _LOADERS[kind](directory, dtype=dtype, device=device, **own)
