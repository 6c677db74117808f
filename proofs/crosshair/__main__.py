"""CrossHair's process: a job a line on standard input, an answer a line on standard output. It ends
when its input does, in the middle of a job too: who asked has ended."""

import os
import queue
import sys
import threading

import msgspec

from cacheproof.proofs.crosshair.job import ConditionAnswer, ConditionJob, Word
from cacheproof.proofs.crosshair.search import explore


def main() -> None:
    # what a text or a library prints must not come between the answers
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    jobs: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_take, args=(jobs,), daemon=True).start()
    while True:
        job = msgspec.json.decode(jobs.get(), type=ConditionJob)
        try:
            answer = explore(job.prepare().function, job.paths_max)
        except Exception as error:
            answer = ConditionAnswer(Word.UNKNOWN, 0, f"{type(error).__name__}: {error}")
        answers.write(msgspec.json.encode(answer) + b"\n")
        answers.flush()


def _take(jobs: "queue.Queue[bytes]") -> None:
    for line in sys.stdin.buffer:
        jobs.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
