"""These tests need torch and transformers: `tests/test_gpu_runner.py` runs them where they are."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import torch

collect_ignore_glob = [] if find_spec("torch") and find_spec("transformers") else ["test_*.py"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", help="of torch, where the runner's models are")


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> "torch.device":
    """Where the runner's models are; what they are compared to stays on the CPU."""
    import torch

    torch.backends.cudnn.allow_tf32 = False  # float32 is meant; convolutions round it otherwise
    return torch.device(request.config.getoption("--device"))


@pytest.fixture(scope="session")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the tiny LLaVA."""
    from cacheproof.gpu_runner import tiny_models

    return tiny_models.ensure("llava", tmp_path_factory.mktemp("models"))
