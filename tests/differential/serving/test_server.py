"""A server is ended with all that it has begun, and soon where nobody wants its answers."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cacheproof.differential.serving import server as servers
from cacheproof.differential.serving.server import Server
from cacheproof.differential.serving.traffic import traffic

DEAF = """\
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(os.path.join(os.environ["TMPDIR"], "socket"), "w").close()
time.sleep(600)
"""


def test_a_server_that_is_interrupted_while_it_starts_is_ended_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-c", DEAF]
    monkeypatch.setattr(servers, "host_command", lambda release: (command, {"PYTHONPATH": ""}))
    release: Any = None
    server = Server(release, "llava", tmp_path, traffic(0, "llava", 0).settings, tmp_path)
    waited: list[float | None] = []
    wait = subprocess.Popen.wait

    def interrupted(self: Server) -> None:
        assert self._process is not None
        while not (tmp_path / "socket").exists() and self._process.poll() is None:
            time.sleep(0.01)
        raise KeyboardInterrupt

    def deaf(process: "subprocess.Popen[bytes]", timeout: float) -> int:
        waited.append(timeout)
        if waited[1:]:
            return wait(process, timeout)
        raise subprocess.TimeoutExpired("server", timeout)

    monkeypatch.setattr(Server, "_wait_until_it_answers", interrupted)
    monkeypatch.setattr(subprocess.Popen, "wait", deaf)
    with pytest.raises(KeyboardInterrupt), server:
        pass
    assert (tmp_path / "socket").exists(), "temporary files lie elsewhere"
    assert waited[0] == servers.END_SECONDS_BROKEN_OFF < servers.END_SECONDS
    assert server._process is not None
    assert server._process.returncode == -9
