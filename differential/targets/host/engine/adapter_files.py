"""The adapters of requests whose model is executed: what a path stands for, as with media."""

import re
from pathlib import Path

from ..package import ours
from ..protocol import Event, Illegal

_PATH = re.compile(r"adapter (\d{1,2})")


def adapter_directory(model: Path, asked: Event, config: Event) -> Path:
    """Where the adapter lies that a request asks for, of the model in that directory: `adapter 3`
    is one of random weights. Raises Illegal for what is called otherwise, and for an engine without
    adapters."""
    if config["max_loras"] == 0:
        raise Illegal(f"an engine without adapters is asked for {asked['lora_path']}")
    match = _PATH.fullmatch(asked["lora_path"])
    if match is None:
        raise Illegal(f"no adapter is called {asked['lora_path']}")
    directory: Path = ours("gpu_runner.tiny_adapters").ensure(
        model, int(match[1]), model.parent, towers=config["tower_adapters"]
    )
    return directory
