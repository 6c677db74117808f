"""A head that tells classes apart, beside a tiny model's weights, and what it says."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from cacheproof.gpu_runner.tiny_weights import WEIGHTS, derived

CLASSES = 3
HEAD = "language_model.score.weight"
"""What releases call it that keep it in the language model."""
_DEVIATION = 0.1
"""Of its numbers: so that no class is all but certain."""


def ensure(model: Path) -> Path:
    """The directory of that model with a head, beside it; made where it is missing."""
    return derived(model, "classes", model.parent, _add_head)


def probabilities(directory: Path, end: torch.Tensor) -> list[float]:
    """What the head in that directory makes of a hidden state, of shape [hidden]: the probability
    of each class."""
    head = load_file(directory / WEIGHTS)[HEAD]
    told: list[float] = (head @ end).softmax(0).tolist()
    return told


def _add_head(draft: Path) -> None:
    weights = load_file(draft / WEIGHTS)
    config = json.loads((draft / "config.json").read_text())
    shape = CLASSES, config["text_config"]["hidden_size"]
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    save_file({**weights, HEAD: _DEVIATION * drawn}, draft / WEIGHTS, metadata={"format": "pt"})
    labels = {str(number): f"class {number}" for number in range(CLASSES)}
    for where in (config, config["text_config"]):
        where |= {"id2label": labels, "label2id": {label: int(at) for at, label in labels.items()}}
    (draft / "config.json").write_text(json.dumps(config))
