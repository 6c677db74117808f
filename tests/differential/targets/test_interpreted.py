"""What makes Triton's interpreter faster changes nothing that it computes."""

import json
import subprocess
from pathlib import Path

import msgspec
import pytest

from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.provision.cache import Cache
from cacheproof.differential.provision.releases import ENGINE, host_command, install
from cacheproof.differential.targets.both_runners import EngineTarget, settings_of_second
from cacheproof.differential.targets.host.engine.limits import MODELS_SETTING
from cacheproof.differential.targets.process import HOST_FOLDER
from cacheproof.differential.targets.resolve import resolve
from cacheproof.differential.traces.trace import Trace
from cacheproof.reference.releases import NEWEST

MODULE = HOST_FOLDER / "engine" / "interpreted.py"
SCRIPT = Path(__file__).parent / "interpreted_launches.py"
Launch = tuple[str, tuple[int, ...], str]
"""A kernel, its grid, and a digest of what it left."""
DRAFTED = ("LLaVA with steps ahead", 2)
TRACES = (DRAFTED, ("Qwen2.5-VL with steps ahead", 4), ("Cohere2Vision with steps ahead", 1))
"""With a drafter and two steps in flight, with prompt lookup, with windows."""


def trace_of(lane: str, seed: int) -> Trace:
    return LANES[lane].under("second").trace(seed, NEWEST)


def launches(traces: list[Trace], *options: str, module: Path = MODULE) -> list[Launch]:
    """What each launch left, where Triton's interpreter is prepared by that module."""
    with_triton = resolve(f"engine@{NEWEST}", report=print)
    assert isinstance(with_triton, EngineTarget)
    with_triton.provide(print)
    command, environment = host_command(install(NEWEST, report=print, kind=ENGINE))
    environment |= settings_of_second(environment["PYTHONPATH"])
    environment |= {MODELS_SETTING: str(Cache.locate().models)}
    done = subprocess.run(
        [*command, str(SCRIPT), str(HOST_FOLDER), str(module), *options],
        env=environment,
        input=msgspec.json.encode(traces),
        capture_output=True,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.decode()[-800:])
    return [
        (name, tuple(grid), said)
        for name, grid, said in map(json.loads, done.stdout.split(b"\n")[:-1])
    ]


@pytest.fixture(scope="module")
def plain() -> list[Launch]:
    """What Triton's interpreter leaves as it is."""
    return launches([trace_of(*one) for one in TRACES], "--plain")


@pytest.mark.full
def test_every_launch_leaves_what_it_left_before(plain: list[Launch]) -> None:
    assert launches([trace_of(*one) for one in TRACES]) == plain
    assert len({name for name, *_ in plain}) >= 15


@pytest.mark.full
@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("key = element_ty.name,", "key = element_ty.is_ptr(),", "boolean scalar"),
        ("found[name] = find(name", 'found[name] = find(name.lstrip("*")', "Unsupported ptr type"),
        ("*map(range, grid)", "*(range(max(1, one - 1)) for one in grid)", None),
        ('self.dtype = facts["_shape"]', 'self.dtype = *facts["_shape"][:2], None', "NoneType"),
        ("self.attr = data, dtype", "self.attr = abs(data), dtype", None),
    ],
)
def test_an_error_in_it_is_seen(
    right: str, wrong: str, said: str | None, plain: list[Launch], tmp_path: Path
) -> None:
    source = MODULE.read_text()
    assert source.count(right) == 1, "the place is not what it was"
    module = tmp_path / MODULE.name
    module.write_text(source.replace(right, wrong))
    if said is not None:
        with pytest.raises(RuntimeError, match=said):
            launches([trace_of(*DRAFTED)], module=module)
        return
    seen = launches([trace_of(*DRAFTED)], module=module)
    assert seen
    assert seen != plain[: len(seen)]
