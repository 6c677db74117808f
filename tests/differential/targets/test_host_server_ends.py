"""A server of hosts that still imports is ended at once: it hears of nothing until it has."""

import sys
from pathlib import Path

import pytest

from cacheproof.differential.targets.host_server import FORKS, HostServer, HostServers

pytestmark = pytest.mark.skipif(not FORKS, reason="nothing is forked on this system")
IMPORTING = sys.executable, "-c", "import time; time.sleep(600)"


@pytest.fixture
def servers() -> HostServers:
    """Servers, one of which imports for long."""
    made = HostServers()
    assert made.of(IMPORTING, (), {}, 0) is not None
    return made


def only(servers: HostServers) -> HostServer:
    (server,) = servers.servers.values()
    return server


def test_who_ends_without_waiting_ends_a_server_that_imports(servers: HostServers) -> None:
    server = only(servers)
    servers.abandon()
    assert server.process is not None
    assert server.process.wait() == -9
    assert not Path(server.scratch).exists()
    server.close()


def test_a_server_that_has_imported_is_left_to_see_it_by_itself(servers: HostServers) -> None:
    server = only(servers)
    server.has_imported = True
    servers.abandon()
    assert server.process is not None
    assert server.process.poll() is None
    server.has_imported = False
    servers.close()
