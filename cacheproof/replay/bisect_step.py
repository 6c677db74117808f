"""What `git bisect run` runs on every commit: a trace on the tree that is checked out.

`python -m cacheproof.replay.bisect_step FINDING TREE [--contract ID]` ends with HOLDS or BREAKS,
the other way round with `--flipped`, and with SKIP where the commit cannot be run. One line on
standard error says why.
"""

import argparse
import sys
from contextlib import closing, nullcontext
from pathlib import Path

from cacheproof.differential.errors import CacheproofError, InputError
from cacheproof.differential.findings import finding_file
from cacheproof.differential.findings.question import Question
from cacheproof.differential.judges.examination import LOCKSTEP
from cacheproof.differential.provision import checkouts
from cacheproof.differential.search.bisection import ReleaseAnswer, ask
from cacheproof.differential.search.git_bisection import BREAKS, FLIPPED, HOLDS, SKIP
from cacheproof.differential.targets.resolve import host_of, reference_for

CONTRACT = "--contract"


def main(arguments: list[str]) -> int:
    """Run the trace of a file on a tree. Returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("tree", type=Path)
    parser.add_argument(CONTRACT)
    parser.add_argument(FLIPPED, action="store_true")
    asked = parser.parse_args(arguments)
    question = Question.of(finding_file.load(asked.file), asked.contract)
    try:
        answer = _answer(question, asked.tree)
        if answer.broken is None:
            raise InputError(f"it refuses the trace: {answer.refusal}")
    except CacheproofError as error:
        print(error, file=sys.stderr)
        return SKIP
    return BREAKS if bool(answer.broken) != asked.flipped else HOLDS


def _answer(question: Question, tree: Path) -> ReleaseAnswer:
    """What the tree does with the trace. What is made to run it is removed."""
    checkout = checkouts.for_path(tree, report=lambda line: print(line, file=sys.stderr))
    try:
        with closing(host_of(checkout, f"path:{tree}")) as target:
            wanted = reference_for(target) if question.contract == LOCKSTEP else None
            with closing(wanted) if wanted is not None else nullcontext() as reference:
                return ask(target, checkout.version, question, reference)
    finally:
        checkouts.forget(checkout)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
