"""What the commands conclude that fetch releases and connectors, or list them."""

from collections.abc import Sequence

from cacheproof.verdicts.line import VerdictLine, counted, names


def of_installed(targets: Sequence[str]) -> VerdictLine:
    """Targets are there now."""
    last = targets[-1]
    are = "are" if targets[1:] else "is"
    return VerdictLine(
        f"{names(targets)} {are} installed and can be searched; nothing of it was checked yet.",
        "search it for a minute",
        f"cacheproof fuzz --target {last}",
    )


def of_list(targets: Sequence[str], what: str, install: str) -> VerdictLine:
    """Targets that are there; where none is, the command that changes that."""
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
