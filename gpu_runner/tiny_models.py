"""Tiny models with random weights, made offline: directories that an engine loads as any other.

The weights of a directory follow from a seed. Prompts are token ids; a tokenizer is there because
engines ask for one, and knows the words w0, w1, ... from `FIRST_TEXT_TOKEN_ID` on. Every model has
the placeholder of an image at one place in the vocabulary, and that of a video, if it has one.
"""

import hashlib
import inspect
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import (
    CLIPVisionConfig,
    Cohere2VisionConfig,
    Cohere2VisionForConditionalGeneration,
    Cohere2VisionProcessor,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2AudioConfig,
    Qwen2AudioForConditionalGeneration,
    Qwen2AudioProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperProcessor,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.cohere2_vision.image_processing_cohere2_vision import (
    Cohere2VisionImageProcessor,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

from cacheproof.gpu_runner import whisper_words

VOCABULARY_SIZE = 1024
FIRST_TEXT_TOKEN_ID = 10
PLACEHOLDER_TOKEN_ID = 3
VIDEO_TOKEN_ID = 6
VISION_START_TOKEN_ID, VISION_END_TOKEN_ID = 7, 8
IMAGE_SIDE = 56
PATCH_SIDE = 14
POSITIONS_MAX = 2048
FRAME_TIMES = ("<0.2", "<1.2", "<2.2", "<3.2", "seconds>")
"""Words for when the first frames of a video are that has two of them a second."""
LINE_BREAK_TOKEN_ID = VIDEO_TOKEN_ID
"""What stands behind each tile of a picture, where a model has tiles and no videos."""
TILE_SIDE, TILE_ROWS_A_SIDE, TILES_MAX = 28, 2, 4
SLIDING_WINDOW = 15
AUDIO_ROWS = 50
SPREAD = 0.25
"""Standard deviation of the weights. It keeps the best two logits apart, mostly by far more than
rounding moves them."""


def ensure(name: str, folder: Path) -> Path:
    """The directory of a tiny model in `folder`, made where it is missing.

    It is there whole or not at all, and named for the code that made it.

    Raises:
        ValueError: there is no tiny model of that name.
    """
    if name not in _MAKERS:
        raise ValueError(f"tiny model {name!r}; expected one of {', '.join(sorted(_MAKERS))}")
    made_by = (sys.modules[__name__], whisper_words)
    digest = hashlib.sha256("".join(map(inspect.getsource, made_by)).encode()).hexdigest()[:12]
    directory = folder / f"{name}-{digest}"
    if directory.exists():
        return directory
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".making-") as scratch:
        draft = Path(scratch) / name
        draft.mkdir()
        _MAKERS[name](draft)
        try:
            os.rename(draft, directory)
        except OSError:  # somebody else was quicker
            if not directory.exists():
                raise
    return directory


def _make_llava(directory: Path) -> None:
    rows = (IMAGE_SIDE // PATCH_SIDE) ** 2
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            image_size=IMAGE_SIDE,
            patch_size=PATCH_SIDE,
            projection_dim=64,
        ),
        text_config=LlamaConfig(
            vocab_size=VOCABULARY_SIZE,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
            max_position_embeddings=POSITIONS_MAX,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=5,
        ),
        image_token_index=PLACEHOLDER_TOKEN_ID,
        vision_feature_layer=-2,
        vision_feature_select_strategy="default",
        image_seq_length=rows,
    )
    torch.manual_seed(0)
    model = LlavaForConditionalGeneration(config).to(torch.float32)
    _randomise(model)
    model.save_pretrained(directory)
    _rename(directory / "model.safetensors", _published_llava)
    tokenizer = _tokenizer("<image>", "<video>")
    LlavaProcessor(
        image_processor=CLIPImageProcessorPil(
            size={"shortest_edge": IMAGE_SIDE},
            crop_size={"height": IMAGE_SIDE, "width": IMAGE_SIDE},
        ),
        tokenizer=tokenizer,
        patch_size=PATCH_SIDE,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        image_token="<image>",
    ).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def _make_qwen2_5_vl(directory: Path) -> None:
    merged = 2 * PATCH_SIDE
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": VOCABULARY_SIZE,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "max_position_embeddings": POSITIONS_MAX,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [4, 6, 6],
            },
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 5,
            "tie_word_embeddings": False,
        },
        vision_config={
            "depth": 2,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "patch_size": PATCH_SIDE,
            "window_size": 2 * merged,
            "fullatt_block_indexes": [1],
            "out_hidden_size": 64,
            "tokens_per_second": 2,
        },
        image_token_id=PLACEHOLDER_TOKEN_ID,
        video_token_id=VIDEO_TOKEN_ID,
        vision_start_token_id=VISION_START_TOKEN_ID,
        vision_end_token_id=VISION_END_TOKEN_ID,
    )
    torch.manual_seed(0)
    model = Qwen2_5_VLForConditionalGeneration(config).to(torch.float32)
    _randomise(model)
    model.save_pretrained(directory)
    tokenizer = _tokenizer("<|image_pad|>", "<|video_pad|>")
    pixels = {"min_pixels": merged**2, "max_pixels": 64 * merged**2}
    Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessorPil(**pixels),
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(**pixels),
    ).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def _make_qwen3_vl(directory: Path) -> None:
    """One whose decoder gets rows of three layers of the tower, at three of its own."""
    merged = 2 * PATCH_SIDE
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": VOCABULARY_SIZE,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 32,
            "max_position_embeddings": POSITIONS_MAX,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [6, 5, 5],
                "mrope_interleaved": True,
            },
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 5,
        },
        vision_config={
            "depth": 3,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "patch_size": PATCH_SIDE,
            "out_hidden_size": 64,
            "num_position_embeddings": 16,
            "deepstack_visual_indexes": [0, 1],
        },
        image_token_id=PLACEHOLDER_TOKEN_ID,
        video_token_id=VIDEO_TOKEN_ID,
        vision_start_token_id=VISION_START_TOKEN_ID,
        vision_end_token_id=VISION_END_TOKEN_ID,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    model = Qwen3VLForConditionalGeneration(config).to(torch.float32)
    _randomise(model)
    model.save_pretrained(directory)
    marks = ("<|vision_start|>", "<|vision_end|>")
    tokenizer = _tokenizer("<|image_pad|>", "<|video_pad|>", marks, FRAME_TIMES)
    pixels = {
        # Of a video, all of its frames count.
        "size": {"shortest_edge": merged**2, "longest_edge": 256 * merged**2},
        "patch_size": PATCH_SIDE,
        # Alike for both: vLLM 0.32.0 normalises videos as images.
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
    }
    Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessorPil(**pixels),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(**pixels),
    ).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def _make_qwen2_audio(directory: Path) -> None:
    """One that hears 30 seconds, which vLLM insists on: a row for every 40 ms that there are."""
    config = Qwen2AudioConfig(
        audio_config={
            "num_mel_bins": 80,
            "d_model": 64,
            "encoder_layers": 2,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 128,
        },
        text_config={
            "model_type": "qwen2",
            "vocab_size": VOCABULARY_SIZE,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "max_position_embeddings": POSITIONS_MAX,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 5,
            "tie_word_embeddings": False,
        },
        audio_token_index=PLACEHOLDER_TOKEN_ID,
    )
    torch.manual_seed(0)
    model = Qwen2AudioForConditionalGeneration(config).to(torch.float32)
    _randomise(model)
    model.save_pretrained(directory)
    _rename(directory / "model.safetensors", _published_qwen2_audio)
    tokenizer = _tokenizer("<|AUDIO|>", "<video>", ("<|audio_bos|>", "<|audio_eos|>"))
    extractor = WhisperFeatureExtractor()
    Qwen2AudioProcessor(feature_extractor=extractor, tokenizer=tokenizer).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def _make_cohere2_vision(directory: Path) -> None:
    """One that has layers of sliding windows before layers of full attention, and pictures of as
    many tiles as fit, with a small one of the whole beside several."""
    config = Cohere2VisionConfig(
        vision_config={
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": TILE_SIDE,
            "patch_size": TILE_SIDE // (2 * TILE_ROWS_A_SIDE),
            "vision_use_head": False,
        },
        text_config={
            "vocab_size": VOCABULARY_SIZE,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 4,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "max_position_embeddings": POSITIONS_MAX,
            "sliding_window": SLIDING_WINDOW,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "logit_scale": 0.5,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 5,
        },
        image_token_id=PLACEHOLDER_TOKEN_ID,
        alignment_intermediate_size=128,
    )
    torch.manual_seed(0)
    model = Cohere2VisionForConditionalGeneration(config).to(torch.float32)
    _randomise(model)
    model.save_pretrained(directory)
    _rename(directory / "model.safetensors", _published_cohere2_vision)
    names = ("image_token", "img_line_break_token", "boi_token", "eoi_token")
    words = ("<image>", "<line>", "<vision>", "</vision>")
    tokenizer = _tokenizer(*words[:2], words[2:], named=dict(zip(names, words, strict=True)))
    Cohere2VisionProcessor(
        image_processor=Cohere2VisionImageProcessor(
            size={"height": TILE_SIDE, "width": TILE_SIDE},
            patch_size=TILE_ROWS_A_SIDE,
            max_patches=TILES_MAX,
        ),
        tokenizer=tokenizer,
    ).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def _make_whisper(directory: Path) -> None:
    """One that hears a second: as many rows as half of its frames."""
    config = WhisperConfig(
        vocab_size=VOCABULARY_SIZE,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_source_positions=AUDIO_ROWS,
        max_target_positions=POSITIONS_MAX,
        decoder_start_token_id=whisper_words.START_ID,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=5,
    )
    torch.manual_seed(0)
    model = WhisperForConditionalGeneration(config).to(torch.float32)
    _randomise(model)
    model.save_pretrained(directory)
    tokenizer = _whisper_tokenizer()
    extractor = WhisperFeatureExtractor(chunk_length=1)
    WhisperProcessor(feature_extractor=extractor, tokenizer=tokenizer).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def _make_drafter(directory: Path) -> None:
    """A head that drafts behind a LLaVA or a Qwen2.5-VL, EAGLE's way: a layer over the embedding of
    each token and what the model had computed at the one before. transformers has no such model."""
    hidden, inner, heads, head_dim = 64, 128, 2, 32
    config = {
        "architectures": ["EagleMistralForCausalLM"],
        "model_type": "mistral",
        "vocab_size": VOCABULARY_SIZE,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": 1,
        "num_attention_heads": heads,
        "num_key_value_heads": 1,
        "head_dim": head_dim,
        "max_position_embeddings": POSITIONS_MAX,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    }
    (directory / "config.json").write_text(json.dumps(config, indent=2))
    shapes = {
        "self_attn.q_proj": (heads * head_dim, hidden),
        "self_attn.k_proj": (head_dim, hidden),
        "self_attn.v_proj": (head_dim, hidden),
        "self_attn.o_proj": (hidden, heads * head_dim),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    torch.manual_seed(1)
    tensors = {
        f"model.layers.0.{name}.weight": SPREAD * torch.randn(shape)
        for name, shape in shapes.items()
    }
    tensors["model.fc.weight"] = SPREAD * torch.randn(hidden, 2 * hidden)
    for name in ("layers.0.input_layernorm", "layers.0.post_attention_layernorm", "norm"):
        tensors[f"model.{name}.weight"] = torch.ones(hidden)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def _randomise(model: torch.nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() >= 2:
                parameter.normal_(0, SPREAD)


def _rename(file: Path, name_of: Callable[[str], str]) -> None:
    """Give the tensors of a file other names: engines know those that checkpoints were published
    with, and transformers saves newer ones."""
    tensors = {name_of(name): tensor for name, tensor in load_file(file).items()}
    save_file(tensors, file, metadata={"format": "pt"})


def _published_llava(name: str) -> str:
    name = re.sub(r"^model\.", "", name)
    name = re.sub(r"^vision_tower\.(?!vision_model\.)", "vision_tower.vision_model.", name)
    name = re.sub(r"^lm_head\.", "language_model.lm_head.", name)
    return re.sub(r"^language_model\.(?!model\.|lm_head\.)", "language_model.model.", name)


def _published_cohere2_vision(name: str) -> str:
    return re.sub(r"^(model\.vision_tower\.)(?!vision_model\.)", r"\1vision_model.", name)


def _published_qwen2_audio(name: str) -> str:
    return re.sub(r"^language_model\.model\.model\.", "language_model.model.", name)


def _tokenizer(
    image: str,
    video: str,
    marks: tuple[str, str] = ("<vision>", "</vision>"),
    last: tuple[str, ...] = (),
    named: Mapping[str, str] | None = None,
) -> PreTrainedTokenizerFast:
    """A tokenizer with these words for the placeholders of images and videos, and for the marks
    before and behind them; the `last` ones of its vocabulary are these. `named` are those of its
    words that a processor asks for by these names."""
    special = ("<unk>", "<s>", "</s>", image, "<stop>", "<pad>", video, *marks)
    gap = [f"<reserved{number}>" for number in range(len(special), FIRST_TEXT_TOKEN_ID)]
    words = [f"w{number}" for number in range(VOCABULARY_SIZE - FIRST_TEXT_TOKEN_ID - len(last))]
    vocabulary = {word: number for number, word in enumerate([*special, *gap, *words, *last])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        extra_special_tokens=named or [image, video, *marks],
        model_max_length=POSITIONS_MAX,
    )


def _whisper_tokenizer() -> PreTrainedTokenizerFast:
    """One that knows the marks of a transcript."""
    words = whisper_words.WORDS
    tokenizer = Tokenizer(
        models.WordLevel({word: number for number, word in enumerate(words)}, unk_token=words[0])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_tokens([AddedToken(mark, normalized=False) for mark in whisper_words.MARKS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=whisper_words.END, model_max_length=POSITIONS_MAX
    )


_MAKERS: dict[str, Callable[[Path], None]] = {
    "cohere2_vision": _make_cohere2_vision,
    "drafter": _make_drafter,
    "llava": _make_llava,
    "qwen2_5_vl": _make_qwen2_5_vl,
    "qwen2_audio": _make_qwen2_audio,
    "qwen3_vl": _make_qwen3_vl,
    "whisper": _make_whisper,
}
