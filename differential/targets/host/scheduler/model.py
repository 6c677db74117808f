"""The model of a real scheduler: a config.json of our own, text-only and never loaded."""

import atexit
import functools
import json
import os
import shutil
import tempfile
from typing import ClassVar

import torch
from vllm.config import ModelConfig
from vllm.model_executor.models import ModelRegistry

from ..protocol import HostError
from ..release_calls import call_known
from ..vllm_objects.config import VllmConfig
from .session import EOS_TOKEN_ID, VOCABULARY_SIZE

_LONGEST_MODEL_LEN = 1 << 20
_ARCHITECTURE = "SchedulerOnlyForCausalLM"


class _NeverBuilt(torch.nn.Module):
    """Answers the release's questions about the architecture without importing a real model."""

    supports_lora = True
    embedding_modules: ClassVar[dict[str, str]] = {}
    embedding_padding_modules: ClassVar[list[str]] = []
    packed_modules_mapping: ClassVar[dict[str, list[str]]] = {}
    lora_skip_prefixes: ClassVar[list[str]] = []
    is_3d_moe_weight = False

    def __init__(self, vllm_config: VllmConfig, prefix: str = "") -> None:
        raise HostError("no model is built at scheduler depth")

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor: ...

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor: ...

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor: ...

    def get_input_embeddings(self, input_ids: torch.Tensor) -> torch.Tensor: ...


@functools.cache
def _model_directory() -> str:
    ModelRegistry.register_model(_ARCHITECTURE, _NeverBuilt)
    directory = tempfile.mkdtemp(prefix="scheduler-model-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    config = {
        "model_type": "opt",
        "architectures": [_ARCHITECTURE],
        "vocab_size": VOCABULARY_SIZE,
        "hidden_size": 16,
        "word_embed_proj_dim": 16,
        "ffn_dim": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "max_position_embeddings": _LONGEST_MODEL_LEN,
        "torch_dtype": "float32",
        "bos_token_id": EOS_TOKEN_ID,
        "eos_token_id": EOS_TOKEN_ID,
        "pad_token_id": 1,
    }
    with open(os.path.join(directory, "config.json"), "w") as file:
        json.dump(config, file)
    return directory


@functools.lru_cache(maxsize=64)
def model_config(max_model_len: int) -> ModelConfig:
    """The release's ModelConfig for prompts of that length."""
    directory = _model_directory()
    return call_known(
        ModelConfig,
        model=directory,
        tokenizer=directory,
        tokenizer_mode="auto",
        trust_remote_code=False,
        dtype="float32",
        seed=0,
        skip_tokenizer_init=True,
        max_model_len=max_model_len,
    )
