"""Prompts from text and media, against what each model's own processor makes of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from PIL import Image
from transformers import AutoProcessor

from cacheproof.gpu_runner import tiny_models
from cacheproof.gpu_runner.jobs import KINDS, SAMPLES_PER_SECOND
from cacheproof.gpu_runner.media_files import Film, Sound
from cacheproof.gpu_runner.models import loading
from cacheproof.gpu_runner.prompts import (
    OF_MODEL,
    BadPrompt,
    Cohere2VisionPrompts,
    LlavaPrompts,
    Prompts,
    Qwen2AudioPrompts,
    Qwen3VLPrompts,
    Qwen25VLPrompts,
    WhisperPrompts,
)
from cacheproof.gpu_runner.whisper_words import END, WORDS

QWEN_TEXT = "w0 <image> w1 <video> w2 <image>"


def picture(seed: int) -> Image.Image:
    noise = numpy.random.RandomState(seed).randint(0, 256, (70, 90, 3))
    return Image.fromarray(noise.astype(numpy.uint8))


def film(seed: int, seconds_of_a_frame: float = 0.25) -> Film:
    noise = numpy.random.RandomState(seed).randint(0, 256, (5, 60, 90, 3))
    return Film(noise.astype(numpy.uint8), seconds_of_a_frame)


def sound(seed: int, seconds: float = 0.8) -> Sound:
    noise = numpy.random.RandomState(seed).uniform(-1, 1, int(SAMPLES_PER_SECOND * seconds))
    return Sound(noise.astype(numpy.float32))


@pytest.fixture(scope="module")
def prompts(llava: Path) -> Prompts:
    return LlavaPrompts(llava)


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.ensure("qwen2_5_vl", tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> WhisperPrompts:
    return WhisperPrompts(tiny_models.ensure("whisper", tmp_path_factory.mktemp("models")))


def test_every_kind_has_prompts_a_loader_and_a_tiny_model() -> None:
    assert set(KINDS) == set(OF_MODEL) == set(loading._LOADERS)
    assert set(KINDS) == tiny_models._MAKERS.keys() - {"drafter"}


def test_pictures_stand_where_the_text_has_them_and_equal_ones_are_one_item(
    prompts: Prompts,
) -> None:
    made = prompts.prompt("w0 <image> w1 <image> <image>", [picture(1), picture(2), picture(1)])
    where = [item.feature.mm_position for item in made.items]
    assert [(one.offset, one.length) for one in where] == [(1, 16), (18, 16), (34, 16)]
    assert made.token_ids == (10, *[3] * 16, 11, *[3] * 32)
    one, two, three = (item.feature.identifier for item in made.items)
    assert one == three != two


def test_a_text_without_pictures_is_its_tokens(prompts: Prompts) -> None:
    made = prompts.prompt("w0 w7", [])
    assert (made.token_ids, made.items) == ((10, 17), ())
    assert prompts.text(made.token_ids) == "w0 w7"


Own = Callable[[list[Image.Image], Film], dict[str, Any]]
"""What a model's own processor makes of the whole prompt QWEN_TEXT at once."""


def own_of(directory: Path, begin: str, end: str) -> Own:
    """That of a model with these marks before and behind items."""
    processor = AutoProcessor.from_pretrained(directory)

    def made(images: list[Image.Image], one: Film) -> dict[str, Any]:
        text = QWEN_TEXT
        for mark, placeholder in (("image", "<|image_pad|>"), ("video", "<|video_pad|>")):
            text = text.replace(f"<{mark}>", f"{begin}{placeholder}{end}")
        metadata = {
            "fps": 1 / one.seconds_of_a_frame,
            "total_num_frames": len(one.frames),
            "frames_indices": list(range(len(one.frames))),
        }
        return dict(
            processor(
                text=[text],
                images=images,
                videos=[one.frames],
                video_metadata=[metadata],
                do_sample_frames=False,
                return_tensors="pt",
            )
        )

    return made


@pytest.fixture(scope="module")
def own(qwen: Path) -> Own:
    return own_of(qwen, "<vision>", "</vision>")


def test_pictures_of_any_size_and_films_are_what_the_processor_makes_of_them(
    qwen: Path, own: Own
) -> None:
    images = [picture(1), picture(2).resize((56, 112))]
    made = Qwen25VLPrompts(qwen).prompt(QWEN_TEXT, [images[0], film(3), images[1]])
    expected = own(images, film(3))
    assert list(made.token_ids) == expected["input_ids"][0].tolist()
    pictures, films = ([item.inputs for item in made.items if item.modality == modality]
                       for modality in ("image", "video"))  # fmt: skip
    for inputs, name in ((pictures, "pixel_values"), (films, "pixel_values_videos")):
        assert torch.equal(torch.cat([one[name] for one in inputs]), expected[name])
    for inputs, name in ((pictures, "image_grid_thw"), (films, "video_grid_thw")):
        assert torch.equal(torch.stack([one[name] for one in inputs]), expected[name])
    assert [float(one["second_per_grid_ts"]) for one in films] == [
        float(one) for one in expected["second_per_grid_ts"]
    ]
    assert own(images[::-1], film(3))["input_ids"][0].tolist() != list(made.token_ids)
    assert [item.feature.mm_position.length for item in made.items] == [6, 18, 8]


def test_films_are_told_frame_by_frame_as_the_processor_tells_them(tmp_path: Path) -> None:
    directory = tiny_models.ensure("qwen3_vl", tmp_path)
    made = Qwen3VLPrompts(directory).prompt(QWEN_TEXT, [picture(1), film(3, 0.5), picture(2)])
    own = own_of(directory, "<|vision_start|>", "<|vision_end|>")
    expected = own([picture(1), picture(2)], film(3, 0.5))
    assert list(made.token_ids) == expected["input_ids"][0].tolist()
    one, two, three = made.items
    pixels = torch.cat([one.inputs["pixel_values"], three.inputs["pixel_values"]])
    assert torch.equal(pixels, expected["pixel_values"])
    assert torch.equal(two.inputs["pixel_values_videos"], expected["pixel_values_videos"])
    assert torch.equal(two.inputs["video_grid_thw"], expected["video_grid_thw"][0])
    where = two.feature.mm_position
    told = made.token_ids[where.offset : where.end]
    assert where.is_embed == tuple(one == tiny_models.VIDEO_TOKEN_ID for one in told)
    assert where.get_num_embeds() == two.inputs["video_grid_thw"].prod() // 4
    other = own([picture(1), picture(2)], film(3, 1.0))
    assert other["input_ids"][0].tolist() != list(made.token_ids)


def test_pictures_in_tiles_are_what_the_processor_makes_of_them(tmp_path: Path) -> None:
    directory = tiny_models.ensure("cohere2_vision", tmp_path)
    images = [picture(1).resize((28, 28)), picture(2).resize((56, 28))]
    prompts = Cohere2VisionPrompts(directory)
    made = prompts.prompt("w0 <image> w1 <image> w2", images)
    expected = prompts.processor(
        text="w0 <image> w1 <image> w2", images=images, return_tensors="pt"
    )
    assert list(made.token_ids) == expected["input_ids"][0].tolist()
    pixels = torch.cat([item.inputs["pixel_values"] for item in made.items])
    assert torch.equal(pixels, expected["pixel_values"])
    assert [item.feature.mm_position.length for item in made.items] == [7, 17]
    assert [item.feature.mm_position.get_num_embeds() for item in made.items] == [4, 12]
    where = made.items[1].feature.mm_position
    told = made.token_ids[where.offset : where.end]
    assert where.is_embed == tuple(one == tiny_models.PLACEHOLDER_TOKEN_ID for one in told)


def test_films_that_run_at_another_speed_are_other_items(qwen: Path) -> None:
    prompts = Qwen25VLPrompts(qwen)
    made = [prompts.prompt("<video>", [film(3, seconds)]).items[0] for seconds in (0.5, 0.5, 1.0)]
    one, two, three = (item.feature.identifier for item in made)
    assert one == two != three


def test_a_sound_stands_beside_what_its_decoder_begins_with(whisper: WhisperPrompts) -> None:
    made = whisper.prompt("<audio>", [sound(1)])
    assert made.token_ids == (tiny_models.FIRST_TEXT_TOKEN_ID,)
    (item,) = made.items
    assert (item.feature.mm_position.offset, item.feature.mm_position.length) == (0, 50)
    heard = whisper.processor(
        audio=sound(1).samples, sampling_rate=SAMPLES_PER_SECOND, return_tensors="pt"
    )
    assert torch.equal(item.inputs["input_features"], heard["input_features"][0])
    assert whisper.prompt("<audio> w4 w5", [sound(2)]).token_ids == (10, 14, 15)
    start = "<|startoftranscript|>"
    assert whisper.prompt(f"{start}w4 <audio>", [sound(2)]).token_ids == (10, 14)
    asked = f"<|prev|>w4{start}<|de|><|transcribe|><|0.00|>"
    made = whisper.prompt(f"{asked} <audio>", [sound(2)])
    assert [WORDS[token_id] for token_id in made.token_ids] == [
        start,
        *("<|prev|>", "w4", start, "<|de|>", "<|transcribe|>", "<|0.00|>"),
    ]


def test_a_text_of_a_transcript_is_its_tokens(whisper: WhisperPrompts) -> None:
    end = WORDS.index(END)
    visible = [token_id for token_id in range(len(WORDS)) if token_id != end]
    text = whisper.processor.tokenizer.decode([*visible, end], skip_special_tokens=True)
    assert text.split() == [WORDS[token_id] for token_id in visible]


@pytest.fixture(scope="module")
def hears(tmp_path_factory: pytest.TempPathFactory) -> Qwen2AudioPrompts:
    return Qwen2AudioPrompts(tiny_models.ensure("qwen2_audio", tmp_path_factory.mktemp("models")))


def test_sounds_of_any_length_are_what_the_processor_makes_of_them(
    hears: Qwen2AudioPrompts,
) -> None:
    sounds = [sound(1, 0.8), sound(2, 0.33)]
    made = hears.prompt("w0 <audio> w1 <audio>", sounds)
    marked = "<|audio_bos|><|AUDIO|><|audio_eos|>"
    own = hears.processor(
        text=[f"w0 {marked} w1 {marked}"],
        audio=[one.samples for one in sounds],
        sampling_rate=SAMPLES_PER_SECOND,
        return_tensors="pt",
    )
    assert list(made.token_ids) == own["input_ids"][0].tolist()
    for name in ("input_features", "feature_attention_mask"):
        assert torch.equal(torch.stack([one.inputs[name] for one in made.items]), own[name])
    assert [one.feature.mm_position.length for one in made.items] == [20, 8]


@pytest.mark.parametrize(
    ("seconds", "words"), [(31.0, "expected 30.00 at most"), (0.005, "too short for one row")]
)
def test_a_sound_that_is_not_heard_is_refused(
    hears: Qwen2AudioPrompts, seconds: float, words: str
) -> None:
    with pytest.raises(BadPrompt, match=words):
        hears.prompt("<audio>", [sound(1, seconds)])


def test_other_media_than_the_marks_say_are_refused(prompts: Prompts) -> None:
    with pytest.raises(BadPrompt, match="expected the same"):
        prompts.prompt("<image> <image>", [picture(1)])
    with pytest.raises(BadPrompt, match="expected <image> for this model"):
        prompts.prompt("w1 <audio>", [sound(1)])


def test_a_placeholder_in_the_text_is_refused(qwen: Path) -> None:
    with pytest.raises(BadPrompt, match="names a placeholder itself"):
        Qwen25VLPrompts(qwen).prompt("<image> <|image_pad|>", [picture(1)])


@pytest.mark.parametrize(
    ("text", "seconds", "words"),
    [
        ("w1", (), "0 of <audio>"),
        ("<audio> <audio>", (0.5, 0.5), "2 of <audio>"),
        ("<audio>", (1.5,), "1.50 seconds; expected 1.00 at most"),
    ],
)
def test_a_decoder_hears_one_sound_and_all_of_it(
    whisper: WhisperPrompts, text: str, seconds: tuple[float, ...], words: str
) -> None:
    with pytest.raises(BadPrompt, match=words):
        whisper.prompt(text, [sound(1, one) for one in seconds])
