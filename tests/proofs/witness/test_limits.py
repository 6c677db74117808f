"""A limit of CPU time ends what does not end, and survives a limit inside it."""

import signal

import pytest

from cacheproof.proofs.witness.limits import Endless, limited


def _spin() -> None:
    while True:
        pass


def test_what_does_not_end_is_ended() -> None:
    with pytest.raises(Endless), limited(0.05):
        _spin()
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def _within_limits() -> None:
    with pytest.raises(Endless), limited(0.05):
        _spin()
    with limited(5.0):
        pass
    left, _ = signal.getitimer(signal.ITIMER_VIRTUAL)
    assert 0.0 < left < 1.0
    _spin()


def test_a_limit_inside_leaves_the_one_around_it() -> None:
    with pytest.raises(Endless), limited(0.2):
        _within_limits()


def test_a_limit_begins_anew() -> None:
    with limited(5.0) as begin_anew:
        signal.setitimer(signal.ITIMER_VIRTUAL, 1.0)
        begin_anew()
        assert signal.getitimer(signal.ITIMER_VIRTUAL)[0] > 4.0
