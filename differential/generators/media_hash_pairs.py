"""Pairs of images, videos and files that a careless media hash would confuse."""

import random

from cacheproof.differential.media.descriptions import Description, call
from cacheproof.differential.media.values import (
    array,
    image,
    integer,
    mapping,
    media,
    raw,
    sequence,
    some_bytes,
    tensor,
    text,
)

Two = tuple[Description, Description]


def image_forms(rng: random.Random) -> Two:
    data = some_bytes(rng, 12)
    sizes = rng.sample([(4, 1), (2, 2), (1, 4)], 2)
    one, two = (image("RGB", size, data) for size in sizes)
    if rng.random() < 0.5:
        one, two = (image("L", (12 // h, h), data) for h in rng.sample((1, 2, 3), 2))
    return one, two


def image_modes(rng: random.Random) -> Two:
    alike = rng.choice((
        (("L", (12, 1)), ("P", (12, 1)), ("RGB", (4, 1)), ("RGBA", (3, 1)), ("LA", (6, 1))),
        (("RGB", (4, 1)), ("YCbCr", (4, 1)), ("HSV", (4, 1)), ("LAB", (4, 1))),
        (("RGBA", (3, 1)), ("RGBX", (3, 1)), ("CMYK", (3, 1)), ("I", (3, 1)), ("F", (3, 1))),
        (("LA", (6, 1)), ("PA", (6, 1)), ("I;16", (6, 1)), ("I;16B", (6, 1))),
        (("L", (12, 1)), ("P", (12, 1))),
    ))  # fmt: skip
    data = bytes(rng.randrange(4) for _ in range(12))
    one, two = (
        image(mode, size, data, bytes(12) if mode in ("P", "PA") else None)
        for mode, size in rng.sample(alike, 2)
    )
    return one, two


def palettes(rng: random.Random) -> Two:
    palette = some_bytes(rng, 12)
    other = bytes((palette[0] ^ 1,)) + palette[1:]
    data = bytes((0, 1, 2, 3))
    return image("P", (2, 2), data, palette), image("P", (2, 2), data, other)


def transparencies(rng: random.Random) -> Two:
    mode, colours = rng.choice((("P", some_bytes(rng, 12)), ("L", None)))
    data = bytes((0, 1, 2, 3))
    one, two = rng.sample((None, 0, 1, 2), 2)
    return (
        image(mode, (2, 2), data, colours, one),
        image(mode, (2, 2), data, colours, two),
    )


def image_ids(rng: random.Random) -> Two:
    identity = bytes(rng.randrange(1, 128) for _ in range(16))
    shown = {"uuid": identity.hex()}
    values = [
        image("L", (1, 1), b"\1", image_id=shown),
        image("L", (1, 1), b"\2", image_id=shown),
        image("L", (1, 1), b"\1", image_id={"text": "a"}),
        image("L", (1, 1), b"\1"),
        raw(identity),
        text(identity.decode()),
        media(image("L", (1, 1), b"\3", image_id=shown), b"file"),
    ]
    first, second = rng.sample(values, 2)
    return first, second


def settings_of_image(rng: random.Random) -> Two:
    original = some_bytes(rng, 6)
    white = mapping(("image_mode", text("RGB")), ("background", sequence(integer(255))))
    black = mapping(("image_mode", text("RGB")), ("background", sequence(integer(0))))
    values = [
        media(image("RGB", (1, 1), b"\1\2\3"), original, white),
        media(image("RGB", (1, 1), b"\1\2\4"), original, black),
        media(image("RGB", (1, 1), b"\1\2\5"), original),
        media(image("L", (1, 1), b"\1"), original),
        raw(original),
    ]
    first, second = rng.sample(values, 2)
    return first, second


def frames_of_video(rng: random.Random) -> Two:
    """One file decoded to different frames, at times beside identical metadata."""
    original = some_bytes(rng, rng.choice((3, 60)))
    one, two = some_bytes(rng, 12), some_bytes(rng, 12)
    in_array = rng.random() < 0.5
    metadata = mapping(("fps", integer(1)), ("frames_indices", sequence(integer(0), integer(1))))
    videos = [
        array(data, "|u1", (2, 2, 1, 3)) if in_array else tensor(data, "uint8", (2, 2, 1, 3))
        for data in (one, two)
    ]
    wrapped = [media(video, original) for video in videos]
    if rng.random() < 0.5:
        wrapped = [sequence(video, metadata, kind="tuple") for video in wrapped]
    return call(video=wrapped[0]), call(video=wrapped[1])


def file_or_frames(rng: random.Random) -> Two:
    original = some_bytes(rng, 3)
    values = [
        call(video=media(array(bytes(12), "|u1", (2, 2, 1, 3)), original)),
        call(video=media(image("RGB", (1, 1), b"\1\2\3"), original)),
        call(video=mapping(("video", raw(original)))),
        call(video=array(bytes(12), "|u1", (2, 2, 1, 3))),
    ]
    first, second = rng.sample(values, 2)
    return first, second
