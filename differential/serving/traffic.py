"""What clients ask a server, from a seed: how it is started, prompts with media, and who asks what.

Few prompts are asked many times, and share their beginnings and their media, so that every cache
has something to give.
"""

import base64
import io
import random
import wave
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from cacheproof.gpu_runner import whisper_words

if TYPE_CHECKING:
    from PIL.Image import Image

ServedModel = Literal["llava", "qwen2_5_vl", "qwen3_vl", "qwen2_audio", "whisper"]
SERVED_MODELS: tuple[ServedModel, ...] = get_args(ServedModel)
ServedTask = Literal["generate", "embed", "classify", "score"]
SERVED_TASKS: tuple[ServedTask, ...] = get_args(ServedTask)
UNITS: Mapping[ServedTask, str] = {
    "generate": "token",
    "embed": "embedding",
    "classify": "classification",
    "score": "score",
}
"""What is compared of an answer, one by one."""
MODELS_OF: Mapping[ServedTask, tuple[ServedModel, ...]] = {
    "generate": SERVED_MODELS,
    "embed": ("llava", "qwen2_5_vl", "qwen3_vl", "qwen2_audio"),
    "classify": ("llava", "qwen2_5_vl", "qwen2_audio"),
    "score": ("llava", "qwen3_vl"),
}
"""The models that are asked for it. A Whisper has no chats; 0.32.0 loads no Qwen3-VL with a head,
and scores no sound; and where a score's medium goes, releases write marks of their own, which the
tiny Qwen2.5-VL does not know."""
MODALITIES: dict[ServedModel, tuple[str, ...]] = {
    "llava": ("image",),
    "qwen2_5_vl": ("image", "video"),
    "qwen3_vl": ("image", "video"),
    "qwen2_audio": ("audio",),
    "whisper": ("audio",),
}
MAX_MODEL_LEN = 320
TRANSCRIPT_TOKENS_MAX = 96
"""Most tokens of a model that transcribes: a step has room for a whole prompt and answer."""
MAX_TOKENS = 48
QUESTIONS = 10
MEDIA = 6
FRAMES_PER_SECOND = 2
SAMPLES_PER_SECOND = 16_000
SQUARE = 28
_WORDS = 60


@dataclass(frozen=True)
class ServedMedium:
    """A picture, film or sound: its name, and a file of it."""

    modality: str
    name: str
    data: bytes
    frames: tuple[bytes, ...] = ()

    @property
    def suffix(self) -> str:
        return ".wav" if self.modality == "audio" else ".png"

    def part(self, uuid: str | None, *, has_data: bool) -> dict[str, object]:
        """The medium as it stands in a message of a chat; without data, the uuid alone is sent."""
        part: dict[str, object]
        if self.modality == "audio":
            sound = {"data": _base64(self.data), "format": "wav"}
            part = {"type": "input_audio", "input_audio": sound if has_data else None}
        else:
            kind = f"{self.modality}_url"
            part = {"type": kind, kind: {"url": self._url} if has_data else None}
        return part if uuid is None else part | {"uuid": uuid}

    @property
    def _url(self) -> str:
        if self.frames:  # whose frames a server takes as any pictures, whatever it calls them
            return f"data:video/jpeg;base64,{','.join(map(_base64, self.frames))}"
        return f"data:image/png;base64,{_base64(self.data)}"


Part = str | ServedMedium


@dataclass(frozen=True)
class Wish:
    """What a client wants to have of a sound: a transcript.

    Attributes:
        words: that came before, as the client says; empty for none.
        language: of the sound, by its code.
        has_times: whether the transcript is cut at its times.
    """

    words: str
    language: str
    task: str
    has_times: bool

    @property
    def beginning(self) -> str:
        """What a decoder begins with, as releases write it."""
        before = f"{whisper_words.PREVIOUS}{self.words}" if self.words else ""
        times = whisper_words.WORDS[whisper_words.FIRST_TIME_ID]
        last = times if self.has_times else whisper_words.NO_TIMES
        return f"{before}{whisper_words.START}<|{self.language}|><|{self.task}|>{last}"


@dataclass(frozen=True)
class ChatPrompt:
    """A prompt: words and media, in order; with a wish, what a decoder begins with, and a sound."""

    parts: tuple[Part, ...]
    wish: Wish | None = None

    @property
    def media(self) -> list[ServedMedium]:
        return [part for part in self.parts if isinstance(part, ServedMedium)]

    @property
    def text(self) -> str:
        """The prompt as text, with a mark for each medium, as `generate` takes it."""
        return " ".join(part if isinstance(part, str) else f"<{part.modality}>"
                        for part in self.parts)  # fmt: skip


@dataclass(frozen=True)
class AskedPrompt:
    """One request of a client.

    Attributes:
        question: which question, by number.
        uuids: the client's names of its media; None for those that it gives none.
        alone: which of them it names without sending them, for it has before.
        leaves_after: tokens after which the client hangs up; None for one that stays.
        at_once: whether the answer comes at its end, and not token by token.
        other: the question that a score is of, too.
    """

    question: int
    max_tokens: int
    uuids: tuple[str | None, ...]
    alone: tuple[bool, ...]
    priority: int
    salt: str | None
    leaves_after: int | None
    at_once: bool
    other: int | None = None


@dataclass(frozen=True)
class Settings:
    """How a server is started.

    Attributes:
        num_blocks: KV blocks of `block_size` tokens, the null block among them.
        max_model_len: tokens of a prompt and its answer, at most.
        processor_cache: where processed media are kept; None for nowhere.
        task: what is asked for: tokens, or of a prompt its embedding, its class, or how like
            another one it is.
        api_servers: processes that clients ask, and engines: those that compute.
    """

    max_num_batched_tokens: int
    max_num_seqs: int
    num_blocks: int
    block_size: int
    max_model_len: int
    prefix_caching: bool
    is_priority: bool
    whole_items: bool
    processor_cache: Literal["lru", "shm"] | None
    task: ServedTask = "generate"
    api_servers: int = 1
    engines: int = 1

    @property
    def has_several(self) -> bool:
        """Whether it takes several processes of a kind."""
        return self.api_servers > 1 or self.engines > 1


@dataclass(frozen=True)
class Traffic:
    """All that one server is asked."""

    settings: Settings
    questions: tuple[ChatPrompt, ...]
    asks: tuple[AskedPrompt, ...]


def traffic(seed: int, model: ServedModel, requests: int, task: ServedTask = "generate") -> Traffic:
    """What that many requests of clients are, from a seed."""
    rng = random.Random(f"{model} {seed}")
    drawn = _transcripts(rng, requests) if model == "whisper" else _chats(rng, model, requests)
    settings = replace(drawn.settings, task=task)
    if task != "score":
        return replace(drawn, settings=settings)
    rng = random.Random(f"score {model} {seed}")
    moved = tuple(map(_media_first, drawn.questions))
    asks = [
        replace(
            one,
            uuids=tuple(rng.choice((None, medium.name)) for medium in moved[one.question].media),
            alone=(False,) * len(one.alone),  # 0.32.0 refuses scores of names alone
            other=rng.randrange(len(moved)),
        )
        for one in drawn.asks
    ]
    return Traffic(settings, moved, tuple(asks))


def _media_first(question: ChatPrompt) -> ChatPrompt:
    """A prompt as it is scored: its media first, and those of a kind together, wherever they
    stood."""
    kinds = list(dict.fromkeys(medium.modality for medium in question.media))
    media = sorted(question.media, key=lambda medium: kinds.index(medium.modality))
    return ChatPrompt((*media, " ".join(part for part in question.parts if isinstance(part, str))))


def _chats(rng: random.Random, model: ServedModel, requests: int) -> Traffic:
    """What a model is asked that answers."""
    settings = Settings(
        max_num_batched_tokens=rng.choice((64, 96, 192)),
        max_num_seqs=rng.choice((4, 8, 16)),
        num_blocks=1 + MAX_MODEL_LEN // 32 + rng.choice((0, 2, 6)),
        block_size=32,
        max_model_len=MAX_MODEL_LEN,
        prefix_caching=rng.random() < 0.75,
        is_priority=rng.random() < 0.5,
        # Others may be given items that are larger than a step.
        whole_items=model == "llava" and rng.random() < 0.3,
        processor_cache=rng.choice(("lru", "lru", "shm", None)),
    )
    media = [medium_of(rng, rng.choice(MODALITIES[model]), number) for number in range(MEDIA)]
    questions: list[ChatPrompt] = []
    while len(questions) < QUESTIONS:
        beginning = rng.choice(questions).parts if questions and rng.random() < 0.6 else ()
        questions.append(ChatPrompt((*beginning[: rng.randint(0, 4)], *_some_parts(rng, media))))
    return Traffic(settings, tuple(questions), tuple(_asks(rng, settings, questions, requests)))


def _transcripts(rng: random.Random, requests: int) -> Traffic:
    """What a model is asked that transcribes. No release has prefix caching or chunks of prompts
    for it, and nothing that asks for a transcript has a priority, a salt or a name."""
    step = TRANSCRIPT_TOKENS_MAX * rng.choice((1, 1, 2))
    settings = Settings(
        max_num_batched_tokens=step,
        max_num_seqs=rng.choice((4, 8, 16)),
        # Releases want room for as many rows of a sound as a step has tokens.
        num_blocks=1 + (TRANSCRIPT_TOKENS_MAX + step) // 32 + rng.choice((0, 1, 4)),
        block_size=32,
        max_model_len=TRANSCRIPT_TOKENS_MAX,
        prefix_caching=False,
        is_priority=rng.random() < 0.5,
        whole_items=False,
        processor_cache=rng.choice(("lru", "lru", "shm", None)),
    )
    media = [medium_of(rng, "audio", number) for number in range(MEDIA)]
    questions = [_wished(rng, rng.choice(media)) for _ in range(QUESTIONS)]
    return Traffic(settings, tuple(questions), tuple(_wishes(rng, questions, requests)))


def _wished(rng: random.Random, sound: ServedMedium) -> ChatPrompt:
    wish = Wish(
        " ".join(f"w{rng.randint(1, _WORDS)}" for _ in range(rng.choice((0, 0, 4, 12, 24)))),
        rng.choice(whisper_words.LANGUAGES),
        rng.choice(whisper_words.TASKS),
        has_times=rng.random() < 0.4,
    )
    return ChatPrompt((wish.beginning, sound), wish)


def _wishes(
    rng: random.Random, questions: Sequence[ChatPrompt], requests: int
) -> Iterator[AskedPrompt]:
    for _ in range(requests):
        number = rng.randrange(len(questions))
        wish = questions[number].wish
        assert wish is not None
        leaves = rng.random() < 0.15
        told, leaves_after = rng.random() < 0.5, rng.randint(0, 6)
        if wish.has_times:  # such a transcript comes at once, and none that is left has anything
            told, leaves_after = True, 0
        yield AskedPrompt(
            number,
            max_tokens=rng.randint(1, MAX_TOKENS),
            uuids=(None,),
            alone=(False,),
            priority=0,
            salt=None,
            leaves_after=leaves_after if leaves else None,
            at_once=told and not leaves,
        )


def _some_parts(rng: random.Random, media: Sequence[ServedMedium]) -> Iterator[Part]:
    for _ in range(rng.randint(1, 2)):
        yield _words(rng)
        yield rng.choice(media)
    yield _words(rng)


def _words(rng: random.Random) -> str:
    return " ".join(f"w{rng.randrange(_WORDS)}" for _ in range(rng.randint(1, 24)))


def _asks(
    rng: random.Random, settings: Settings, questions: Sequence[ChatPrompt], requests: int
) -> Iterator[AskedPrompt]:
    for _ in range(requests):
        question = rng.randrange(len(questions))
        uuids, alone = [], []
        for medium in questions[question].media:
            # A name is of one medium; a medium may have several.
            name = rng.choice((None, medium.name, f"{medium.name}, again"))
            uuids.append(name)
            alone.append(
                name is not None and settings.processor_cache is not None and rng.random() < 0.4
            )
        leaves = rng.random() < 0.15
        yield AskedPrompt(
            question,
            max_tokens=rng.randint(1, MAX_TOKENS),
            uuids=tuple(uuids),
            alone=tuple(alone),
            priority=rng.randrange(4) if settings.is_priority else 0,
            salt=rng.choice((None, None, "pepper", "salt")),
            leaves_after=rng.randint(0, 6) if leaves else None,
            at_once=not leaves and rng.random() < 0.5,
        )


def medium_of(rng: random.Random, modality: str, number: int) -> ServedMedium:
    """Noise of that modality, of a size that is drawn as well."""
    name = f"{modality} {number}"
    if modality == "audio":
        return ServedMedium(modality, name, _wav(rng, rng.randint(1, 8)))
    size = SQUARE * rng.randint(1, 3), SQUARE * rng.randint(1, 3)
    if modality == "image":
        return ServedMedium(modality, name, _png([_picture(rng, size)]))
    frames = [_picture(rng, size) for _ in range(2 * rng.randint(1, 2))]
    return ServedMedium(modality, name, _png(frames), tuple(_png([frame]) for frame in frames))


def _picture(rng: random.Random, size: tuple[int, int]) -> "Image":
    from PIL import Image

    return Image.frombytes("RGB", size, rng.randbytes(3 * size[0] * size[1]))


def _png(frames: Sequence["Image"]) -> bytes:
    """A picture, or several as a film, without loss."""
    written = io.BytesIO()
    first, *rest = frames
    shown = {"save_all": True, "append_images": rest, "duration": 1000 // FRAMES_PER_SECOND}
    first.save(written, "PNG", **(shown if rest else {}))
    return written.getvalue()


def _wav(rng: random.Random, tenths: int) -> bytes:
    """Noise of that many tenths of a second, 16 bits a sample."""
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLES_PER_SECOND)
        file.writeframes(rng.randbytes(2 * tenths * SAMPLES_PER_SECOND // 10))
    return written.getvalue()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
