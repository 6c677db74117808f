"""What servers are asked, from seeds."""

import base64
import io
from typing import get_args

import numpy
import pytest
from PIL import Image, ImageSequence

from cacheproof.differential.serving.traffic import (
    FRAMES_PER_SECOND,
    MAX_MODEL_LEN,
    MODALITIES,
    MODELS_OF,
    QUESTIONS,
    SERVED_TASKS,
    ServedMedium,
    ServedModel,
    ServedTask,
    traffic,
)

SEEDS = range(30)
MODELS: tuple[ServedModel, ...] = get_args(ServedModel)


def media_of(seed: int, model: ServedModel) -> list[ServedMedium]:
    return [one for question in traffic(seed, model, 0).questions for one in question.media]


TASKS = [(task, model) for task in SERVED_TASKS for model in MODELS_OF[task]]


@pytest.mark.parametrize(("task", "model"), TASKS)
def test_a_seed_is_all_that_it_takes(task: ServedTask, model: ServedModel) -> None:
    assert traffic(3, model, 20, task) == traffic(3, model, 20, task)
    assert traffic(3, model, 20, task) != traffic(4, model, 20, task)
    assert traffic(3, model, 20, task).asks[:10] == traffic(3, model, 10, task).asks


@pytest.mark.parametrize(("task", "model"), TASKS)
def test_a_name_is_of_one_medium(task: ServedTask, model: ServedModel) -> None:
    for seed in SEEDS:
        asked = traffic(seed, model, 50, task)
        named: dict[str, bytes] = {}
        for one in asked.asks:
            media = asked.questions[one.question].media
            assert len(media) == len(one.uuids) == len(one.alone)
            for medium, uuid, is_alone in zip(media, one.uuids, one.alone, strict=True):
                assert uuid is not None or not is_alone
                if uuid is not None:
                    assert named.setdefault(uuid, medium.data) == medium.data


def test_a_scored_prompt_has_its_media_first_each_kind_together_and_with_its_data() -> None:
    others = set()
    for seed in SEEDS:
        asked, answered = traffic(seed, "qwen3_vl", 20, "score"), traffic(seed, "qwen3_vl", 20)
        for one, before in zip(asked.questions, answered.questions, strict=True):
            *media, words = one.parts
            assert isinstance(words, str)
            assert words.split() == [word for part in before.parts if isinstance(part, str)
                                     for word in part.split()]  # fmt: skip
            assert sorted(one.name for one in media) == sorted(one.name for one in before.media)
            kinds = [one.modality for one in one.media]
            assert kinds in (sorted(kinds), sorted(kinds, reverse=True))
        assert not any(any(one.alone) for one in asked.asks)
        others |= {one.other for one in asked.asks}
    assert others == set(range(QUESTIONS))


def test_every_way_to_ask_is_met() -> None:
    asks = [one for seed in SEEDS for one in traffic(seed, "llava", 40).asks]
    assert {one.salt for one in asks} == {None, "pepper", "salt"}
    assert {one.leaves_after for one in asks} == {None, *range(7)}
    assert {one.priority for one in asks} == set(range(4))
    assert {one.at_once for one in asks if one.leaves_after is None} == {True, False}
    assert any(any(one.alone) for one in asks)
    settings = [traffic(seed, "llava", 0).settings for seed in SEEDS]
    assert {one.processor_cache for one in settings} == {"lru", "shm", None}
    assert {one.whole_items for one in settings} == {True, False}
    assert {one.is_priority for one in settings} == {True, False}
    # A lone request of the greatest length has room beside the null block.
    assert all((one.num_blocks - 1) * one.block_size >= MAX_MODEL_LEN for one in settings)


def test_media_of_every_modality_are_sent_without_loss() -> None:
    met = {one.modality: one for seed in SEEDS for model in MODELS for one in media_of(seed, model)}
    assert set(met) == {one for modalities in MODALITIES.values() for one in modalities}
    film = met["video"]
    sent = film.part(None, has_data=True)["video_url"]["url"].removeprefix(
        "data:video/jpeg;base64,"
    )
    frames = [Image.open(io.BytesIO(base64.b64decode(one))) for one in sent.split(",")]
    with Image.open(io.BytesIO(film.data)) as file:
        kept = [frame.convert("RGB") for frame in ImageSequence.Iterator(file)]
        assert file.info["duration"] == 1000 / FRAMES_PER_SECOND
    assert len(frames) == len(kept) >= 2
    for one, other in zip(frames, kept, strict=True):
        assert (numpy.asarray(one) == numpy.asarray(other)).all()


def test_what_is_named_alone_is_not_sent() -> None:
    medium = ServedMedium("image", "image 1", b"data")
    assert medium.part("image 1", has_data=False) == {
        "type": "image_url",
        "image_url": None,
        "uuid": "image 1",
    }
    assert "uuid" not in medium.part(None, has_data=True)
