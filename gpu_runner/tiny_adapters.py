"""Tiny LoRA adapters with random weights, made offline: directories as PEFT saves them.

An adapter changes the linear layers of a model's decoder, or those of its towers as well. Its
weights follow from its number.
"""

import hashlib
import inspect
import json
import os
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoConfig

RANK = 4
SPREAD = 0.25
"""Standard deviation of the weights, that of the models'. What an adapter adds is a fourth of what
a layer answers, and mostly decides on another token."""
OF_DECODER = ("language_model.", "model.decoder.")
"""What the names of a decoder's layers have in them."""
HEADS = ("lm_head", "proj_out")
"""Which no adapter changes."""


def ensure(model: Path, number: int, folder: Path, *, towers: bool = False) -> Path:
    """The directory of adapter `number` of the model in that directory, made where it is missing;
    `towers`: with weights for what encodes items too. It is there whole or not at all."""
    digest = hashlib.sha256(inspect.getsource(sys.modules[__name__]).encode()).hexdigest()[:12]
    of_what = "towers" if towers else "decoder"
    directory = folder / f"{model.name}-adapter-{number}-{of_what}-{digest}"
    if directory.exists():
        return directory
    with tempfile.TemporaryDirectory(dir=folder, prefix=".making-") as scratch:
        draft = Path(scratch) / "adapter"
        draft.mkdir()
        _make(model, number, draft, towers=towers)
        try:
            os.rename(draft, directory)
        except OSError:  # somebody else was quicker
            if not directory.exists():
                raise
    return directory


def _make(model: Path, number: int, directory: Path, *, towers: bool) -> None:
    configuration = AutoConfig.from_pretrained(model)
    (architecture,) = configuration.architectures
    with torch.device("meta"):
        whole = getattr(transformers, architecture)(configuration)
    linear = {
        name: module
        for name, module in whole.named_modules()
        if isinstance(module, torch.nn.Linear)
        and name not in HEADS
        and (towers or any(part in name for part in OF_DECODER))
    }
    random = torch.Generator().manual_seed(number)
    weights = {}
    for name, module in linear.items():
        for side, shape in (
            ("lora_A", (RANK, module.in_features)),
            ("lora_B", (module.out_features, RANK)),
        ):
            drawn = torch.randn(shape, generator=random) * SPREAD
            weights[f"base_model.model.{name}.{side}.weight"] = drawn
    save_file(weights, directory / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": RANK,
        "lora_alpha": RANK,
        "target_modules": sorted({name.rpartition(".")[2] for name in linear}),
        "bias": "none",
    }
    (directory / "adapter_config.json").write_text(json.dumps(config))
