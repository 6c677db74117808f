"""What each prompt of a trace is answered alone, beside what it was answered in the trace."""

import msgspec

from cacheproof.differential.judges.outputs import is_tie
from cacheproof.differential.traces.manager import Add, Update
from cacheproof.differential.traces.scheduler import Schedule
from cacheproof.differential.traces.trace import Trace
from tests.gpu_runner.judged import JudgedRunner, Ran


def compared_alone(trace: Trace, ran: Ran, runner: JudgedRunner) -> int:
    """How many tokens of the trace were compared with those of each prompt alone; all are equal, up
    to one that rounding may decide."""
    compared = 0
    told = answers(ran)
    for event in trace.events:
        if not isinstance(event, Add) or event.request not in told:
            continue
        wanted = answers(runner(alone(trace, event), tagged=False))[event.request]
        for mine, their in zip(told[event.request], wanted, strict=False):
            if is_tie(mine) or is_tie(their):
                break
            assert mine[0] == their[0], (trace.header.seed, event.request)
            compared += 1
    return compared


def answers(ran: Ran) -> dict[str, list[list[float]]]:
    """What each request was answered."""
    told: dict[str, list[list[float]]] = {}
    for record in ran.result.records:
        if isinstance(record.outcome, dict):
            for name, tokens in record.outcome.get("outputs", {}).items():
                told.setdefault(name, []).extend(tokens)
    return told


def alone(trace: Trace, added: Add) -> Trace:
    """The trace of one of its requests, alone, a step at a time, in a wide engine."""
    config = msgspec.structs.replace(
        trace.header.config,
        async_scheduling=False,
        num_speculative_tokens=0,
        drafter=False,
        num_blocks=64,
        capacity=4096,
        compute_budget=4096,
        max_num_batched_tokens=512,
        long_prefill_token_threshold=0,
    )
    header = msgspec.structs.replace(trace.header, config=config)
    return Trace(header, (added, *(Schedule(), Update()) * (added.max_tokens + 4)))
