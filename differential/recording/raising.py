"""What a record keeps of an exception that an engine raised."""

import re
from collections.abc import Iterator
from types import CodeType, TracebackType

from cacheproof.differential.recording.hashing import Hasher

CHARACTERS_MAX = 1000
LEFT_OUT = "..."
_PIECE_MIN = 3
_PLACEHOLDERS = re.compile(r"%[-+ #0]*[\d.*]*[a-z%]|\{[^{}]*\}")
_DATA = re.compile(r"(\W*)(.*?)(\W*)", re.DOTALL)


def words_of(error: BaseException, hasher: Hasher) -> str:
    """The exception's own words. Those of the program are kept. What the program put in at run time
    may be anybody's text: of that an identifier is called what the record calls it, and the rest is
    left out. A plain record keeps all of it."""
    text = str(error)[:CHARACTERS_MAX]
    if hasher.is_plain or not text:
        return text
    said, end = [], 0
    for match in _program_words(error.__traceback__).finditer(text):
        said += [_called(text[end : match.start()], hasher), match[0]]
        end = match.end()
    said.append(_called(text[end:], hasher))
    return "".join(said)


def place_of(error: BaseException) -> str:
    """File, line and function of vLLM that raised it, or that called what did: as in
    `vllm/v1/worker/gpu_model_runner.py:2817 (_gather_mm_embeddings)`. Empty where none of vLLM's
    functions was called."""
    place = ""
    for frame, line in _calls(error.__traceback__):
        module, _, file = frame.co_filename.replace("\\", "/").rpartition("/vllm/")
        if module:
            place = f"vllm/{file}:{line} ({frame.co_name})"
    return place


def _program_words(traceback: TracebackType | None) -> re.Pattern[str]:
    """What any function on the exception's way has as a constant, without what it fills in."""
    pieces = {
        piece
        for code, _ in _calls(traceback)
        for constant in code.co_consts
        if isinstance(constant, str)
        for piece in _PLACEHOLDERS.split(constant)
        if len(piece) >= _PIECE_MIN
    }
    longest_first = sorted(pieces, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def _calls(traceback: TracebackType | None) -> Iterator[tuple[CodeType, int]]:
    while traceback is not None:
        yield traceback.tb_frame.f_code, traceback.tb_lineno
        traceback = traceback.tb_next


def _called(data: str, hasher: Hasher) -> str:
    """What stands between two of the program's words, as a record says it."""
    match = _DATA.fullmatch(data)
    if match is None or not match[2]:
        return data
    return f"{match[1]}{hasher.known(match[2]) or LEFT_OUT}{match[3]}"
