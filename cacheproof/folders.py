"""The folder where commands keep findings."""

from pathlib import Path

from cacheproof.differential.errors import InputError
from cacheproof.differential.targets.cache import Cache


def findings_folder() -> Path:
    """Where findings are kept by default."""
    return Cache.locate().root / "findings"


def folder_of(given: Path | None, option: str = "--findings") -> Path:
    """The folder that an option or argument gives, by default that of findings, made now: a search
    must not end in finding that it cannot be.

    Raises:
        InputError: it cannot be made.
    """
    folder = given or findings_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{option} {folder}: cannot be made: {error.strerror}; expected a folder that can "
            "be written"
        ) from None
    return folder
