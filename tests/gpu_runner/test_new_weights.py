"""Other weights: nothing that the old ones made is read after the resets that belong to them."""

from functools import partial
from pathlib import Path

import pytest
import torch

from cacheproof.differential.generators.engine import engine_trace
from cacheproof.differential.judges.lockstep import compare
from cacheproof.differential.targets.host.faults.runner.weights import RESET_FAULTS, WEIGHT_FAULTS
from cacheproof.differential.traces.base import Item
from cacheproof.differential.traces.engine import Reload
from cacheproof.differential.traces.manager import Add, Reset, Update
from cacheproof.differential.traces.scheduler import ResetPrefix, Schedule
from cacheproof.differential.traces.trace import AnyEvent, Trace
from cacheproof.gpu_runner import tiny_models, tiny_weights
from cacheproof.gpu_runner.models.loading import load
from tests.gpu_runner.alone import answers
from tests.gpu_runner.seeded import (
    Run,
    first_difference,
    fixture_of_seeds,
    met_by_a_whole_runner,
)

SEEDS = range(30)
WHOLE = range(8)
NAMED = {
    "keeps_its_store": "WM-1",
    "keeps_who_runs": "WM-6",
    "keeps_cached_blocks": "WM-6",
    "keeps_the_ledger": "WM-1",
}
STEP = (Schedule(), Update())
trace_of = partial(engine_trace, asked="weights")
run = fixture_of_seeds(trace_of)


def test_a_runner_that_is_whole_breaks_nothing(run: Run) -> None:
    assert {"new weights", "equal prompts decoded"} <= met_by_a_whole_runner(run, WHOLE)


def test_weights_of_a_trace_do_not_stay_for_the_next(run: Run) -> None:
    versions = [
        [event.version for event in trace_of(seed).events if isinstance(event, Reload)][-1:]
        for seed in WHOLE
    ]
    assert {1, 2} & {one for last in versions for one in last}
    for seed in WHOLE:
        assert compare(run(seed).result, run.trace(trace_of(seed)).result) is None


@pytest.mark.parametrize("fault", WEIGHT_FAULTS | RESET_FAULTS)
def test_a_fault_is_seen(run: Run, fault: str) -> None:
    if fault in NAMED:
        assert any(NAMED[fault] in run(seed, fault).broken for seed in SEEDS)
    else:
        field = first_difference(run, fault, SEEDS)
        assert field.startswith(("token", "log prob", "exception"))


PICTURE = (Item("picture 1", 4, 16),)
ASKED = Add("a", 40, PICTURE, max_tokens=4)
AGAIN = Add("b", 40, PICTURE, max_tokens=4)
DECODE = STEP * 4


def asked(*events: AnyEvent) -> Trace:
    """These events for a wide engine."""
    header = engine_trace(4, asked="weights").header
    config = type(header.config)(
        capacity=64,
        compute_budget=64,
        max_num_batched_tokens=160,
        max_num_seqs=4,
        max_model_len=160,
        block_size=32,
        num_blocks=64,
    )
    return Trace(type(header)(header.schema, header.manager, config), events)


def told(run: Run, name: str, *events: AnyEvent) -> list[int]:
    """The tokens that a request is answered."""
    return [token for token, *_ in answers(run.trace(asked(*events)))[name]]


def test_after_all_resets_answers_are_those_of_the_new_weights(run: Run) -> None:
    new = told(run, "b", Reload(1), AGAIN, *DECODE)
    old = told(run, "b", AGAIN, *DECODE)
    resets = ResetPrefix(), Reset()
    assert new != old
    assert told(run, "b", ASKED, *DECODE, *STEP, Reload(1), *resets, AGAIN, *DECODE) == new


def test_without_a_reset_of_prefixes_kv_of_the_old_weights_is_hit(run: Run) -> None:
    ran = run.trace(asked(ASKED, *DECODE, *STEP, Reload(1), Reset(), AGAIN, *DECODE))
    assert {"WM-6", "SC-15"} <= ran.broken


def test_without_a_reset_of_the_encoder_cache_a_worker_misses_the_item(run: Run) -> None:
    ran = run.trace(asked(ASKED, *DECODE, *STEP, Reload(1), ResetPrefix(), AGAIN, *DECODE))
    assert ran.result.records[-1].raised is not None
    assert ran.result.records[-1].raised.type == "EncoderCacheMiss"


def test_who_is_in_flight_goes_on_over_the_old_kv_unless_it_starts_over(run: Run) -> None:
    begun = (ASKED, *STEP, *STEP)
    on = run.trace(asked(*begun, Reload(1), Reset(), *STEP, *STEP))
    over = run.trace(asked(*begun, ResetPrefix(running=True), Reload(1), Reset(), *STEP, *STEP))
    assert {"WM-6", "SC-15"} <= on.broken
    assert not over.broken & {"WM-6", "SC-15"}
    kept, begun_anew = ([token for token, *_ in answers(ran)["a"]] for ran in (on, over))
    assert kept[:2] == begun_anew[:2]
    assert kept[2:] != begun_anew[2:]


@pytest.mark.parametrize("model", ["llava", "qwen2_5_vl", "qwen3_vl"])
def test_a_model_takes_weights_in_place(tmp_path: Path, device: torch.device, model: str) -> None:
    directory = tiny_models.ensure(model, tmp_path)
    other = tiny_weights.ensure(directory, 1, tmp_path)
    changed, made = (
        load(model, one, dtype=torch.float32, device=device) for one in (directory, other)
    )
    weights = dict(changed._whole.named_parameters())
    places = {name: one.data_ptr() for name, one in weights.items()}
    changed.reload(other)
    for name, one in made._whole.named_parameters():
        assert torch.equal(weights[name], one), name
        assert weights[name].data_ptr() == places[name]
