"""CrossHair's process: a job a line on standard input, an answer a line on standard output."""

import os
import sys

import msgspec

from cacheproof.proofs.crosshair.job import Answer, Job, Word
from cacheproof.proofs.crosshair.search import explore


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    for line in sys.stdin.buffer:
        job = msgspec.json.decode(line, type=Job)
        try:
            answer = explore(job.prepare().function, job.paths_max)
        except Exception as error:
            answer = Answer(Word.UNKNOWN, 0, f"{type(error).__name__}: {error}")
        answers.write(msgspec.json.encode(answer) + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
