"""Other weights for a tiny model: a directory that differs from the model's in its weights alone.

The rows of every tensor stand as many places further as the version says. So the weights are spread
as before, and what the model answers is another thing.
"""

import hashlib
import inspect
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from safetensors.torch import load_file, save_file

WEIGHTS = "model.safetensors"


def ensure(model: Path, version: int, folder: Path) -> Path:
    """The directory of that version of the model in that directory, made where it is missing; 0:
    the model's own. It is there whole or not at all."""
    if version == 0:
        return model

    def move(draft: Path) -> None:
        weights = load_file(draft / WEIGHTS)
        moved = {name: tensor.roll(version, 0) for name, tensor in weights.items()}
        save_file(moved, draft / WEIGHTS, metadata={"format": "pt"})

    return derived(model, f"weights-{version}", folder, move)


def derived(model: Path, name: str, folder: Path, change: Callable[[Path], None]) -> Path:
    """A copy of the model's directory, under that name, with a change made by the code of that
    module. It is there whole or not at all."""
    source = inspect.getsource(sys.modules[change.__module__])
    digest = hashlib.sha256(source.encode()).hexdigest()[:12]
    directory = folder / f"{model.name}-{name}-{digest}"
    if directory.exists():
        return directory
    with tempfile.TemporaryDirectory(dir=folder, prefix=".making-") as scratch:
        draft = Path(scratch) / "model"
        shutil.copytree(model, draft)
        change(draft)
        try:
            os.rename(draft, directory)
        except OSError:  # somebody else was quicker
            if not directory.exists():
                raise
    return directory
