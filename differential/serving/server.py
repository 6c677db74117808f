"""A release's OpenAI server with a tiny model, as a process, on this machine alone."""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.provision.releases import InstalledRelease, host_command
from cacheproof.differential.serving.posted import MODEL_NAME
from cacheproof.differential.serving.traffic import FRAMES_PER_SECOND, ServedModel, Settings

START_SECONDS = 240.0
END_SECONDS, END_SECONDS_BROKEN_OFF = 20.0, 2.0
_AS_A_SERVER = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_CPU_OMP_THREADS_BIND": "auto",  # workers of earlier releases know no other word
}
_ENTRY = {
    False: ("-m", "vllm.entrypoints.openai.api_server"),
    True: ("-m", "vllm.entrypoints.cli.main", "serve"),
}
"""Only the second takes several processes of a kind; it imports more."""
_OF_ENGINE = ("(EngineCore", "(Worker", "(VllmWorker")
_METRICS = {
    "preemptions": "vllm:num_preemptions_total",
    "prefix cache hits, tokens": "vllm:prefix_cache_hits_total",
    "processed media found": "vllm:mm_cache_hits_total",
}
"""Metrics of the server that are read, and how vLLM calls each."""
_WRITTEN: Mapping[ServedModel, Mapping[str, str]] = {
    "llava": {"image": "<image>"},
    "qwen2_5_vl": {
        "image": "<vision> <|image_pad|> </vision>",
        "video": "<vision> <|video_pad|> </vision>",
    },
    "qwen3_vl": {
        "image": "<|vision_start|> <|image_pad|> <|vision_end|>",
        "video": "<|vision_start|> <|video_pad|> <|vision_end|>",
    },
    "qwen2_audio": {"audio": "<|audio_bos|> <|AUDIO|> <|audio_eos|>"},
    "whisper": {},  # has no chats
}
"""What the tiny models' tokenizers write for a medium."""


class Server:
    """A release's server. Entering starts it; leaving ends it with all of its processes, and after
    an exception does not wait for what it would still write."""

    def __init__(
        self,
        release: InstalledRelease,
        model: ServedModel,
        directory: Path,
        settings: Settings,
        folder: Path,
        *,
        variables: Mapping[str, str] | None = None,
        search: Sequence[Path] = (),
    ) -> None:
        """A server of a release with the model in `directory`.

        Args:
            folder: its own; for its log, its template and its temporary files.
            variables: of its environment, beside those that a release is run with.
            search: where it looks for modules as well: its web framework, plug-ins.
        """
        self._port = _free_port()
        self._log = folder / "server.log"
        template = folder / "template.jinja"
        template.write_text(_template(model))
        command, environment = host_command(release)
        environment |= _AS_A_SERVER | dict(variables or {}) | {"TMPDIR": str(folder)}
        environment["PYTHONPATH"] = os.pathsep.join((environment["PYTHONPATH"], *map(str, search)))
        self._environment = environment
        if settings.engines > 1:
            cores = (str(number % (os.cpu_count() or 1)) for number in range(settings.engines))
            environment["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(cores)
        self._command = [*command, *_ENTRY[settings.has_several]]
        self._command += ["--host", "127.0.0.1", "--port", str(self._port)]
        self._command += ["--model", str(directory), "--chat-template", str(template)]
        self._command += _options(settings)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        """Raises HarnessError where it does not come up; says what it said last."""
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_until_it_answers()
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, error: type[BaseException] | None = None, *_: object) -> None:
        process = self._process
        assert process is not None
        patience = END_SECONDS if error is None else END_SECONDS_BROKEN_OFF
        for how in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, how)
            with suppress(subprocess.TimeoutExpired):
                process.wait(patience)

    @property
    def is_alive(self) -> bool:
        """Whether the server still answers."""
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=10):
                return True
        except (OSError, urllib.error.URLError):
            return False

    def last_words(self) -> str:
        """What went wrong in the server, as far as its log says: the last error that its engine
        names, or else anybody."""
        lines = self._log.read_text(errors="replace").splitlines()
        errors = [line for line in lines if "Error" in line]
        of_engine = [line for line in errors if line.startswith(_OF_ENGINE)]
        return (of_engine or errors or lines or ["no word"])[-1].strip()[-300:]

    def metrics(self) -> dict[str, int]:
        """What the server's caches have done; empty where it does not answer any more."""
        try:
            with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as response:
                text = response.read().decode()
        except (OSError, urllib.error.URLError):
            return {}
        told = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
        return {
            word: int(sum(float(value) for name, value in told if name.split("{")[0] == metric))
            for word, metric in _METRICS.items()
        }

    def _wait_until_it_answers(self) -> None:
        assert self._process is not None
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise HarnessError(f"a server ended before it answered: {self.last_words()}")
            if self.is_alive:
                return
            time.sleep(0.2)
        raise HarnessError(
            f"a server did not answer within {START_SECONDS:.0f} s: {self.last_words()}"
        )


def _options(settings: Settings) -> list[str]:
    """The arguments with which a server is started."""
    options = {
        "served-model-name": MODEL_NAME,
        "dtype": "float32",
        "seed": 0,
        "block-size": settings.block_size,
        "max-model-len": settings.max_model_len,
        "max-num-seqs": settings.max_num_seqs,
        "max-num-batched-tokens": settings.max_num_batched_tokens,
        "num-gpu-blocks-override": settings.num_blocks,
        "scheduling-policy": "priority" if settings.is_priority else "fcfs",
        "mm-processor-cache-gb": 0 if settings.processor_cache is None else 1,
        "mm-processor-cache-type": settings.processor_cache or "lru",
        "media-io-kwargs": json.dumps({"video": {"fps": FRAMES_PER_SECOND}}),
        "generation-config": "vllm",
    }
    if settings.has_several:
        options |= {
            "api-server-count": settings.api_servers,
            "data-parallel-size": settings.engines,
        }
    if settings.task != "generate":
        convert = "classify" if settings.task == "classify" else "embed"
        options |= {"runner": "pooling", "convert": convert}
    flags = ["enforce-eager", "disable-uvicorn-access-log"]
    flags.append("enable-prefix-caching" if settings.prefix_caching else "no-enable-prefix-caching")
    if settings.whole_items:
        flags.append("disable-chunked-mm-input")
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return given + [f"--{name}" for name in flags]


def _template(model: ServedModel) -> str:
    """A chat's messages as one text: each part's words, or what the model has for a medium."""
    cases = "".join(
        f"{{% elif part.type == '{modality}' %}}{written} "
        for modality, written in _WRITTEN[model].items()
    )
    return (
        "{% for message in messages %}{% for part in message.content %}"
        "{% if part.type == 'text' %}{{ part.text }} " + cases + "{% endif %}"
        "{% endfor %}{% endfor %}"
    )


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port
