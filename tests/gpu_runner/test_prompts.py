from pathlib import Path

import numpy
import pytest
from PIL import Image

from cacheproof.gpu_runner.prompts import BadPrompt, ImagePrompts


def picture(seed: int) -> Image.Image:
    noise = numpy.random.RandomState(seed).randint(0, 256, (70, 90, 3))
    return Image.fromarray(noise.astype(numpy.uint8))


@pytest.fixture(scope="module")
def prompts(llava: Path) -> ImagePrompts:
    return ImagePrompts(llava)


def test_pictures_stand_where_the_text_has_them_and_equal_ones_are_one_item(
    prompts: ImagePrompts,
) -> None:
    made = prompts.prompt("w0 <image> w1 <image> <image>", [picture(1), picture(2), picture(1)])
    where = [item.feature.mm_position for item in made.items]
    assert [(one.offset, one.length) for one in where] == [(1, 16), (18, 16), (34, 16)]
    assert made.token_ids == (10, *[3] * 16, 11, *[3] * 32)
    one, two, three = (item.feature.identifier for item in made.items)
    assert one == three != two


def test_a_text_without_pictures_is_its_tokens(prompts: ImagePrompts) -> None:
    made = prompts.prompt("w0 w7", [])
    assert (made.token_ids, made.items) == ((10, 17), ())
    assert prompts.text(made.token_ids) == "w0 w7"


def test_places_without_pictures_are_refused(prompts: ImagePrompts) -> None:
    with pytest.raises(BadPrompt, match="2 of <image> in '<image> <image>' and 1 pictures"):
        prompts.prompt("<image> <image>", [picture(1)])
