from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cacheproof.gpu_runner import tiny_models


@pytest.mark.parametrize("name", sorted(tiny_models._MAKERS))
def test_a_model_is_made_once_and_always_the_same(tmp_path: Path, name: str) -> None:
    one = tiny_models.ensure(name, tmp_path / "one")
    stamp = (one / "model.safetensors").stat().st_mtime_ns
    assert tiny_models.ensure(name, tmp_path / "one") == one
    assert (one / "model.safetensors").stat().st_mtime_ns == stamp
    other = tiny_models.ensure(name, tmp_path / "other")
    ours, theirs = (load_file(at / "model.safetensors") for at in (one, other))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert [path.name for path in (tmp_path / "one").iterdir()] == [one.name]


def test_a_model_of_another_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="tiny model 'gpt'; expected one of cohere2_vision, drafter"
    ):
        tiny_models.ensure("gpt", tmp_path)
