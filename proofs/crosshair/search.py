"""Explores one condition with CrossHair: every path, or the first on which an assertion fails.

CrossHair's own loop over paths is used directly. Its front end for functions with assertions says
the same, and watches every call for contracts of its own besides, which takes most of the time.
"""

import inspect
from collections.abc import Callable

import msgspec
from crosshair.core import (
    CallAnalysis,
    ExceptionFilter,
    PathOutcome,
    deep_realize,
    explore_loop,
    gen_args,
)
from crosshair.core_and_libs import AnalysisKind, ResumedTracing
from crosshair.options import DEFAULT_OPTIONS
from crosshair.statespace import RootNode, StateSpace, VerificationStatus

from cacheproof.proofs.crosshair.job import Arguments, ConditionAnswer, Word

NO_LIMIT = float("inf")


def explore(condition: Callable[..., None], paths_max: int) -> ConditionAnswer:
    """What CrossHair says of a condition. No clock has a say in it."""
    signature = inspect.signature(condition)
    raised: list[tuple[BaseException, Arguments]] = []

    def run_path(space: StateSpace) -> PathOutcome:
        arguments = gen_args(signature)
        with ExceptionFilter() as caught, ResumedTracing():
            condition(*arguments.args)
        if caught.ignore:
            return PathOutcome(caught.analysis)
        # a path that leaves the preconditions is no case of the condition
        if caught.user_exc is None or _is_precondition(caught.user_exc[0], condition):
            return PathOutcome(CallAnalysis(VerificationStatus.CONFIRMED))
        error = caught.user_exc[0]
        with ResumedTracing():
            space.detach_path(error)
        raised.append((error, dict(deep_realize(arguments).arguments)))
        return PathOutcome(CallAnalysis(VerificationStatus.REFUTED), breakout=True)

    options = DEFAULT_OPTIONS.overlay(
        analysis_kind=(AnalysisKind.asserts,),
        per_condition_timeout=NO_LIMIT,
        per_path_timeout=NO_LIMIT,
        max_iterations=paths_max,
        max_uninteresting_iterations=0,  # none: go on however little is new
    )
    result = explore_loop(options, RootNode(), run_path)
    paths = result.iterations
    if raised:
        error, values = raised[0]
        why = f"{type(error).__name__}: {error}"
        return ConditionAnswer(Word.REFUTED, paths, why, msgspec.to_builtins(values))
    analysis = result.top_analysis
    if not result.exhausted:
        return ConditionAnswer(Word.UNKNOWN, paths, "some paths were not explored")
    if analysis is None or analysis.verification_status is not VerificationStatus.CONFIRMED:
        return ConditionAnswer(Word.UNKNOWN, paths, "the solver gave up on a path")
    return ConditionAnswer(Word.CONFIRMED, paths)


def _is_precondition(error: BaseException, condition: Callable[..., None]) -> bool:
    """Whether an assertion of the condition itself failed: its preconditions stand in it, and
    everything else that raises is called by it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return (
        isinstance(error, AssertionError)
        and trace is not None
        and trace.tb_frame.f_code is condition.__code__
    )
