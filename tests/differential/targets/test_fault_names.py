"""Faults that may be planted in one target have a name each: of two, one would never be planted."""

import pytest

from cacheproof.differential.targets.host.by_name import by_name, joined
from cacheproof.differential.targets.host.engine import runner
from cacheproof.differential.targets.host.faults.engine.changes import CHANGES
from cacheproof.differential.targets.host.faults.engine.engine import ENGINE_FAULTS
from cacheproof.differential.targets.host.faults.manager import FAULTS
from cacheproof.differential.targets.host.faults.scheduler import SCHEDULER_FAULTS


def test_two_faults_of_one_name_are_not_joined() -> None:
    def leaks() -> None:
        """A fault."""

    table = by_name(leaks)

    def leaks() -> None:  # type: ignore[no-redef]
        """Another."""

    assert joined(table, dict(table)) == table
    with pytest.raises(ValueError, match="two faults are called leaks"):
        joined(table, by_name(leaks))


def test_what_a_runner_and_the_scheduler_before_it_may_have_wrong_has_a_name_each() -> None:
    of_a_runner = joined(runner._FAULTS, runner._FAULTS_OF_KEYS, runner.RESET_FAULTS)
    joined(of_a_runner, SCHEDULER_FAULTS, FAULTS)


def test_what_an_engine_may_have_wrong_has_a_name_each() -> None:
    joined(CHANGES, ENGINE_FAULTS, SCHEDULER_FAULTS, FAULTS)
