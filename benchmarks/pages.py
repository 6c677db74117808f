"""Writes the generated pages anew, in the order in which they lean on each other.

make pages                                    # those that take minutes
.venv/bin/python benchmarks/pages.py --list   # which there are, what makes each, what it needs
.venv/bin/python benchmarks/pages.py --all    # hours; or the names of some
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PYTHON = Path(sys.executable)


class Page(NamedTuple):
    """A generated page, or the first of several. `command` prints it or writes it: it writes where
    `writes`. One that takes `hours` is made only when it is asked for, or all are."""

    path: str
    command: str
    also: str = ""
    writes: bool = False
    hours: str = ""


PAGES = (
    Page("docs/reference/contracts.md", "cacheproof contracts --markdown"),
    Page(
        "docs/reference/language.md",
        "python -m cacheproof.proofs.symbolic.gate.language_page",
        writes=True,
    ),
    Page("docs/evidence/kill-matrix.md", "cacheproof gallery"),
    Page(
        "docs/evidence/evidence.md",
        "cacheproof prove --target reference --target vllm@NEWEST --markdown",
    ),
    Page("docs/evidence/evidence-releases.md", "cacheproof prove --markdown"),
    Page("docs/evidence/findings-replayed.md", "python benchmarks/every_finding.py", writes=True),
    Page(
        "docs/evidence/fault-causes.md",
        "python benchmarks/audit_pages.py",
        also="docs/how-to/audit.md, the table in faults/README.md",
        writes=True,
    ),
    Page("docs/evidence/hypothesis-traces.md", "python benchmarks/hypothesis_traces.py"),
    Page(
        "README.md",
        "python benchmarks/documented_commands.py",
        also="docs/tutorial.md, docs/how-to/simulate.md: what their commands print",
        writes=True,
    ),
    Page("differential/search/late_seeds.toml", "python benchmarks/late_seeds.py", writes=True),
    Page(
        "docs/evidence/encoder-connectors-checked.md",
        "python benchmarks/encoder_connectors.py",
        hours="half an hour: connectors wait for their stores",
    ),
    Page(
        "docs/evidence/releases-checked.md",
        "python benchmarks/every_release.py",
        writes=True,
        hours="goes on from benchmarks/every_release.json where that is; --again runs all",
    ),
    Page(
        "docs/evidence/identities-measured.md",
        "python benchmarks/identities.py",
        writes=True,
        hours="of kept findings; with releases as arguments it makes theirs anew",
    ),
    Page(
        "docs/evidence/translator-kills.md",
        "python benchmarks/translator.py",
        writes=True,
        hours="goes on where it stopped",
    ),
    Page(
        "docs/evidence/own-tests.md",
        "python benchmarks/own_tests.py",
        hours="of the newest release's own tests",
    ),
    Page(
        "docs/evidence/one-statement.md",
        "python benchmarks/one_statement.py --workers 2",
        writes=True,
        hours="survivors are judged by hand",
    ),
    Page(
        "docs/evidence/disguised-faults.md",
        "python benchmarks/disguised.py",
        also="tests/benchmarks/disguised/, with --kept",
        writes=True,
        hours="an edit whose text is gone is refused by name",
    ),
    Page("docs/evidence/gpu.md", "python benchmarks/gpu.py", writes=True, hours="needs a GPU"),
)


def made(page: Page, newest: str) -> str:
    """Make a page; what went wrong, or nothing. A page that is not made stays as it was."""
    word, *rest = page.command.replace("NEWEST", newest).split()
    done = subprocess.run(
        [PYTHON.with_name(word), *rest], cwd=ROOT, stdout=subprocess.PIPE, check=False
    )
    if done.returncode != 0:
        return f"{page.command}: exit code {done.returncode}; the page is as it was"
    if not page.writes:
        (ROOT / page.path).write_bytes(done.stdout)
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("page", nargs="*", help="its path, or the end of that")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    chosen = [page for page in PAGES if options.all or not page.hours]
    if options.page:
        chosen = [page for page in PAGES if page.path.endswith(tuple(options.page))]
    if options.list:
        for page in PAGES:
            print(f"{page.path}\n    {page.command}")
            print("".join(f"    {more}\n" for more in (page.also, page.hours) if more), end="")
        return 0
    if not chosen:
        parser.error(f"no page is called {' or '.join(options.page)}; --list has all")
    from cacheproof.reference.releases import NEWEST

    failed = 0
    for number, page in enumerate(chosen, start=1):
        print(f"[{number}/{len(chosen)}] {page.path}: {page.command}", flush=True)
        began = time.monotonic()
        if wrong := made(page, NEWEST):
            failed += 1
            print(f"    {wrong}", flush=True)
        print(f"    {time.monotonic() - began:.0f} s", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
