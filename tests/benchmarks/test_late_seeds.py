"""The seeds that show a planted fault late are those of the releases as they are."""

from types import ModuleType

import pytest


@pytest.mark.full
def test_late_seeds_are_as_their_command_writes_them(script: ModuleType) -> None:
    assert script.as_toml(script.all_late()) == script.LATE_SEEDS.read_text()
