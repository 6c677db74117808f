"""The answers of an engine of a text-only model, made anew for each way to make it: run by
`prompt_embeds_allowed.py` in an engine's environment."""

import gc
import json
import sys
from pathlib import Path

PROMPTS = [[20 + at for at in range(length)] for length in (8, 25, 60)]


def answers(models: Path, folder: Path) -> dict[str, list[list[list[int]]]]:
    """By steps in flight, its answers where embeddings are not allowed, and where they are."""
    from host.engine.in_flight import keeping_async_scheduling, stand_in_for_streams
    from host.engine.kernels import mend_kernels_of_drafts, register_kernels_once
    from host.engine.limits import BLOCK_SIZE, NUM_DRAFTS
    from host.package import ours
    from vllm import LLM, SamplingParams
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

    tiny_models = ours("gpu_runner.tiny_models")
    register_kernels_once()
    mend_kernels_of_drafts()
    stand_in_for_streams()
    text = text_model(tiny_models.ensure("llava", models), folder)
    drafter = tiny_models.ensure("drafter", models)
    params = SamplingParams(max_tokens=16, temperature=0, ignore_eos=True, detokenize=False)
    told: dict[str, list[list[list[int]]]] = {}
    for steps in (1, 2):
        for is_allowed in (False, True):
            with keeping_async_scheduling():
                llm = LLM(
                    model=str(text),
                    dtype="float32",
                    seed=0,
                    enforce_eager=True,
                    block_size=BLOCK_SIZE,
                    max_model_len=128,
                    num_gpu_blocks_override=32,
                    enable_prompt_embeds=is_allowed,
                    enable_prefix_caching=False,
                    async_scheduling=steps == 2,
                    distributed_executor_backend=UniProcExecutor,
                    disable_log_stats=True,
                    speculative_config={
                        "method": "eagle",
                        "model": str(drafter),
                        "num_speculative_tokens": NUM_DRAFTS,
                    },
                )
            asked = [{"prompt_token_ids": token_ids} for token_ids in PROMPTS]
            outputs = [llm.generate(one, params, use_tqdm=False)[0].outputs[0] for one in asked]
            told.setdefault(str(steps), []).append([list(one.token_ids) for one in outputs])
            del llm
            gc.collect()  # it takes the process's groups with it, whenever it goes
    return told


def text_model(llava: Path, folder: Path) -> Path:
    """The decoder of a tiny LLaVA, as a model of its own."""
    from safetensors.torch import load_file, save_file

    weights = {
        name.removeprefix("language_model.").replace("model.language_model.", "model."): tensor
        for name, tensor in load_file(llava / "model.safetensors").items()
        if "language_model" in name or name.startswith("lm_head")
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((llava / "config.json").read_text())["text_config"]
    config |= {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    (folder / "config.json").write_text(json.dumps(config))
    for path in llava.glob("*token*"):
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    print(json.dumps(answers(*map(Path, sys.argv[2:]))))
