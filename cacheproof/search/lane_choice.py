"""Which lanes a target can run, before it is there and once it is, and why it can run none."""

from collections.abc import Iterable, Sequence

from cacheproof.differential.errors import InputError
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.lanes.lane import Lane
from cacheproof.differential.provision.versions import FIRST_WITH_SCHEDULER, runs_hasher_alone
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.both_runners import EngineTarget
from cacheproof.differential.targets.named import NamedTarget, named
from cacheproof.differential.targets.process import HostTarget
from cacheproof.output.console import CommandOutput

EITHER = NamedTarget | Target
_RUN_BY = {"engine": "engine@VERSION", "encoder_connector": "vllm@VERSION or lmcache@VERSION"}


def require_lanes(lanes: Sequence[Lane], *texts: str) -> None:
    """See whether each text names a target, and whether all may have one of these lanes in common:
    before anything of them is fetched, and as far as their names say it.

    Raises:
        InputError: one names nothing that can be run, or they have none of the lanes.
    """
    several = [named(text) for text in texts]
    offered = [_offered(lanes, one) for one in several]
    for one, own in zip(several, offered, strict=True):
        if not own:
            raise _nothing_to_run(lanes, one)
    _in_common(several, offered)


def lanes_for(lanes: Sequence[Lane], target: Target, output: CommandOutput) -> list[Lane]:
    """The lanes that a target can run on this machine; a line says which it lacks a program for.
    The reference has no scheduler of its own; a plug-in is one kind of manager; of a release before
    0.10 the media hasher runs alone.

    Raises:
        InputError: none of them, or none under their model runner.
        SetupError: what their model runner needs cannot be fetched.
    """
    chosen = _offered(lanes, target)
    if not chosen:
        raise _nothing_to_run(lanes, target)
    if isinstance(target, EngineTarget) and any(lane.runner != "first" for lane in chosen):
        if target.has_runner("second"):
            target.provide(output.say)
        elif any(lane.runner == "second" for lane in chosen):
            raise InputError(
                f"{target.name} has no second model runner for CPUs; expected --runner first"
            )
    here = [lane for lane in chosen if lane.lacks is None]
    if not here:
        raise InputError(f"target {target.name} needs {chosen[0].lacks}, which is not on PATH")
    for lane in chosen:
        if lane.lacks is not None:
            output.say(f"{target.name}: not searched: {lane.name} (no {lane.lacks} on PATH)")
    return here


def left_out(lanes: Sequence[Lane], target: Target) -> dict[str, str]:
    """The lanes that a target could run and this machine cannot, with the program that each
    lacks."""
    return {lane.name: lane.lacks for lane in _offered(lanes, target) if lane.lacks is not None}


def lanes_for_both(
    lanes: Sequence[Lane], one: Target, other: Target, output: CommandOutput
) -> tuple[list[Lane], list[Lane]]:
    """The lanes that two targets can run, and those that one of them alone can.

    Raises:
        InputError: there is none that both can.
    """
    several = lanes_for(lanes, one, output), lanes_for(lanes, other, output)
    common = _in_common((one, other), several)
    return common, [
        lane for lane in lanes if any(lane in own for own in several) and lane not in common
    ]


def depths_of(target: EITHER) -> str:
    """The depths that a target runs, to be named in a refusal."""
    return ", ".join(dict.fromkeys(lane.depth for lane in _offered(LANES.values(), target)))


def _offered(lanes: Iterable[Lane], target: EITHER) -> list[Lane]:
    offered = [
        lane
        for lane in lanes
        if lane.is_offered_by(target.model, target.projects) and target.runs_depth(lane.depth)
    ]
    if isinstance(target, HostTarget) and target.plug_in_kind is not None:
        return [lane for lane in offered if _drives(lane, target.plug_in_kind)]
    return offered


def _in_common(targets: Sequence[EITHER], offered: Sequence[Sequence[Lane]]) -> list[Lane]:
    """The lanes that all offer. Raises InputError where there is none."""
    common = [lane for lane in offered[0] if all(lane in own for own in offered)]
    if not common:
        raise InputError(
            f"{' and '.join(one.name for one in targets)} have no lane in common; expected two "
            "targets of one kind"
        )
    return common


def _drives(lane: Lane, plug_in_kind: str) -> bool:
    """Whether a lane drives such a plug-in; one of a KV cache by a scheduler alone."""
    if plug_in_kind == "kv_cache":
        return lane.depth == "scheduler"
    return lane.manager == plug_in_kind


def _nothing_to_run(lanes: Sequence[Lane], target: EITHER) -> InputError:
    asked = dict.fromkeys(lane.depth for lane in lanes)
    has = dict.fromkeys(lane.depth for lane in _offered(LANES.values(), target))
    why = dict.fromkeys(_why_not(lane, target) for lane in lanes)
    return InputError(
        f"target {target.name} has nothing to run at depth {', '.join(asked)}: "
        f"{next(iter(why))}; expected {_one_of(list(has))}, or another target"
    )


def _one_of(depths: list[str]) -> str:
    return f"depth {depths[0]}" if len(depths) == 1 else f"one of depths {', '.join(depths)}"


def _why_not(lane: Lane, target: EITHER) -> str:
    """Why a target does not run a lane."""
    if lane.project not in target.projects:
        return f"only {lane.project} has it"
    if (needed := lane.needed_instead_of(target.model)) is not None:
        return f"it needs {needed}"
    if isinstance(target, HostTarget) and target.plug_in_kind is not None:
        return f"a plug-in of the kind {target.plug_in_kind} is not part of it"
    if lane.depth in _RUN_BY:
        return f"{_RUN_BY[lane.depth]} runs it"
    if target.model is not None and runs_hasher_alone(target.model):
        return f"it needs vllm@{FIRST_WITH_SCHEDULER} or later"
    return "vllm@VERSION runs it"
