"""These tests need torch and transformers: `tests/test_gpu_runner.py` runs them where they are."""

from importlib.util import find_spec
from pathlib import Path

import pytest

collect_ignore_glob = [] if find_spec("torch") and find_spec("transformers") else ["test_*.py"]


@pytest.fixture(scope="session")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the tiny LLaVA."""
    from cacheproof.gpu_runner import tiny_models

    return tiny_models.ensure("llava", tmp_path_factory.mktemp("models"))
