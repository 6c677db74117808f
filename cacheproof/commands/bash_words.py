"""The words of a command line as bash hands them to a completion, put together again.

Readline ends a word at `@`, `:` and `=` too: of `--target vllm@0.3` a completion sees `vllm`, `@`
and `0.3`, and what it answers takes the place of `@0.3` alone. Typer knows nothing of that.
"""

import io
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout

COMPLETE = "_CACHEPROOF_COMPLETE"
WORDS, NUMBER = "COMP_WORDS", "COMP_CWORD"
_BREAKS = frozenset("@:=")
_FOLDER = "path:"


def whole_words(environment: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """The variables of a completion with its words put together, and the beginning of the last
    one's value that stays in the line, whatever is answered."""
    pieces = environment[WORDS].split("\n")[: int(environment[NUMBER]) + 1]
    words: list[str] = []
    goes_on = False
    for piece in pieces:
        is_break = bool(piece) and _BREAKS.issuperset(piece)
        if words and (is_break or goes_on):
            words[-1] += piece
        else:
            words.append(piece)
        goes_on = is_break
    replaced = "" if goes_on else pieces[-1]
    stands = words[-1].removesuffix(replaced)
    stands = stands.removesuffix("@")  # which readline replaces too
    if stands.startswith("-"):
        stands = stands.partition("=")[2]
    return {WORDS: "\n".join(words), NUMBER: str(len(words) - 1)}, stands


def complete(run: Callable[[], object]) -> None:
    """Run a command line that answers a completion of bash, and print of its answers what bash is
    to put in. Folders are left to bash, which goes on where one ends.

    Raises:
        SystemExit: always; the code of the command line.
    """
    changed, stands = whole_words(os.environ)
    os.environ.update(changed)
    answered = io.StringIO()
    code: object = 0
    with redirect_stdout(answered):
        try:
            run()
        except SystemExit as ended:
            code = ended.code
    for line in answered.getvalue().splitlines():
        if line.startswith(stands) and not stands.startswith(_FOLDER):
            print(line[len(stands) :])
    sys.exit(code)  # type: ignore[arg-type]
