"""The folder where commands keep findings."""

from pathlib import Path

from cacheproof.differential.errors import InputError
from cacheproof.differential.provision.cache import Cache


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


def folder_for(where: str, findings: Path | None) -> Path:
    """Where the files of findings lie: beside a store's file by default."""
    return folder_of(place_for(where, findings))


def place_for(where: str, findings: Path | None) -> Path:
    """The path for the files of findings, whether there is such a folder or not."""
    if findings is None and "://" not in where:
        findings = Path(where) / "findings"
    return findings or findings_folder()
