"""From text and pictures to what a runner is given: tokens, and items where their tokens stand."""

from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image
from transformers import AutoProcessor

from cacheproof.gpu_runner.requests import MediaItem, Prompt
from cacheproof.reference.media_hash import MultiModalHasher
from cacheproof.reference.request import MultiModalFeature, PlaceholderRange

ALGORITHM = "blake3"


class BadPrompt(ValueError):
    """A prompt that the model's processor cannot take."""


class ImagePrompts:
    """Prompts of a LLaVA directory: `<image>` stands in the text where a picture belongs."""

    def __init__(self, directory: Path) -> None:
        self._processor = AutoProcessor.from_pretrained(directory, local_files_only=True)
        self._hasher = MultiModalHasher()

    def prompt(self, text: str, images: Sequence[Image.Image]) -> Prompt:
        """The prompt of a text and its pictures, in order; equal pictures are one item.

        Raises:
            BadPrompt: the text has another number of places than there are pictures.
        """
        mark = self._processor.image_token
        if text.count(mark) != len(images):
            raise BadPrompt(
                f"{text.count(mark)} of {mark} in {text!r} and {len(images)} pictures; expected as "
                f"many of one as of the other"
            )
        made = self._processor(text=text, images=list(images) or None, return_tensors="pt")
        token_ids = made["input_ids"][0].tolist()
        places = [at for at, one in enumerate(token_ids) if one == self._processor.image_token_id]
        rows = len(places) // max(len(images), 1)
        items = [
            self._item(image, PlaceholderRange(places[number * rows], rows), pixels)
            for number, (image, pixels) in enumerate(
                zip(images, made.get("pixel_values", ()), strict=True)
            )
        ]
        return Prompt(tuple(token_ids), tuple(items))

    def text(self, token_ids: Sequence[int]) -> str:
        """What tokens say."""
        return str(self._processor.decode(token_ids))

    def _item(self, image: Image.Image, where: PlaceholderRange, pixels: torch.Tensor) -> MediaItem:
        digest = self._hasher.hash_kwargs(ALGORITHM, image=image)
        return MediaItem(MultiModalFeature.of(digest, where), "image", {"pixel_values": pixels})
