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
from pathlib import Path

from safetensors.torch import load_file, save_file

WEIGHTS = "model.safetensors"


def ensure(model: Path, version: int, folder: Path) -> Path:
    """The directory of that version of the model in that directory, made where it is missing; 0:
    the model's own. It is there whole or not at all."""
    if version == 0:
        return model
    digest = hashlib.sha256(inspect.getsource(sys.modules[__name__]).encode()).hexdigest()[:12]
    directory = folder / f"{model.name}-weights-{version}-{digest}"
    if directory.exists():
        return directory
    with tempfile.TemporaryDirectory(dir=folder, prefix=".making-") as scratch:
        draft = Path(scratch) / "model"
        shutil.copytree(model, draft)
        weights = load_file(draft / WEIGHTS)
        moved = {name: tensor.roll(version, 0) for name, tensor in weights.items()}
        save_file(moved, draft / WEIGHTS, metadata={"format": "pt"})
        try:
            os.rename(draft, directory)
        except OSError:  # somebody else was quicker
            if not directory.exists():
                raise
    return directory
