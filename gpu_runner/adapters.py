"""LoRA adapters: what linear layers add to their answers, for those rows that run under one.

A layer answers W x, and under an adapter W x + s B A x, with s = alpha / rank (Hu et al., 2021).
Requests of one step run under different adapters, or none, so what is added is added row by row.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from cacheproof.reference.request import LoRARequest

PREFIX = "base_model.model."
"""What PEFT puts before a layer's name."""


@dataclass(frozen=True, eq=False)
class LoadedAdapter:
    """An adapter as requests ask for it. `weights` are, by the name of a layer, A of [rank, in] and
    B of [out, rank], which is multiplied by the scale already."""

    request: LoRARequest
    weights: Mapping[str, tuple[torch.Tensor, torch.Tensor]]


Windows = Sequence[tuple[slice, LoadedAdapter | None]]
"""Rows of a layer's input, and the adapter that they run under."""


def load(
    directory: Path, request: LoRARequest, *, dtype: torch.dtype, device: torch.device
) -> LoadedAdapter:
    """The adapter of a directory as PEFT saves it."""
    config = json.loads((directory / "adapter_config.json").read_text())
    scale = config["lora_alpha"] / config["r"]
    saved = {
        name.removeprefix(PREFIX).removesuffix(".weight"): tensor.to(device, dtype)
        for name, tensor in load_file(directory / "adapter_model.safetensors").items()
    }
    layers = sorted({name.rpartition(".")[0] for name in saved})
    weights = {
        layer: (saved[f"{layer}.lora_A"], scale * saved[f"{layer}.lora_B"]) for layer in layers
    }
    return LoadedAdapter(request, weights)


class AdaptedLayers:
    """The linear layers of a model of transformers', which may run under adapters."""

    def __init__(self, whole: torch.nn.Module) -> None:
        self._windows: Windows = ()
        self._names = set()
        for name, layer in whole.named_modules():
            if isinstance(layer, torch.nn.Linear):
                self._names.add(name)
                layer.register_forward_hook(self._adding(name))

    @contextmanager
    def under(self, windows: Windows) -> Iterator[None]:
        """While this lasts, the rows of every layer's input run under these.

        Raises:
            ValueError: an adapter has weights of a layer that is not there.
        """
        for _, adapter in windows:
            unknown = set() if adapter is None else adapter.weights.keys() - self._names
            if unknown:
                raise ValueError(f"adapter of layer {min(unknown)!r}; expected one of the model's")
        self._windows = windows
        try:
            yield
        finally:
            self._windows = ()

    def _adding(self, name: str) -> Any:
        def add(_: torch.nn.Module, inputs: tuple[torch.Tensor], answers: torch.Tensor) -> None:
            for rows, adapter in self._windows:
                if adapter is not None and name in adapter.weights:
                    down, up = adapter.weights[name]
                    answers[..., rows, :] += inputs[0][..., rows, :] @ down.T @ up.T

        return add
