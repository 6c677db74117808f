"""The releases that tests of real ones are run on."""

from typing import Any

import pytest

from cacheproof.reference.releases import NEWEST


def newest_and(*older: str) -> list[Any]:
    """The newest release always, older ones where all tests are run."""
    return [NEWEST, *(pytest.param(version, marks=pytest.mark.full) for version in older)]
