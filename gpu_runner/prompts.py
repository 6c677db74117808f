"""From text and media to what a runner is given: tokens, and items where their tokens stand.

Marks stand in a text where media belong. What stands there for the model, and what its encoder
gets, is the model's own.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoProcessor

from cacheproof.gpu_runner.jobs import SAMPLES_PER_SECOND
from cacheproof.gpu_runner.marks import MARK
from cacheproof.gpu_runner.media_files import Film, Medium, Sound
from cacheproof.gpu_runner.models.qwen2_audio import num_audio_rows
from cacheproof.gpu_runner.requests import MediaItem, RunnerPrompt
from cacheproof.reference.media_hash import MultiModalHasher
from cacheproof.reference.request import MultiModalFeature, PlaceholderRange

ALGORITHM = "blake3"


class BadPrompt(ValueError):
    """A prompt that the model's processor cannot take."""


class _Made(NamedTuple):
    """What a processor makes of a medium: tensors for the encoder, and how many rows come of it;
    what stands in a prompt for it, where that is not a placeholder for each row."""

    inputs: dict[str, torch.Tensor]
    num_rows: int
    token_ids: tuple[int, ...] | None = None


class Prompts:
    """Prompts of one model, from its directory."""

    modalities: frozenset[str] = frozenset()

    def __init__(self, directory: Path) -> None:
        self.config = json.loads((directory / "config.json").read_text())
        self.processor: Any = AutoProcessor.from_pretrained(
            directory, local_files_only=True, trust_remote_code=False
        )
        self._hasher = MultiModalHasher()

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Tokens that end an answer."""
        end = self.processor.tokenizer.eos_token_id
        return () if end is None else (end,)

    def prompt(self, text: str, media: Sequence[Medium]) -> RunnerPrompt:
        """The prompt of a text and its media, in order; equal media are one item.

        Raises:
            BadPrompt: the text has other marks than there are media, or what the model cannot take.
        """
        marks = MARK.findall(text)
        if marks != (given := list(map(modality_of, media))):
            raise BadPrompt(f"{marks} in {text!r} and {given} beside it; expected the same")
        for modality in marks:
            if modality not in self.modalities:
                able = " and ".join(sorted(f"<{one}>" for one in self.modalities))
                raise BadPrompt(f"<{modality}> in {text!r}; expected {able} for this model")
        return self._prompt(text, list(zip(marks, media, map(self._make, media), strict=True)))

    def text(self, token_ids: Sequence[int]) -> str:
        """What tokens say."""
        return str(self.processor.tokenizer.decode(token_ids))

    def _make(self, medium: Medium) -> _Made:
        raise NotImplementedError

    def _placeholder(self, modality: str) -> int:
        """The token that stands for each row of an item."""
        raise NotImplementedError

    def _written(self, modality: str) -> Sequence[int]:
        """What stands in a text for an item, with one placeholder."""
        return [self._placeholder(modality)]

    def _prompt(self, text: str, given: Sequence[tuple[str, Medium, _Made]]) -> RunnerPrompt:
        """Placeholders of an item stand in the text, one for each row."""
        tokenizer = self.processor.tokenizer
        written = MARK.sub(
            lambda mark: "".join(tokenizer.convert_ids_to_tokens(self._written(mark[1]))), text
        )
        token_ids: list[int] = []
        items = []
        placeholders = {self._placeholder(modality) for modality in self.modalities}
        rest = iter(given)
        for token_id in tokenizer(written)["input_ids"]:
            if token_id not in placeholders:
                token_ids.append(token_id)
                continue
            if (one := next(rest, None)) is None:
                raise BadPrompt(f"{text!r} names a placeholder itself; expected marks")
            modality, medium, made = one
            items.append(self._item(modality, medium, made, len(token_ids)))
            token_ids += made.token_ids or [token_id] * made.num_rows
        return RunnerPrompt(tuple(token_ids), tuple(items))

    def _item(self, modality: str, medium: Medium, made: _Made, offset: int) -> MediaItem:
        fields = medium._asdict() if isinstance(medium, Film | Sound) else {"image": medium}
        digest = self._hasher.hash_kwargs(ALGORITHM, **fields)
        where = PlaceholderRange(offset, made.num_rows)
        if made.token_ids is not None:
            placeholder = self._placeholder(modality)
            mask = tuple(token_id == placeholder for token_id in made.token_ids)
            where = PlaceholderRange(offset, len(mask), mask)
        return MediaItem(MultiModalFeature.of(digest, where), modality, made.inputs)


class LlavaPrompts(Prompts):
    """Pictures of one size."""

    modalities = frozenset({"image"})

    def _placeholder(self, modality: str) -> int:
        return int(self.processor.image_token_id)

    def _make(self, medium: Medium) -> _Made:
        made = self.processor(text=self.processor.image_token, images=[medium], return_tensors="pt")
        rows = (made["input_ids"] == self._placeholder("image")).sum()
        return _Made({"pixel_values": made["pixel_values"][0]}, int(rows))


class Cohere2VisionPrompts(Prompts):
    """Pictures in tiles, with marks around each picture and a line break behind each tile."""

    modalities = frozenset({"image"})

    def _placeholder(self, modality: str) -> int:
        return int(self.processor.image_token_id)

    def _make(self, medium: Medium) -> _Made:
        made = self.processor(text=self.processor.image_token, images=[medium], return_tensors="pt")
        token_ids = made["input_ids"][0].tolist()
        begin = self.processor.tokenizer.convert_tokens_to_ids(self.processor.boi_token)
        token_ids = tuple(token_ids[token_ids.index(begin) :])  # no mark of a text's beginning
        rows = token_ids.count(self._placeholder("image"))
        return _Made({"pixel_values": made["pixel_values"]}, rows, token_ids)


class Qwen25VLPrompts(Prompts):
    """Pictures of any size, and films, whose frames are taken in pairs."""

    modalities = frozenset({"image", "video"})

    def _placeholder(self, modality: str) -> int:
        return int(self.config[f"{modality}_token_id"])

    def _written(self, modality: str) -> Sequence[int]:
        begin, end = self.config["vision_start_token_id"], self.config["vision_end_token_id"]
        return [begin, self._placeholder(modality), end]

    def _make(self, medium: Medium) -> _Made:
        if isinstance(medium, Film):
            own = self.processor.video_processor
            made = own([medium.frames], do_sample_frames=False, return_tensors="pt")
            grid = made["video_grid_thw"][0]
            seconds = own.temporal_patch_size * medium.seconds_of_a_frame
            inputs = {
                "pixel_values_videos": made["pixel_values_videos"],
                "video_grid_thw": grid,
                "second_per_grid_ts": torch.tensor(seconds),
            }
        else:
            own = self.processor.image_processor
            made = own([medium], return_tensors="pt")
            grid = made["image_grid_thw"][0]
            inputs = {"pixel_values": made["pixel_values"], "image_grid_thw": grid}
        return _Made(inputs, int(grid.prod()) // own.merge_size**2)


class Qwen3VLPrompts(Qwen25VLPrompts):
    """Films are told frame by frame: the time of each pair of frames stands before its rows."""

    def _make(self, medium: Medium) -> _Made:
        if not isinstance(medium, Film):
            return super()._make(medium)
        count = len(medium.frames)
        told = {
            "fps": 1 / medium.seconds_of_a_frame,
            "total_num_frames": count,
            "frames_indices": list(range(count)),
        }
        made = self.processor(
            text=[self.processor.video_token],
            videos=[medium.frames],
            video_metadata=[told],
            do_sample_frames=False,
            return_tensors="pt",
        )
        token_ids = tuple(made["input_ids"][0].tolist())
        inputs = {
            "pixel_values_videos": made["pixel_values_videos"],
            "video_grid_thw": made["video_grid_thw"][0],
        }
        return _Made(inputs, token_ids.count(self._placeholder("video")), token_ids)


class SoundPrompts(Prompts):
    """Sounds, none of which is longer than the encoder's window."""

    modalities = frozenset({"audio"})

    def _heard(self, medium: Medium) -> dict[str, torch.Tensor]:
        """What the encoder gets of a sound: features of [bins, frames], and which frames there are.

        Raises:
            BadPrompt: it is longer than what is heard.
        """
        assert isinstance(medium, Sound)
        own = self.processor.feature_extractor
        if len(medium.samples) > own.n_samples:
            heard, given = (n / SAMPLES_PER_SECOND for n in (own.n_samples, len(medium.samples)))
            raise BadPrompt(
                f"a sound of {given:.2f} seconds; expected {heard:.2f} at most, which are heard"
            )
        made = own(
            medium.samples,
            sampling_rate=SAMPLES_PER_SECOND,
            return_attention_mask=True,
            return_tensors="pt",
        )
        return {
            "input_features": made["input_features"][0],
            "feature_attention_mask": made["attention_mask"][0],
        }


class Qwen2AudioPrompts(SoundPrompts):
    """Sounds of any length, between marks."""

    def _placeholder(self, modality: str) -> int:
        return int(self.processor.audio_token_id)

    def _written(self, modality: str) -> Sequence[int]:
        own = self.processor
        marks = (own.audio_bos_token, own.audio_eos_token)
        begin, end = own.tokenizer.convert_tokens_to_ids(marks)
        return [begin, self._placeholder(modality), end]

    def _make(self, medium: Medium) -> _Made:
        inputs = self._heard(medium)
        num_rows = num_audio_rows(int(inputs["feature_attention_mask"].sum()))[1]
        if num_rows < 1:
            raise BadPrompt("a sound that is too short for one row; expected 0.03 seconds at least")
        return _Made(inputs, num_rows)


class WhisperPrompts(SoundPrompts):
    """A sound, and what its decoder begins with."""

    def _make(self, medium: Medium) -> _Made:
        return _Made(self._heard(medium), self.config["max_source_positions"])

    def _prompt(self, text: str, given: Sequence[tuple[str, Medium, _Made]]) -> RunnerPrompt:
        """Whoever decodes attends to the item, of which nothing stands in the text."""
        if len(given) != 1:
            raise BadPrompt(f"{len(given)} of <audio> in {text!r}; expected one")
        begin = self.config["decoder_start_token_id"]
        spoken = MARK.sub("", text).strip()
        token_ids = self.processor.tokenizer(spoken, add_special_tokens=False)["input_ids"]
        if token_ids[:1] != [begin]:
            token_ids = [begin, *token_ids]
        return RunnerPrompt(tuple(token_ids), (self._item(*given[0], 0),))


OF_MODEL: dict[str, type[Prompts]] = {
    "cohere2_vision": Cohere2VisionPrompts,
    "llava": LlavaPrompts,
    "qwen2_5_vl": Qwen25VLPrompts,
    "qwen2_audio": Qwen2AudioPrompts,
    "qwen3_vl": Qwen3VLPrompts,
    "whisper": WhisperPrompts,
}
"""By the type that a model's configuration names."""


def modality_of(medium: Medium) -> str:
    """The word that marks a medium in a text."""
    if isinstance(medium, Film):
        return "video"
    return "audio" if isinstance(medium, Sound) else "image"
