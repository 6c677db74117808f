"""The ideal media hash tells contents apart and nothing else; each flag of a release shows."""

import hashlib
import itertools
import os
import struct
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy._core._rational_tests import rational
from PIL import Image

from cacheproof.differential.judges.examination import examine
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.targets.reference import ReferenceTarget
from cacheproof.reference.media_content import EXIF_IMAGE_ID, Refused, call, content
from cacheproof.reference.media_hash import (
    Indeterminate,
    MediaWithBytes,
    MultiModalHasher,
    media_kinds,
)
from cacheproof.reference.media_stream import decode, encode
from cacheproof.reference.semantics import Semantics
from cacheproof.reference.semantics.media import MediaSemantics
from cacheproof.spec.media_hash import DecodedStream, uniquely_decodable

IDEAL = MultiModalHasher()
NEWEST = Semantics.of_vllm("0.33.0").media
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=9)
)
VALUES = st.recursive(
    SCALARS,
    lambda child: (
        st.lists(child, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.integers(), child, max_size=3)
    ),
    max_leaves=6,
)


def digest(hasher: MultiModalHasher = IDEAL, /, **arguments: Any) -> str:
    return hasher.hash_kwargs("sha256", **arguments)


def image(mode: str = "RGB", size: tuple[int, int] = (2, 2), **info: Any) -> Image.Image:
    made = Image.new(mode, size)
    if mode == "P":
        made.putpalette(info.pop("palette", bytes(12)))
    identity = info.pop("image_id", None)
    if identity is not None:
        made.getexif()[EXIF_IMAGE_ID] = identity
    made.info.update(info)
    return made


@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=3))
def test_what_is_fed_to_the_digest_decodes_to_the_content(arguments: dict[str, Any]) -> None:
    tree = call(arguments)
    assert uniquely_decodable(DecodedStream(tree, decode(encode(tree))))


@given(VALUES, VALUES)
def test_values_of_one_type_and_worth_have_one_content(one: Any, other: Any) -> None:
    alike = type(one) is type(other) and repr(one) == repr(other)
    if alike:
        assert content(one) == content(other)


APART: dict[str, list[Any]] = {
    "eight bytes": [
        1,
        struct.unpack("<d", struct.pack("<q", 1))[0],
        struct.pack("<q", 1),
        struct.pack("<q", 1).decode(),
        numpy.array(1),
        numpy.array([1]),
        numpy.frombuffer(struct.pack("<q", 1), "u1"),
    ],
    "flags": [True, 1, 1.0, "\1", b"\1", numpy.bool_(True)],
    "zeros": [0, 0.0, -0.0, False, None, "", b"", [], {}, numpy.zeros(0), [None], {"": None}],
    "ints of any size": [2**63, -(2**63), 2**64, 2**64 + 1, -(2**64), 2**200],
    "keys": [{1: "a"}, {"1": "a"}, {True: "a"}, {None: "a"}, {"None": "a"}, ["", "a"], {"1a": ""}],
    "arrays": [
        numpy.zeros((2, 3), "<f4"),
        numpy.zeros((3, 2), "<f4"),
        numpy.zeros((2, 3), ">f4"),
        numpy.zeros((2, 3), "<i4"),
        numpy.zeros((2, 3), "|V4"),
        numpy.zeros((2, 3), "<M8[s]"),
        numpy.zeros((2, 3), "<M8[ns]"),
        numpy.zeros((2, 3), [("a", "<i2"), ("b", "<i2")]),
        numpy.zeros((2, 3), [("b", "<i2"), ("a", "<i2")]),
        numpy.zeros((2, 3), [("a", "<i2", (2,))]),
    ],
    "images": [
        image("RGB"),
        image("RGB", (4, 1)),
        image("RGB", (1, 4)),
        image("YCbCr"),
        image("L", (4, 3)),
        image("L", (4, 3), transparency=0),
        image("L", (4, 3), transparency=1),
        image("P"),
        image("P", palette=bytes(11) + b"\1"),
        image("P", transparency=0),
        image(image_id=uuid.UUID(int=1)),
        image(image_id=uuid.UUID(int=2)),
        uuid.UUID(int=1).bytes,
        numpy.zeros((2, 2, 3), "u1"),
    ],
}


@pytest.mark.parametrize("group", APART)
def test_different_contents_have_different_digests(group: str) -> None:
    digests = [digest(x=value) for value in APART[group]]
    assert len(set(digests)) == len(digests)


def test_a_boundary_between_key_and_value_cannot_move() -> None:
    assert digest(ab="c") != digest(a="bc")
    assert digest(a="b", c="d") != digest(a="bcd")
    assert digest(a=[["b"]]) != digest(a=["b"]) != digest(a={"0": "b"})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ([1, [2]], (1, (2,))),
        (b"ab", memoryview(b"ab")),
        (numpy.arange(6).reshape(2, 3), numpy.asfortranarray(numpy.arange(6).reshape(2, 3))),
        (numpy.int64(1), numpy.array(1)),
        (numpy.arange(6)[::2], numpy.array([0, 2, 4])),
        (image(), image(image_id="text is metadata")),
        (image(image_id=uuid.UUID(int=1)), image("L", image_id=uuid.UUID(int=1))),
        (MediaWithBytes(numpy.zeros(3), b"file"), numpy.zeros(3)),
        (MediaWithBytes(image(), b"file", {"image_mode": "RGB"}), image()),
    ],
)
def test_one_content_has_one_digest(one: Any, other: Any) -> None:
    assert digest(x=one) == digest(x=other)


def test_the_order_of_keywords_does_not_matter() -> None:
    assert digest(a=1, b=2) == digest(b=2, a=1)


def test_frames_count_where_files_are_equal() -> None:
    first, second = (MediaWithBytes(numpy.full((2, 2), fill), b"file") for fill in (1, 2))
    assert digest(video=first) != digest(video=second)
    of_release = MultiModalHasher(NEWEST)
    assert digest(of_release, video=first) == digest(of_release, video=second)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {"a": {1, 2}},
        numpy.array([None]),
        numpy.ma.masked_array([1, 2], [True, False]),
        {float("nan"): 1, float("nan"): 2},
        numpy.zeros(1, rational),
        numpy.zeros(1, [("a", rational)]),
    ],
)
def test_what_has_no_content_of_its_own_is_refused_by_name(value: Any) -> None:
    with pytest.raises(Refused, match="expected"):
        digest(x=value)


def test_each_algorithm_gives_its_own_digest() -> None:
    sizes = {name: len(IDEAL.hash_kwargs(name, x=1)) for name in ("blake3", "sha256", "sha512")}
    assert sizes == {"blake3": 64, "sha256": 64, "sha512": 128}
    assert IDEAL.hash_kwargs("sha256", x=1) == hashlib.sha256(encode(call({"x": 1}))).hexdigest()
    with pytest.raises(ValueError, match="algorithm 'md5'; expected one of"):
        IDEAL.hash_kwargs("md5", x=1)


DIGEST = "95b5282b4b74cf39f618020caadcc6892db53cf6e9d5772a9ea28bcc1a96760c"
PROGRAM = """
import numpy
from cacheproof.reference.media_hash import MultiModalHasher
array = numpy.arange(6, dtype="<i4")
value = {"b": [1, 2.5, None, "text"], "a": {"z": b"bytes", "y": True}, "c": array}
print(MultiModalHasher().hash_kwargs("sha256", second=value, first=-(2**70)))
"""


@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_every_process_gives_the_digest_that_is_written_here(seed: str) -> None:
    """The literal digest holds the stream fast: another one would part old keys from new ones."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == DIGEST


def test_a_release_without_a_choice_has_blake3_alone() -> None:
    with pytest.raises(ValueError, match="expected blake3, the release's only one"):
        MultiModalHasher(Semantics.of_vllm("0.14.1").media).hash_kwargs("sha256", x=1)


def test_an_int_beyond_64_bits_has_no_digest_in_any_release() -> None:
    with pytest.raises(Indeterminate):
        digest(MultiModalHasher(NEWEST), x=2**64)


def outcome(semantics: MediaSemantics, arguments: dict[str, Any], algorithm: str = "blake3") -> str:
    try:
        return MultiModalHasher(semantics).hash_kwargs(algorithm, **arguments)
    except Exception as error:
        return type(error).__name__


FRAMES = numpy.zeros((2, 4), "u1")
SHOWS: dict[str, Callable[[MediaSemantics], str]] = {
    "hashes_image_modes": lambda s: outcome(s, {"x": image("L")}),
    "hashes_array_views": lambda s: outcome(s, {"x": numpy.zeros(1, "<M8[s]")}),
    "hashes_original_bytes": lambda s: str(media_kinds(s)),
    "hashes_none_by_key": lambda s: outcome(s, {"x": None}),
    "chooses_media_digest": lambda s: outcome(s, {}, "sha256"),
    "hashes_array_scalars": lambda s: outcome(s, {"x": numpy.array(1.5)}),
    "sorts_keywords": lambda s: outcome(s, {"b": 1, "a": 2}),
    "hashes_decode_settings": lambda s: outcome(s, {"x": MediaWithBytes(image(), b"f", {"a": 1})}),
    "hashes_video_bytes": lambda s: outcome(s, {"x": MediaWithBytes(FRAMES, b"f")}),
    "hashes_video_tensors": lambda s: str(media_kinds(s)),
    "frames_media_chunks": lambda s: outcome(s, {"x": 1}),
    "hashes_frames": lambda s: outcome(s, {"x": MediaWithBytes(FRAMES, b"f")}),
    "tags_types": lambda s: outcome(s, {"x": 1}),
    "hashes_whole_values": lambda s: outcome(s, {"x": image("L")}),
    "sorts_mappings": lambda s: outcome(s, {"x": {"b": 1, "a": 2}}),
    "hashes_nodes": lambda s: outcome(s, {"x": 1}),
}


@pytest.mark.parametrize("flag", SHOWS)
def test_a_flag_alone_changes_an_outcome(flag: str) -> None:
    """Flags of releases show beside the release that had them last or first; the last beside the
    ideal."""
    base = MediaSemantics() if flag == "hashes_nodes" else NEWEST
    if flag == "hashes_none_by_key":
        base = Semantics.of_vllm("0.30.0").media
    before, after = (replace(base, **{flag: value}) for value in (False, True))
    assert SHOWS[flag](before) != SHOWS[flag](after)


@pytest.mark.parametrize(
    ("one", "other"), list(itertools.combinations(("0.10.2", "0.11.0", "0.28.0", "0.33.0"), 2))
)
def test_an_image_is_hashed_in_another_way_by_these_releases(one: str, other: str) -> None:
    shown = {"x": image("P", palette=bytes(range(12)), transparency=0)}
    same = {one, other} == {"0.11.0", "0.28.0"}
    digests = {outcome(Semantics.of_vllm(release).media, shown) for release in (one, other)}
    assert len(digests) == (1 if same else 2)


MENDED = ("hashes_frames", "tags_types", "hashes_whole_values", "sorts_mappings")
"""What no release does, and what would keep every contract in the stream of the newest."""


@pytest.mark.parametrize("missing", [None, *MENDED])
def test_the_newest_stream_keeps_every_contract_with_four_changes_and_not_with_three(
    missing: str | None,
) -> None:
    flags = {f"media.{flag}": flag != missing for flag in MENDED}
    semantics = Semantics.of_vllm("0.33.0").changed(flags)
    target = ReferenceTarget(semantics, release="0.33.0")
    traces = [LANES["media hash"].trace(seed, "0.33.0") for seed in range(60)]
    broken = {
        contract
        for trace, result in zip(traces, target.run(traces), strict=True)
        for contract in examine(trace, result, target).violations
    }
    assert bool(broken) == (missing is not None)
