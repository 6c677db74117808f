"""The runner on engine-depth traces, with a fault or none, judged by the contracts."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
import torch

from cacheproof.differential.judges.examination import judge_of
from cacheproof.differential.judges.rare_states import Reachability
from cacheproof.differential.targets.host.engine.limits import MODELS_SETTING
from cacheproof.differential.targets.host.engine.runner import RunnerHost
from cacheproof.differential.targets.host.managers.media_hash_alone import REFERENCE_SETTING
from cacheproof.differential.targets.reference import protocol_of
from cacheproof.differential.traces.records import TraceResult
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.semantics import Semantics

IDEAL = Semantics.ideal()


class Ran(NamedTuple):
    """What became of a trace: the contracts it broke, its records, the rare states it met."""

    broken: set[str]
    result: TraceResult
    met: set[str]


class JudgedRunner:
    """The runner, its models made in a folder; `patch` may change the environment."""

    def __init__(self, models: Path, device: torch.device, patch: pytest.MonkeyPatch) -> None:
        self._device, self._patch = device, patch
        patch.setenv(MODELS_SETTING, str(models))
        self._release = cache(self._made)

    def _made(self, flags: str, tagged: bool) -> RunnerHost:
        self._patch.setenv(REFERENCE_SETTING, flags)
        return RunnerHost(tagged=tagged, device=str(self._device))

    def __call__(
        self,
        trace: Trace,
        fault: str | None = None,
        *,
        tagged: bool = True,
        flags: Mapping[str, bool] | None = None,
    ) -> Ran:
        """Run a trace under the ideal semantics, changed in these flags."""
        release = self._release(json.dumps(IDEAL.changed(flags or {}).flags), tagged)
        asked = {"traces": [msgspec.to_builtins(trace)], "fault": fault}
        (answer,) = release.run(asked)
        result = msgspec.json.decode(msgspec.json.encode(answer), type=TraceResult)
        assert result.illegal is None
        reach = Reachability()
        judge = judge_of(trace, None, protocol_of(IDEAL), result.capacity, reach)
        for number, record in enumerate(result.records):
            judge.judge(number, trace.events[number], record)
        return Ran(set(judge.violations), result, set(reach.met))


@contextmanager
def judged(models: Path, device: torch.device) -> Iterator[JudgedRunner]:
    """A runner for some tests."""
    with pytest.MonkeyPatch.context() as patch:
        yield JudgedRunner(models, device, patch)
