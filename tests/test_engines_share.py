"""Real engines that share encoder outputs through the connector: their tokens are those of one
engine alone."""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cacheproof.differential.provision import releases
from cacheproof.differential.targets.host.connectors import redis_server
from cacheproof.differential.targets.host.connectors.redis_server import RedisServer

SCRIPTS = Path(__file__).parent / "gpu_runner"
RELEASE = "0.32.0"
PICTURES = [f"picture {number}" for number in range(8)]
PROMPTS = [
    [[one] for one in PICTURES],
    [[PICTURES[0], PICTURES[1]], [PICTURES[2], PICTURES[0], PICTURES[3]], [PICTURES[4]] * 2],
    [[one, other] for one, other in pairwise(PICTURES)],
]


class Engine:
    """A process with an engine of the release."""

    def __init__(self, job: dict[str, Any]) -> None:
        command, environment = releases.host_command(
            releases.install(RELEASE, report=print, kind=releases.WHEEL)
        )
        self._process = subprocess.Popen(
            [command[0], str(SCRIPTS / "engine_with_store.py"), json.dumps(job)],
            env=environment | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._line("ready")

    def answer(self, prompts: list[list[str]]) -> tuple[list[list[int]], int]:
        """The tokens of each, and how many items were encoded for them."""
        self.ask(prompts)
        answer = json.loads(self._line("{"))
        return answer["tokens"], answer["encoded"]

    def ask(self, prompts: list[list[str]]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(prompts) + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _line(self, begins: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(begins):
                return line
        raise AssertionError(f"the engine ended with {self._process.wait()}")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def engine(models: Path) -> Iterator[Callable[..., Engine]]:
    """Starts engines; they end with the module."""
    with ExitStack() as stack:

        def start(store: dict[str, Any] | None, **job: Any) -> Engine:
            made = Engine({"models": str(models), "store": store, **job})
            stack.callback(made.close)
            return made

        yield start


@pytest.fixture(scope="module")
def alone(engine: Callable[..., Engine]) -> list[list[list[int]]]:
    """What an engine without a store answers."""
    one = engine(None)
    return [one.answer(prompts)[0] for prompts in PROMPTS]


@pytest.fixture
def server() -> Iterator[RedisServer]:
    if not redis_server.is_there():
        pytest.skip("no redis-server on PATH; install Debian's package of that name")
    with tempfile.TemporaryDirectory() as folder, closing(RedisServer(Path(folder))) as made:
        yield made


@pytest.fixture(params=["disk", "memory", "both", "server", "all"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Settings of each tier; of several, the fastest one has room for two items alone."""
    if request.param in ("server", "all"):
        url = request.getfixturevalue("server").url
    shm = Path("/dev/shm") / f"cacheproof-{os.getpid()}-{tmp_path.name}"
    disk = {"disk_path": str(tmp_path / "disk"), "disk_bytes": "1MiB"}
    memory = {"cpu_path": str(shm), "cpu_bytes": "1MiB"}
    small = {"cpu_path": str(shm), "cpu_bytes": "12kB"}
    match request.param:
        case "disk":
            yield disk
        case "memory":
            yield memory
        case "both":
            yield small | disk
        case "server":
            yield {"remote_url": url}
        case "all":
            file = tmp_path / "store.yaml"
            file.write_text("".join(f"{name}: {value}\n" for name, value in (small | disk).items()))
            yield {"config_file": str(file), "remote_url": url}
    subprocess.run(["rm", "-rf", str(shm)], check=True)


@pytest.mark.full
def test_tokens_are_those_of_one_engine_alone_and_nothing_is_encoded_twice(
    engine: Callable[..., Engine], alone: list[list[list[int]]], store: dict[str, Any]
) -> None:
    first, second = engine(store), engine(store)
    encoded = [0, 0]
    for turn, (prompts, expected) in enumerate(zip(PROMPTS, alone, strict=True)):
        for place, one in enumerate((first, second) if turn % 2 else (second, first)):
            tokens, count = one.answer(prompts)
            assert tokens == expected
            encoded[place] += count
    assert encoded == [len(PICTURES), 0]


@pytest.mark.full
def test_an_engine_that_is_killed_takes_nothing_with_it(
    engine: Callable[..., Engine], alone: list[list[list[int]]], tmp_path: Path
) -> None:
    store = {"disk_path": str(tmp_path / "disk"), "disk_bytes": "1MiB"}
    first, second = engine(store), engine(store)
    first.ask(PROMPTS[0])
    first.kill()
    for prompts, expected in zip(PROMPTS, alone, strict=True):
        assert second.answer(prompts)[0] == expected
    again = engine(store)
    assert again.answer(PROMPTS[2]) == (alone[2], 0)
    (tmp_path / "disk").rename(tmp_path / "gone")
    assert again.answer(PROMPTS[1])[0] == alone[1]


@pytest.mark.full
def test_engines_go_on_without_their_server(
    engine: Callable[..., Engine], alone: list[list[list[int]]], server: RedisServer
) -> None:
    store = {"remote_url": server.url, "remote_timeout": 1, "remote_pause": 1}
    first, second = engine(store), engine(store)
    assert first.answer(PROMPTS[0]) == (alone[0], len(PICTURES))
    server.kill()
    assert second.answer(PROMPTS[0]) == (alone[0], len(PICTURES))
    server.start()
    assert second.answer(PROMPTS[1])[0] == alone[1]
    server.hang()
    for one in (first, second):
        assert one.answer(PROMPTS[2])[0] == alone[2]


@pytest.mark.full
def test_a_model_of_other_weights_is_served_none_of_these(
    engine: Callable[..., Engine], alone: list[list[list[int]]], tmp_path: Path
) -> None:
    store = {"disk_path": str(tmp_path / "disk"), "disk_bytes": "1MiB"}
    assert engine(store).answer(PROMPTS[0]) == (alone[0], len(PICTURES))
    expected, encoded = engine(None, weights_seed=1).answer(PROMPTS[0])
    assert expected != alone[0]
    assert engine(store, weights_seed=1).answer(PROMPTS[0]) == (expected, encoded)


@pytest.mark.full
def test_rows_of_other_weights_are_seen_in_the_tokens(
    engine: Callable[..., Engine], tmp_path: Path
) -> None:
    """What the test before this one would miss, it could not claim: keys without the model."""
    store = {"disk_path": str(tmp_path / "disk"), "disk_bytes": "1MiB"}
    first = engine(store, forgets="model").answer(PROMPTS[0])
    expected, _ = engine(None, weights_seed=1).answer(PROMPTS[0])
    served, encoded = engine(store, weights_seed=1, forgets="model").answer(PROMPTS[0])
    assert first[1] == len(PICTURES)
    assert encoded == 0
    assert served != expected
