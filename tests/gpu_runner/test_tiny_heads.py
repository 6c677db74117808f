"""A head that tells classes apart: what a server is given, and what the runner makes of it."""

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cacheproof.gpu_runner import tiny_heads, tiny_models


@pytest.mark.parametrize("name", ["llava", "qwen2_5_vl", "qwen2_audio"])
def test_a_model_with_a_head_has_that_beside_its_weights(tmp_path: Path, name: str) -> None:
    model = tiny_models.ensure(name, tmp_path)
    classifies = tiny_heads.ensure(model)
    assert tiny_heads.ensure(model) == classifies
    before, after = (load_file(at / "model.safetensors") for at in (model, classifies))
    head = after.pop(tiny_heads.HEAD)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    config = json.loads((classifies / "config.json").read_text())
    assert head.shape == (tiny_heads.CLASSES, config["text_config"]["hidden_size"])
    assert len(config["id2label"]) == len(config["text_config"]["label2id"]) == tiny_heads.CLASSES


def test_probabilities_are_those_of_the_head(tmp_path: Path) -> None:
    classifies = tiny_heads.ensure(tiny_models.ensure("llava", tmp_path))
    head = load_file(classifies / "model.safetensors")[tiny_heads.HEAD]
    told = tiny_heads.probabilities(classifies, head[1])
    assert sum(told) == pytest.approx(1)
    assert max(told) == told[1]
    for row, one in zip(head, told, strict=True):
        assert math.log(told[1] / one) == pytest.approx(float((head[1] - row) @ head[1]), abs=1e-5)
