"""The vocabulary of the tiny Whisper: what its server begins a transcript with, words w1, w2, ...,
and times.

Marks stand in a text without spaces around them. Only the end is a special token: of all others a
text shows each, between spaces, so that a text of an answer is its tokens.
"""

END = "</s>"
START = "<|startoftranscript|>"
LANGUAGES = ("de", "en", "fr", "ja")
TASKS = ("transcribe", "translate")
PREVIOUS, NO_TIMES = "<|prev|>", "<|notimestamps|>"
START_ID = 10
FIRST_TIME_ID = 512
"""From here to the end of the vocabulary tokens are times, 20 ms apart. A real Whisper has 1,501,
at the end of its vocabulary as well; here they are half of it, so that answers have many."""
_SIZE = 1024
_FIRST = ("<unk>", "<s>", END, "<image>", "<stop>", "<pad>", "<video>", "<vision>", "</vision>")
_LAST = (*(f"<|{name}|>" for name in (*LANGUAGES, *TASKS)), PREVIOUS, NO_TIMES)
_TIMES = tuple(f"<|{number / 50:.2f}|>" for number in range(_SIZE - FIRST_TIME_ID))
MARKS = (START, *_LAST, _TIMES[0])
"""Words that a text needs no spaces around."""
WORDS = (
    *_FIRST,
    *(f"<reserved{number}>" for number in range(len(_FIRST), START_ID)),
    START,
    *(f"w{number}" for number in range(1, FIRST_TIME_ID - START_ID - len(_LAST))),
    *_LAST,
    *_TIMES,
)
"""All words, each at the place of its id."""
