"""What the runner records of traces, with faults planted or none."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import msgspec
import pytest
import torch

from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.targets.host.engine.limits import MODELS_SETTING
from cacheproof.differential.targets.host.engine.runner import RunnerHost
from cacheproof.differential.targets.host.managers.media_hash_alone import REFERENCE_SETTING
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.semantics import Semantics

Run = Callable[[int, str | None], TraceResult]
"""The records of a seed's trace, with a fault or none."""


@contextmanager
def untagged(models: Path, device: torch.device, make: Callable[[int], Trace]) -> Iterator[Run]:
    """A runner without tags for traces that `make` makes; its tiny models lie in `models`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MODELS_SETTING, str(models))
        patch.setenv(REFERENCE_SETTING, json.dumps(Semantics.ideal().flags))
        release = RunnerHost(tagged=False, device=str(device))

        @cache
        def run(seed: int, fault: str | None) -> TraceResult:
            asked = {"traces": [msgspec.to_builtins(make(seed))], "fault": fault}
            (answer,) = release.run(asked)
            result = msgspec.json.decode(msgspec.json.encode(answer), type=TraceResult)
            assert result.illegal is None
            return result

        yield run


def is_seen(run: Run, seed: int, fault: str) -> bool:
    """Whether a fault changes a token or a log probability of that seed's trace."""
    difference = compare(run(seed, None), run(seed, fault))
    return difference is not None and difference.field.startswith(("token", "log prob"))
