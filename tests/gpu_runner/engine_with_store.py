"""An engine of a release with a store, driven by lines: `PYTHON engine_with_store.py JOB`.

JOB is JSON: `models`, the folder of tiny models; `store`, the settings of the store, or null for an
engine without; perhaps `weights_seed`, for a model of other weights, and `forgets`, a field that
keys are made without. A line of the standard input is a list of prompts, each a list of the names
of its pictures. The answer is a line with the tokens of every prompt and how many items were
encoded.
"""

import json
import random
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import beside

MODEL_LEN = 256


def main() -> None:
    beside.make_importable()
    job = json.loads(sys.argv[1])
    engine, runner = _made(job)
    encoded: list[int] = []
    encode = runner._execute_mm_encoder

    def counted(step: Any, *rest: Any, **named: Any) -> Any:
        encoded.append(sum(map(len, step.scheduled_encoder_inputs.values())))
        return encode(step, *rest, **named)

    runner._execute_mm_encoder = counted
    print("ready", flush=True)
    for line in sys.stdin:
        answers = engine.generate(*_asked(json.loads(line)), use_tqdm=False)
        tokens = [list(map(int, answer.outputs[0].token_ids)) for answer in answers]
        print(json.dumps({"tokens": tokens, "encoded": sum(encoded)}), flush=True)
        encoded.clear()


def _made(job: Any) -> tuple[Any, Any]:
    from vllm import LLM
    from vllm.config.ec_transfer import ECTransferConfig

    from cacheproof.gpu_runner import tiny_models

    directory = tiny_models.ensure("llava", Path(job["models"]))
    if "weights_seed" in job:
        directory = _of_other_weights(directory, job["weights_seed"])
    if "forgets" in job:
        _forget(job["forgets"])
    transfer = {}
    if job["store"] is not None:
        transfer["ec_transfer_config"] = ECTransferConfig(
            ec_connector="EncoderConnector",
            ec_connector_module_path="cacheproof.gpu_runner.encoder_connector.vllm_connector",
            ec_role="ec_both",
            ec_connector_extra_config=job["store"],
        )
    engine = LLM(
        model=str(directory),
        dtype="float32",
        seed=0,
        enforce_eager=True,
        block_size=32,
        max_model_len=MODEL_LEN,
        max_num_seqs=4,
        max_num_batched_tokens=48,
        num_gpu_blocks_override=16,
        async_scheduling=False,
        enable_prefix_caching=False,
        disable_log_stats=True,
        limit_mm_per_prompt={"image": 4},
        **transfer,
    )
    core = engine.llm_engine.engine_core.engine_core
    return engine, core.model_executor.driver_worker.worker.model_runner


def _forget(field: str) -> None:
    """Plant a fault in this process's connector: keys without a field."""
    from cacheproof.gpu_runner.encoder_connector.vllm_connector import EncoderConnector

    key_of = EncoderConnector.key_of
    EncoderConnector.key_of = lambda self, name: replace(  # type: ignore[method-assign]
        key_of(self, name), **{field: ""}
    )


def _of_other_weights(directory: Path, seed: int) -> Path:
    """A copy of a model in a folder of its own whose vision tower is another."""
    from safetensors.torch import load_file, save_file

    other = directory.with_name(f"{directory.name}-{seed}")
    shutil.copytree(directory, other, dirs_exist_ok=True)
    for file in other.glob("*.safetensors"):
        weights = load_file(file)
        for name, tensor in weights.items():
            if "vision" in name and tensor.dim() > 1:
                weights[name] = tensor.flip(0).contiguous()
        save_file(weights, file, metadata={"format": "pt"})
    return other


def pictures_of(names: list[str]) -> list[Any]:
    """A picture of each name, the same in every process."""
    import numpy
    from PIL import Image

    return [
        Image.fromarray(
            numpy.frombuffer(random.Random(name).randbytes(56 * 56 * 3), "u1").reshape(56, 56, 3)
        )
        for name in names
    ]


def _asked(prompts: list[list[str]]) -> tuple[list[Any], Any]:
    from vllm import SamplingParams

    from cacheproof.gpu_runner import tiny_models

    given = []
    for names in prompts:
        tokens = [tiny_models.FIRST_TEXT_TOKEN_ID]
        for number, _ in enumerate(names):
            tokens += [tiny_models.PLACEHOLDER_TOKEN_ID, tiny_models.FIRST_TEXT_TOKEN_ID + number]
        given.append(
            {
                "prompt_token_ids": tokens,
                "multi_modal_data": {"image": pictures_of(names)},
                "multi_modal_uuids": {"image": names},
            }
        )
    return given, SamplingParams(max_tokens=6, temperature=0, ignore_eos=True, detokenize=False)


if __name__ == "__main__":
    main()
