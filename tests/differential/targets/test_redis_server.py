"""A server of one's own ends with who has started it."""

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
import redis

from cacheproof.differential.targets.host.connectors import redis_server
from cacheproof.differential.targets.host.connectors.redis_server import RedisServer

STARTS = """
import sys
from pathlib import Path
from cacheproof.differential.targets.host.connectors.redis_server import RedisServer
server = RedisServer(Path(sys.argv[1]))
print(server._process.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not redis_server.is_there(), reason="no redis-server on PATH")
def test_a_server_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTS, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    server = os.pidfd_open(int(starter.stdout.readline()))
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    try:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            signal.pidfd_send_signal(server, 0)
    except ProcessLookupError:
        return
    finally:
        os.close(server)
        starter.stdin.close()
        starter.stdout.close()
    raise AssertionError("the server runs on")


@pytest.mark.skipif(not redis_server.is_there(), reason="no redis-server on PATH")
def test_a_folder_may_have_a_longer_path_than_a_socket(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 200)
    folder.mkdir()
    with closing(RedisServer(folder)) as server, redis.Redis.from_url(server.url) as client:
        assert client.set("a", "b")
        server.stop()
        server.start()
        assert client.get("a") == b"b"
