"""`cacheproof generate`: the engine loop on a local model, step by step."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cacheproof.differential.errors import HarnessError, InputError
from cacheproof.differential.provision import environment
from cacheproof.differential.provision.cache import Cache, Report
from cacheproof.differential.search.verdict import HOLDS
from cacheproof.gpu_runner.jobs import BadJob, GenerateJob, Sizes
from cacheproof.gpu_runner.marks import MARK
from cacheproof.output.conclusion import Conclusion
from cacheproof.output.console import CommandOutput
from cacheproof.serving import verdict as served

_BOOT = """
import sys, types
package = sys.modules["cacheproof"] = types.ModuleType("cacheproof")
package.__path__ = [sys.argv[1]]
from cacheproof.gpu_runner.generate import main
sys.exit(main())
"""


def generate(
    output: CommandOutput,
    model: str,
    device: str,
    texts: Sequence[str],
    files: Mapping[str, Sequence[Path]],
    sizes: Sizes,
) -> int:
    """Generate, and show each step and what was answered; `files` are those of each modality.

    Raises:
        InputError: the job cannot be done; says why.
        HarnessError: the child that executes it broke.
    """
    prompts = list(_with_media(texts, files))
    job = GenerateJob(
        model=model,
        models=str(Cache.locate().models),
        prompts=prompts,
        device=device,
        **vars(sizes),
    )
    steps: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []
    sizes_used: dict[str, Any] = {}
    for told in told_by_child(job, report=output.say):
        if "request" in told:
            answers.append(told)
        elif "encoder_cache" in told:
            sizes_used = told
            _say_raised(output, job, told)
        else:
            steps.append(told)
            output.line(_shown(len(steps), told))
    for answer in answers:
        output.line(f"{answer['request']} ({answer['ended']}): {answer['text']}")
    line = served.of_generated(model, device, steps, answers)
    facts = {**sizes_used, "steps": steps, "answers": answers}
    return output.tell(Conclusion(HOLDS, line, facts))


def told_by_child(job: GenerateJob, *, report: Report) -> Iterator[dict[str, Any]]:
    """What a child that executes the job tells: the sizes used, each step, each answer.

    Raises:
        InputError: the job cannot be done; says why.
        HarnessError: the child broke.
    """
    try:
        job.check()
    except BadJob as reason:
        raise InputError(f"generate: {reason}") from None
    python, settings = provisioned(report=report)
    with (
        tempfile.TemporaryFile() as problems,
        subprocess.Popen(
            [python, "-P", "-c", _BOOT, str(Path(__file__).parent.parent)],
            env=settings,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=problems,
        ) as child,
    ):
        try:
            yield from _told(child, job)
        finally:
            child.kill()  # where it still is
        status = child.wait()
        problems.seek(0)
        said = problems.read().decode(errors="replace").strip().splitlines()[-1:] or ["no word"]
    if status != 0:
        raise (InputError if status == InputError.exit_code else HarnessError)(
            f"generate: {said[0]}"
        )


def _told(child: "subprocess.Popen[bytes]", job: GenerateJob) -> Iterator[dict[str, Any]]:
    """Give the child its job; what it tells, until it ends."""
    assert child.stdin is not None
    assert child.stdout is not None
    with suppress(BrokenPipeError), child.stdin:
        child.stdin.write(json.dumps(asdict(job)).encode())
    for line in child.stdout:
        yield json.loads(line)
    child.wait()


def _say_raised(output: CommandOutput, job: GenerateJob, used: Mapping[str, int]) -> None:
    """Say which of the two budgets was too small for the largest item."""
    for option, asked, got in (
        ("--encoder-budget", job.max_num_encoder_input_tokens, used["encoder_budget"]),
        ("--encoder-cache", job.encoder_cache_size, used["encoder_cache"]),
    ):
        if got > asked:
            output.line(f"{option} {asked} is raised to {got} rows: the largest item")


def _with_media(
    texts: Sequence[str], files: Mapping[str, Sequence[Path]]
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Each text with modality and file of its media, which are dealt out in order."""
    marked = [MARK.findall(text) for text in texts]
    for modality, given in files.items():
        wanted = sum(marks.count(modality) for marks in marked)
        if wanted != len(given):
            raise InputError(
                f"{wanted} of <{modality}> in the prompts and {len(given)} of --{modality}; "
                f"expected as many"
            )
    left = {modality: iter(map(str, given)) for modality, given in files.items()}
    for text, marks in zip(texts, marked, strict=True):
        yield text, [(modality, next(left[modality])) for modality in marks]


def provisioned(*, report: Report) -> tuple[str, dict[str, str]]:
    """An interpreter with torch and transformers, made where it is missing, and the environment
    variables that it wants.

    Raises:
        SetupError: it cannot be made.
    """
    cache = Cache.locate()
    with cache.writing():
        libraries = environment.ensure(cache, environment.ENGINE, report=report)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return str(libraries.python), kept | {
        "PYTHONPATH": os.pathsep.join(map(str, libraries.overlays)),
        "HF_HUB_OFFLINE": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(cache.scratch / "torch"),
        "TRANSFORMERS_VERBOSITY": "error",
    }


def _shown(number: int, step: dict[str, Any]) -> str:
    parts = [f"{count} of {name}" for name, count in step["tokens"].items()]
    notes = [f"{step[what]} {what}" for what in ("encoded", "hits", "evicted") if step[what]] + [
        f"{name} starts over" for name in step["preempted"]
    ]
    return (
        f"step {number:3}  {step['milliseconds']:8.2f} ms  rows kept {step['resident']:5}  "
        f"{', '.join(parts)}{'; ' if notes else ''}{', '.join(notes)}"
    )
