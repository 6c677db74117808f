"""Of an exception a record keeps the program's own words, and nothing that a user wrote."""

from typing import Any

import msgspec
import pytest

from cacheproof.differential.recording.hashing import Hasher
from cacheproof.differential.recording.messages import AnyMessage, Opened, Raised, Stored
from cacheproof.differential.recording.raising import CHARACTERS_MAX, place_of, words_of
from cacheproof.differential.recording.worker import WorkerRecording
from tests.differential.recording.made import OPENED

SECRET = "my cat, 7 years"


def error_of(text: str, file: str = "vllm/v1/worker/runner.py", **names: Any) -> Exception:
    """The exception that a program raises, which stands in that file."""
    try:
        exec(compile(text, f"/somewhere/{file}", "exec"), names)
    except Exception as error:
        return error
    raise AssertionError("it raises nothing")


def hasher(*known: str, plain: bool = False) -> Hasher:
    made = Hasher(b"salt", plain=plain)
    for name in known:
        made.identifier(name)
    return made


@pytest.mark.parametrize(
    "text",
    [
        'raise RuntimeError(f"Encoder cache miss for {h}.")',
        'raise RuntimeError("Encoder cache miss for %s." % h)',
        'raise RuntimeError("Encoder cache miss for {}.".format(h))',
        'assert False, f"Encoder cache miss for {h}."',
    ],
)
def test_words_are_the_programs_and_what_it_filled_in_is_left_out(text: str) -> None:
    error = error_of(text, h=SECRET)
    assert words_of(error, hasher()) == "Encoder cache miss for ...."
    assert words_of(error, hasher(plain=True)) == f"Encoder cache miss for {SECRET}."


def test_an_identifier_is_called_what_the_record_calls_it() -> None:
    error = error_of('raise RuntimeError(f"Encoder cache miss for {h}.")', h="image-7")
    known = hasher("image-7")
    assert words_of(error, known) == f"Encoder cache miss for {known.identifier('image-7')}."


def test_an_exception_that_is_data_alone_has_no_words() -> None:
    assert words_of(error_of("{}[h]", h=SECRET), hasher()) == "'...'"
    assert words_of(error_of("raise ValueError"), hasher()) == ""


def test_of_a_long_text_the_beginning_is_kept() -> None:
    error = error_of("raise ValueError(h)", h="x" * 5000)
    assert words_of(error, hasher(plain=True)) == "x" * CHARACTERS_MAX


def test_the_place_is_the_innermost_of_vllm() -> None:
    inner = error_of("def gather():\n    1 / 0\ngather()", "vllm/v1/worker/runner.py")
    assert place_of(inner) == "vllm/v1/worker/runner.py:2 (gather)"
    assert place_of(error_of("1 / 0", "torch/nn.py")) == ""


def test_a_record_of_an_older_recorder_is_read() -> None:
    old = msgspec.msgpack.encode(["x", 0, "execute_model", "RuntimeError", "", []])
    read = msgspec.msgpack.decode(old, type=AnyMessage)
    assert read == Raised(0, "execute_model", "RuntimeError", "", [])

    class Older(msgspec.Struct, array_like=True, tag="x"):
        time: int
        operation: str
        error: str
        text: str
        calls: list[Any]

    new = msgspec.msgpack.encode(Raised(0, "execute_model", "RuntimeError", "", [], "place", 3))
    assert msgspec.msgpack.decode(new, type=Older).error == "RuntimeError"


class Kept:
    """A writer that keeps what it is given."""

    lost = 0
    wants_file = True

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def begin(self, *messages: Any) -> None:
        self.wants_file = False
        self.messages += messages

    def put(self, message: Any) -> None:
        self.messages.append(message)

    def flush(self, seconds: float) -> bool:
        return True


class Runner:
    """A model runner that raises where it is told to."""

    def __init__(self) -> None:
        self.encoder_cache: dict[str, list[int]] = {}

    def execute_model(self, output: Any) -> None:
        if output.raises:
            raise RuntimeError("no memory")

    def sample_tokens(self, raises: bool) -> None:
        if raises:
            raise RuntimeError("no tokens")


class Output:
    """What a scheduler hands over."""

    scheduled_encoder_inputs: tuple[Any, ...] = ()
    total_num_scheduled_tokens = 3

    def __init__(self, *, raises: bool) -> None:
        self.raises = raises


@pytest.fixture
def recorded() -> tuple[Runner, Kept]:
    runner, kept = Runner(), Kept()
    opened = msgspec.structs.replace(OPENED, role="worker")
    WorkerRecording(runner, kept, hasher(), opened)  # type: ignore[arg-type]
    return runner, kept


def test_a_worker_that_raises_in_its_first_step_has_a_record_with_a_head(
    recorded: tuple[Runner, Kept],
) -> None:
    runner, kept = recorded
    with pytest.raises(RuntimeError):
        runner.execute_model(Output(raises=True))
    opened, raised = kept.messages
    assert isinstance(opened, Opened)
    assert (raised.operation, raised.text, raised.step) == ("execute_model", "no memory", 1)


def test_the_step_is_the_one_in_which_it_raised(recorded: tuple[Runner, Kept]) -> None:
    runner, kept = recorded
    runner.execute_model(Output(raises=False))
    runner.sample_tokens(False)
    with pytest.raises(RuntimeError):
        runner.sample_tokens(True)
    with pytest.raises(RuntimeError):
        runner.execute_model(Output(raises=True))
    _, stored, sampled, executed = kept.messages
    assert isinstance(stored, Stored)
    assert (sampled.operation, sampled.text, sampled.step) == ("sample_tokens", "no tokens", 1)
    assert executed.step == 2
