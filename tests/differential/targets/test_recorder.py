"""The recorder says of a call what its method was given, however the caller wrote it."""

from types import SimpleNamespace
from typing import Any

import pytest

from cacheproof.differential.targets.host.scheduler.recorder import Recorder
from cacheproof.reference.encoder_cache import EncoderCacheManager

REQUEST = SimpleNamespace(
    request_id="a",
    mm_features=[SimpleNamespace(identifier="x"), SimpleNamespace(identifier="y")],
    get_num_encoder_embeds=lambda number: number + 1,
)


@pytest.fixture
def manager() -> Any:
    return EncoderCacheManager(4)


def test_keywords_are_the_parameters_that_they_name(manager: Any) -> None:
    recorder = Recorder(manager)
    manager.can_allocate(REQUEST, 1, 3, 0)
    manager.can_allocate(
        num_embeds_to_schedule=0, encoder_compute_budget=3, input_id=1, request=REQUEST
    )
    manager.can_allocate(REQUEST, num_embeds_to_schedule=0, input_id=1, encoder_compute_budget=3)
    positional, by_keyword, mixed = recorder.take()
    assert positional[:6] == ("can", "a", 1, 3, 0, True)
    assert by_keyword == mixed == positional


def test_a_method_that_takes_anything_is_given_what_came(manager: Any) -> None:
    granted = manager.can_allocate
    manager.can_allocate = lambda *given, **named: granted(*given, **named)
    recorder = Recorder(manager)
    manager.can_allocate(REQUEST, 1, 3, num_embeds_to_schedule=0)
    (call,) = recorder.take()
    assert call[:6] == ("can", "a", 1, 3, 0, True)


def test_a_call_that_the_method_does_not_take_is_logged_as_it_came(
    manager: Any,
) -> None:
    recorder = Recorder(manager)
    with pytest.raises(TypeError):
        manager.can_allocate(REQUEST, budget=3)
    ((operation, request, number, *_, answer, delta),) = recorder.take()
    assert (operation, request, number) == ("can", "a", 3)
    assert (answer, delta) == ({"raises": "TypeError"}, None)


def test_keywords_bound_by_their_place_are_seen(
    manager: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "cacheproof.differential.targets.host.scheduler.recorder.in_order",
        lambda method, args, kwargs: (*args, *kwargs.values()),
    )
    recorder = Recorder(manager)
    manager.can_allocate(REQUEST, num_embeds_to_schedule=0, input_id=1, encoder_compute_budget=3)
    (call,) = recorder.take()
    assert call[2:5] == (0, 1, 3)
