"""What is posted for a transcript, and what is made of each kind of answer."""

from dataclasses import replace
from email import message_from_bytes
from typing import Any

import pytest

from cacheproof.differential.serving.answers import Segment, ServerAnswer
from cacheproof.differential.serving.traffic import (
    AskedPrompt,
    ChatPrompt,
    ServedMedium,
    Wish,
    traffic,
)
from cacheproof.differential.serving.transcripts import Transcript
from cacheproof.gpu_runner.whisper_words import FIRST_TIME_ID, WORDS

WISH = Wish("w1 w2", "de", "translate", has_times=False)
CUT = replace(WISH, task="transcribe", has_times=True)
SOUND = ServedMedium("audio", "audio 1", b"h" * 44 + b"s" * 640)
AT_ONCE = AskedPrompt(0, 8, (None,), (False,), 0, None, leaves_after=None, at_once=True)
STREAM = replace(AT_ONCE, at_once=False)
SEGMENTS: list[dict[str, Any]] = [
    {"start": 0.0, "end": 0.04, "text": "w5", "tokens": [15], "avg_logprob": -1.0},
    {"start": 0.06, "end": 0.06, "text": "", "tokens": [], "avg_logprob": 0.0},
]
CUT_ANSWER: dict[str, Any] = {"language": "de", "text": "w5 ", "segments": SEGMENTS}


def posted(wish: Wish, request: AskedPrompt) -> tuple[str, dict[str, bytes]]:
    """Where, and the fields of the form."""
    one = Transcript(ChatPrompt((wish.beginning, SOUND), wish), wish, request).posted
    form = message_from_bytes(f"Content-Type: {one.content_type}\r\n\r\n".encode() + one.body)
    fields: dict[str, bytes] = {}
    for part in form.get_payload():
        assert not isinstance(part, str)
        name, content = (
            part.get_param("name", header="content-disposition"),
            part.get_payload(decode=True),
        )
        assert isinstance(name, str)
        assert isinstance(content, bytes)
        fields[name] = content
    return one.path, fields


def taken(wish: Wish, request: AskedPrompt, *told: dict[str, Any]) -> ServerAnswer:
    transcript = Transcript(ChatPrompt((wish.beginning, SOUND), wish), wish, request)
    for one in told:
        transcript.take(one)
    return transcript.answer


def piece(text: str, ended: str | None = None) -> dict[str, Any]:
    return {"choices": [{"delta": {"content": text}, "finish_reason": ended}]}


def test_a_wish_is_a_form_and_what_a_decoder_begins_with() -> None:
    path, fields = posted(WISH, STREAM)
    assert path == "/v1/audio/translations"
    assert fields["file"] == SOUND.data
    assert fields["prompt"] == b"w1 w2"
    assert fields["language"] == b"de"
    assert fields["max_completion_tokens"] == b"8"
    assert fields["stream"] == b"true"
    assert WISH.beginning == "<|prev|>w1 w2<|startoftranscript|><|de|><|translate|><|notimestamps|>"
    path, fields = posted(CUT, AT_ONCE)
    assert path == "/v1/audio/transcriptions"
    assert fields["response_format"] == b"verbose_json"
    assert "stream" not in fields
    bare = replace(CUT, words="")
    assert bare.beginning == "<|startoftranscript|><|de|><|transcribe|><|0.00|>"


def test_a_transcript_at_once_and_as_a_stream_has_the_same_words() -> None:
    at_once = taken(WISH, AT_ONCE, {"text": " w5 <|0.02|>"})
    end = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}}
    streamed = taken(WISH, STREAM, piece("w5"), piece(" <|0.02|>"), piece("", "stop"), end)
    assert at_once.tokens == streamed.tokens
    assert [token_id for token_id, *_ in at_once.tokens] == [15, FIRST_TIME_ID + 1]
    assert not at_once.tells_end
    assert (streamed.ended, streamed.tells_end) == ("stop", True)
    assert streamed.lengths == (7, 3)  # two frames of 10 ms are no tokens


def test_segments_tell_all_tokens_before_the_last_cut() -> None:
    answer = taken(CUT, AT_ONCE, CUT_ANSWER)
    times = [FIRST_TIME_ID + number for number in (2, 3)]
    assert [token_id for token_id, *_ in answer.tokens] == [15, *times]
    assert answer.segments == [Segment(0, 2, 3, -1.0), Segment(3, 3, 1, 0.0)]
    assert answer.shows == "cut"
    assert taken(CUT, AT_ONCE, CUT_ANSWER | {"text": "w5"}) == answer
    assert taken(CUT, AT_ONCE, {"language": "de", "text": "", "segments": []}).tokens == []


@pytest.mark.parametrize(
    ("wish", "told", "words"),
    [
        (WISH, {"text": "w5 nonsense"}, "'nonsense' is no word"),
        (CUT, CUT_ANSWER | {"language": "fr"}, "it is in fr, expected de"),
        (CUT, CUT_ANSWER | {"text": "w6"}, "'w6' is said of segments"),
        (CUT, CUT_ANSWER | {"segments": [SEGMENTS[0] | {"tokens": [16]}]}, "'w5' is said of tok"),
    ],
)
def test_what_is_no_transcript(wish: Wish, told: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        taken(wish, AT_ONCE, told)


def test_every_way_to_ask_for_a_transcript_is_met() -> None:
    seeds = [traffic(seed, "whisper", 40) for seed in range(30)]
    wishes = [one.wish for each in seeds for one in each.questions if one.wish is not None]
    assert {one.task for one in wishes} == {"transcribe", "translate"}
    assert {one.language for one in wishes} == {"de", "en", "fr", "ja"}
    assert {one.has_times for one in wishes} == {True, False}
    assert {bool(one.words) for one in wishes} == {True, False}
    assert all(word in WORDS for one in wishes for word in one.words.split())
    asks = [one for each in seeds for one in each.asks]
    assert {one.leaves_after for one in asks} == {None, *range(7)}
    assert {one.at_once for one in asks if one.leaves_after is None} == {True, False}
    for each in seeds:
        settings = each.settings
        assert settings.max_num_batched_tokens >= settings.max_model_len
        # A lone request of the greatest length has room beside the null block.
        rows = settings.max_num_batched_tokens
        assert (settings.num_blocks - 1) * settings.block_size >= settings.max_model_len + rows
