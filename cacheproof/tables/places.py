"""What the commands conclude that keep things: releases and connectors, their texts, campaigns."""

from collections.abc import Sequence
from dataclasses import dataclass

from cacheproof.output.verdict_line import VerdictLine, counted, names


@dataclass(frozen=True)
class TargetProgress:
    """How far a campaign is with a target: the `shards` that are done, `of` how many, where an end
    is known; their `findings`, of which some are `unlisted`; and what is `left`, in words."""

    target: str
    shards: int
    of: int | None
    events: int
    events_per_s: int
    findings: int
    unlisted: int
    left: str


def of_installed(targets: Sequence[str]) -> VerdictLine:
    """The line after targets were installed."""
    last = targets[-1]
    are = "are" if targets[1:] else "is"
    return VerdictLine(
        f"{names(targets)} {are} installed and can be searched; nothing of it was checked yet.",
        "search it for a minute",
        f"cacheproof fuzz --target {last}",
    )


def of_list(targets: Sequence[str], what: str, install: str) -> VerdictLine:
    """The line on installed targets; where none is, with the command that installs one."""
    if not targets:
        return VerdictLine(
            f"No {what} is installed on this machine.", "install one", f"cacheproof {install}"
        )
    are = "are" if targets[1:] else "is"
    return VerdictLine(
        f"{counted(len(targets), what, _many(what))} {are} installed and can be searched.",
        "search the newest for a minute",
        f"cacheproof fuzz --target {targets[-1]}",
    )


def _many(what: str) -> str:
    head, space, rest = what.partition(" ")
    return f"{head}s{space}{rest}"


def of_texts(releases: int, families: int, installed: int, strange: Sequence[str]) -> VerdictLine:
    """Whether the installed releases read as the table says; `strange` are those that do not."""
    if strange:
        read = "read" if strange[1:] else "reads"
        return VerdictLine(
            f"{len(strange):,} of {counted(installed, 'installed release')} {read} otherwise than "
            f"the table says: {names(strange)}.",
            "install them anew, after cacheproof vllm remove",
        )
    return VerdictLine(
        f"All {counted(installed, 'installed release')} read as the table says; what is modelled "
        f"of {counted(releases, 'release')} reads in {counted(families, 'way')}."
    )


def of_status(where: str, rows: Sequence[TargetProgress], runners: int) -> VerdictLine:
    """How far a campaign is with all its targets."""
    done = sum(row.shards for row in rows)
    known_ends = [row.of for row in rows if row.of is not None]
    total = sum(known_ends) if len(known_ends) == len(rows) else None
    of = f" of {total:,} ({done / max(total, 1):.0%})" if total is not None else ""
    new = sum(row.unlisted for row in rows)
    known = sum(row.findings for row in rows) - new
    is_done = total is not None and done >= total
    who = f"{counted(runners, 'process', 'processes')} on it" if runners else "nobody runs it"
    step, command = "see what it found", f"cacheproof campaign report --store {where}"
    if not runners and not is_done:
        step, command = "go on with it", f"cacheproof campaign resume --store {where}"
    return VerdictLine(
        f"The campaign in {where} has done {done:,}{of} shards of "
        f"{counted(len(rows), 'target')}: {counted(new, 'new finding')}, {known:,} listed or "
        f"harmless; {who}.",
        step,
        command,
    )


def of_merged(where: str, shards: int, both: int, report: str) -> VerdictLine:
    """A store that now holds what two held."""
    return VerdictLine(
        f"{where} holds {counted(shards, 'shard')}, of which {both:,} were in both stores and came "
        "to the same.",
        "see what they found together",
        report,
    )
