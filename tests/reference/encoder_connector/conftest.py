"""A Redis server of a test's own."""

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cacheproof.differential.targets.host.connectors.redis_server import RedisServer


@pytest.fixture
def folder() -> Iterator[Path]:
    """One with a short path, which a socket needs."""
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


@pytest.fixture
def server(folder: Path) -> Iterator[RedisServer]:
    with closing(RedisServer(folder)) as made:
        yield made
