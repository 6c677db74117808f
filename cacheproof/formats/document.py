"""JSON: what `--json` asks for. Beside what every command says, each has facts of its own."""

import json
import sys

import msgspec

from cacheproof import __version__
from cacheproof.formats.result import Report

SCHEMA_VERSION = 1


def written(report: Report) -> str:
    """The document. A command's own facts win: `campaign start` ends as `campaign report`."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "command": report.command,
        "versions": {"cacheproof": __version__, "python": sys.version.split()[0]},
        "verdict": report.verdict,
        "next": report.step,
        **report.facts,
    }
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    return f"{_escaped(text)}\n"


def _escaped(text: str) -> str:
    """JSON with all escaped that is not printable, which JSON asks for below U+0020 alone."""
    return "".join(
        one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text
    )
