"""vLLM's own tests of its core, with the contracts attached: what they find, and what that costs.

    .venv/bin/python benchmarks/own_tests.py > docs/evidence/own-tests.md

The tests come out of the release's source archive, which is downloaded. They run in the release's
interpreter, without vLLM's conftest.py and without a network: where one asks for the configuration
of a model, a small one of our own stands in its place. Tests that ask for more fail with and
without the plug-in alike; what the plug-in changes is counted.

Then faults of differential/targets/host/ are planted into the classes of managers and schedulers.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from cacheproof.differential.generators.manager import manager_trace
from cacheproof.differential.judges.watch import ManagerWatch
from cacheproof.differential.provision import releases, sources
from cacheproof.differential.provision.cache import Cache
from cacheproof.differential.targets.attached import Attachment
from cacheproof.differential.targets.host.faults.manager import FAULTS, nothing
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.reference.encoder_cache import EncoderCacheManager
from cacheproof.reference.releases import NEWEST

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES_OF = "0.32.0"
"""The engine whose libraries tests of multimodal requests import too."""
DISTRIBUTIONS = ("cacheproof", "iniconfig", "packaging", "pluggy", "pygments", "pytest")
OF_MANAGERS = "tests/v1/core/test_encoder_cache_manager.py"
OF_SCHEDULERS = "tests/v1/core/test_scheduler.py"
OF_KV_CACHES = "tests/v1/core/test_prefix_caching.py"
SUITE = ("tests/v1/core", "--ignore=tests/v1/core/prefix_cache")
ALONE = " tests fail for what is broken alone"
PLUG_IN = ("-p", "cacheproof.pytest", "--cacheproof")
SNAPSHOT = "0" * 40
OPT = {
    "architectures": ["OPTForCausalLM"],
    "model_type": "opt",
    "hidden_size": 768,
    "word_embed_proj_dim": 768,
    "ffn_dim": 3072,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "max_position_embeddings": 2048,
    "vocab_size": 50272,
    "bos_token_id": 2,
    "eos_token_id": 2,
    "pad_token_id": 1,
    "torch_dtype": "float16",
}


class Sown(NamedTuple):
    """Faults that are planted, in what, as planted_fault.py calls it, and the tests that are run:
    a file, and what pytest's -k selects of it."""

    kind: str
    what: str
    file: str
    chosen: str
    faults: Iterable[str]


SOWN = (
    Sown("encoder", "managers of encoder outputs", OF_MANAGERS, "", FAULTS),
    Sown(
        "kv_cache",
        "KV cache managers",
        OF_KV_CACHES,
        "test_prefill or test_decode or test_evict or test_hash_block or test_kv_cache_events",
        (
            "keeps_hits_queued",
            "leaks_a_block",
            "loses_a_hash",
            "hands_out_what_was_used_last",
            "misses_every_third_hit",
        ),
    ),
    Sown(
        "scheduler",
        "schedulers",
        OF_SCHEDULERS,
        "test_schedule_ or test_stop or multimodal or preempt",
        (
            "splits_items",
            "releases_ahead",
            "drops_what_is_encoded",
        ),
    ),
)
"""All faults of the managers of encoder outputs; of the others, whose tests take long, some. Those
that stop a scheduler have tests wait for ever."""
_MAKE_LLAVA = """
import sys
from pathlib import Path
from cacheproof.gpu_runner import tiny_models
print(tiny_models.ensure("llava", Path(sys.argv[1])))
"""
IMAGE = 336
"""Pixels of a side: an image takes 576 tokens, as those tests expect."""


@dataclass(frozen=True)
class Ran:
    """What a run of tests said: the outcome of each by its id, the summary of the plug-in, and how
    many seconds it took."""

    outcomes: dict[str, str]
    summary: list[str]
    seconds: float

    def count(self, outcome: str) -> int:
        """How many tests had that outcome."""
        return [*self.outcomes.values()].count(outcome)

    @property
    def failed(self) -> set[str]:
        """The tests that did not pass."""
        return {test for test, outcome in self.outcomes.items() if outcome in ("FAILED", "ERROR")}


class OwnTests:
    """A release's own tests, in a folder."""

    def __init__(self, folder: Path, release: str = NEWEST) -> None:
        self._folder = folder
        installed = releases.install(release, report=_report)
        engine = releases.install(LIBRARIES_OF, report=_report, kind=releases.ENGINE)
        command, environment = releases.host_command(installed)
        self._python = command[0]
        found = [*map(str, engine.overlays), environment["PYTHONPATH"]]
        found += map(str, (folder / "source", ROOT, folder / "libraries", ROOT / "benchmarks"))
        self._environment = environment | {
            "PYTHONPATH": os.pathsep.join(found),
            "HF_HOME": str(folder / "models"),
        }
        self._fetch(release)
        self._link_libraries()
        self._make_models()

    def run(self, *options: str, fault: str | None = None) -> Ran:
        """Run tests, beside managers with a fault or none.

        Raises:
            RuntimeError: pytest did not run them.
        """
        planted = () if fault is None else ("-p", "planted_fault")  # KIND:NAME
        begun = time.perf_counter()
        done = subprocess.run(
            [
                *(self._python, "-P", "-m", "pytest", "-c", os.devnull, "--noconftest"),
                *("--rootdir", ".", "-p", "no:cacheprovider", "-W", "ignore", "--tb=no", "-v"),
                *(*planted, *options),
            ],
            cwd=self._folder / "source",
            env=self._environment | {"CACHEPROOF_PLANTED_FAULT": fault or ""},
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.perf_counter() - begun
        outcomes = dict(
            re.findall(r"^(\S+::.*?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL)", done.stdout, re.M)
        )
        if done.returncode not in (0, 1) or not outcomes:
            raise RuntimeError(f"pytest ended with {done.returncode}: {done.stdout}{done.stderr}")
        _, _, summary = done.stdout.partition("= cacheproof: ")
        lines = summary.partition("\n=")[0].splitlines()[1:]
        return Ran(outcomes, lines, seconds)

    def _fetch(self, release: str) -> None:
        """The tests, out of the archive that the release was installed from."""
        if (self._folder / "source").exists():
            return
        cache = Cache.locate()
        with (
            cache.writing(),
            cache.alone(f"tests-{release}", _report) as guard,
            cache.workspace() as workspace,
        ):
            downloads = sources.Downloads(Path(self._python), cache, workspace, _report, guard)
            archive = sources.fetch(release, downloads)
            with tarfile.open(archive.path) as tar:
                for member in tar:
                    path = Path(*Path(member.name).parts[1:])
                    if path.parts[:1] == ("tests",):
                        member.name = str(path)
                        tar.extract(member, self._folder / "source", filter="data")

    def _link_libraries(self) -> None:
        """pytest and cacheproof's metadata, and nothing else of this interpreter's."""
        folder = self._folder / "libraries"
        folder.mkdir(exist_ok=True)
        for name in DISTRIBUTIONS:
            of = metadata.distribution(name)
            for top in {path.parts[0] for path in of.files or ()} - {".."}:
                if not (folder / top).exists():
                    (folder / top).symlink_to(Path(str(of.locate_file(top))))

    def _make_models(self) -> None:
        """Configurations in the place of those that tests would download."""
        self._put("facebook--opt-125m", {"config.json": OPT})
        made = subprocess.run(
            [
                *(self._python, "-c"),
                _MAKE_LLAVA,
                str(self._folder / "tiny"),
            ],
            env=self._environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()[-1]
        llava = {path.name: json.loads(path.read_text()) for path in Path(made).glob("*.json")}
        config, processor = llava["config.json"], llava["processor_config.json"]
        config["vision_config"]["image_size"] = IMAGE
        config["text_config"]["max_position_embeddings"] = 4096
        processor["image_processor"] |= {
            "crop_size": {"height": IMAGE, "width": IMAGE},
            "size": {"shortest_edge": IMAGE},
        }
        self._put("llava-hf--llava-1.5-7b-hf", llava)

    def _put(self, name: str, files: dict[str, object]) -> None:
        model = self._folder / "models" / "hub" / f"models--{name}"
        snapshot = model / "snapshots" / SNAPSHOT
        snapshot.mkdir(parents=True, exist_ok=True)
        (model / "refs").mkdir(exist_ok=True)
        (model / "refs" / "main").write_text(SNAPSHOT)
        for file, content in files.items():
            (snapshot / file).write_text(json.dumps(content))


def _report(line: str) -> None:
    print(line, file=sys.stderr)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    rounds = arguments.parse_args().rounds
    folder = Path(tempfile.mkdtemp(prefix="own-tests-"))
    try:
        for line in page(OwnTests(folder), rounds):
            print(line, flush=True)
    finally:
        shutil.rmtree(folder)


HEAD = f"""# vLLM's own tests, with the contracts attached

    .venv/bin/python benchmarks/own_tests.py > docs/evidence/own-tests.md

[The plug-in](../how-to/pytest.md) on the tests of vLLM {NEWEST}'s core, `tests/v1/core`, from its
source archive: without vLLM's `conftest.py`, without a network, and with a small configuration in
the place of OPT's and LLaVA's. What asks for another model does not run here."""


PLANTED = """
## Planted faults

Each fault is in the classes that the tests import: how many tests fail by themselves, how many more
for a broken contract alone, and the contracts."""
UNSEEN = """Where both are 0, no test makes the call that shows the fault: the third look-up or
admission of one manager, a release of an encoder-decoder's input that is not debited, or blocks
that are cached behind an allocation."""
EXPLAINED = """No contract is broken. What was left alone, and why:

* Managers of encoder outputs into which tests write: `scheduler.encoder_cache_manager.cached = {}`
  before a request comes back, in four tests, and `manager.num_free_slots = 50` to force an
  eviction, in one.
* Schedulers whose requests or settings tests change between two calls, for whom tests replace a
  method such as `allocate_slots`, that have a connector to an external encoder cache, or that are
  given a request which an engine refuses.
* Pools of Mamba's managers, which change hashes by the pool's private methods.
* KV cache managers and pools into which tests write, or that tests give blocks, hits or hashes of
  their own making."""


def page(tests: OwnTests, rounds: int) -> Iterator[str]:
    """The page, line by line."""
    yield HEAD
    yield from found(tests)
    yield from costs(tests, rounds)
    yield from planted(tests)


def found(tests: OwnTests) -> Iterator[str]:
    """What the tests of the release itself come to."""
    without, with_ = tests.run(*SUITE), tests.run(*SUITE, *PLUG_IN)
    yield "\n## What it finds\n\n| | without | with |\n|---|--:|--:|"
    for outcome in ("PASSED", "SKIPPED", "FAILED", "ERROR"):
        yield f"| {outcome.lower()} | {without.count(outcome)} | {with_.count(outcome)} |"
    new = sorted(with_.failed - without.failed)
    yield f"\nTests that fail with the plug-in alone: {len(new)}."
    yield from (f"* `{test}`" for test in new)
    yield "\nThe plug-in's summary:\n\n```"
    yield from (_folded(line) for line in with_.summary)
    yield f"```\n\n{EXPLAINED}"


def _folded(line: str, width: int = 118) -> str:
    """A long line on several, at blanks."""
    words, lines = line.split(" "), [""]
    for word in words:
        if len(lines[-1]) + len(word) >= width:
            lines.append("   ")
        lines[-1] += f" {word}" if lines[-1].strip() else word if not lines[-1] else f" {word}"
    return "\n".join(lines)


def costs(tests: OwnTests, rounds: int) -> Iterator[str]:
    """Seconds with and without, in turns."""
    yield f"\n## What it costs\n\nSeconds of runs, {rounds} in turns: median (least to most).\n"
    yield "| tests | without | with | with / without |\n|---|--:|--:|--:|"
    for file in (OF_MANAGERS, OF_SCHEDULERS):
        pairs = [
            (tests.run(file).seconds, tests.run(file, *PLUG_IN).seconds) for _ in range(rounds)
        ]
        ratios = [with_ / without for without, with_ in pairs]
        columns = [_spread([pair[0] for pair in pairs]), _spread([pair[1] for pair in pairs])]
        yield f"| `{Path(file).name}` | {' | '.join(columns)} | {_spread(ratios, 2)} |"

    yield from cost_of_a_call(rounds)


def cost_of_a_call(rounds: int, traces: int = 30) -> Iterator[str]:
    """Microseconds of a call of the reference's manager, with and without, in turns."""
    asked = [manager_trace(seed) for seed in range(traces)]
    target = ReferenceTarget()
    calls = sum(len(record.calls) for result in target.run(asked) for record in result.records)

    def timed() -> float:
        begun = time.perf_counter()
        target.run(asked)
        return (time.perf_counter() - begun) / calls

    pairs = []
    for _ in range(rounds):
        without = timed()
        attachment = Attachment(ManagerWatch(None))
        attachment.wrap(EncoderCacheManager)
        pairs.append((without, timed()))
        attachment.detach()
    added = [1e6 * (with_ - without) for without, with_ in pairs]
    yield (
        f"\nA call of a manager takes {_spread(added, 0)} microseconds more, measured with\n"
        f"{calls:,} calls of the reference's that {traces} traces make. "
        "Whole runs vary with what else the machine does."
    )


def _spread(values: Sequence[float], digits: int = 1) -> str:
    middle, least, most = (f(values) for f in (statistics.median, min, max))
    return f"{middle:.{digits}f} ({least:.{digits}f} to {most:.{digits}f})"


def planted(tests: OwnTests) -> Iterator[str]:
    """Which planted faults the tests find by themselves, and which with the contracts attached."""
    yield PLANTED
    for sown in SOWN:
        yield from planted_in(tests, sown)
    yield f"\n{UNSEEN}"


def planted_in(tests: OwnTests, sown: Sown) -> Iterator[str]:
    """The same, of one kind of fault."""
    options = (sown.file, *(("-k", sown.chosen) if sown.chosen else ()))
    count = len(tests.run(*options).outcomes)
    chosen = f',\n`-k "{sown.chosen}"`' if sown.chosen else ""
    yield f"""
### In {sown.what}

{count} tests of `{Path(sown.file).name}`{chosen}.

| fault | by themselves | for a contract | contracts |
|---|--:|--:|---|"""
    for fault in sown.faults:
        ran = tests.run(*options, *PLUG_IN, fault=f"{sown.kind}:{fault}")
        broken = [line.split()[1] for line in ran.summary if line.startswith("BROKEN ")]
        alone = sum(int(line.split()[0]) for line in ran.summary if line.endswith(ALONE))
        name = "none" if fault == nothing.__name__ else fault.replace("_", " ")
        counts = f"{len(ran.failed) - alone} | {alone}"
        yield f"| {name} | {counts} | {' '.join(broken)} |"


if __name__ == "__main__":
    main()
