"""The command vllm texts: what the modelled definitions read in the releases."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from cacheproof.differential import files
from cacheproof.differential.errors import InputError
from cacheproof.differential.provision import releases
from cacheproof.differential.search.verdict import HOLDS, UNLISTED
from cacheproof.differential.targets.resolve import reading_of
from cacheproof.differential.texts import known_texts
from cacheproof.output.conclusion import Conclusion
from cacheproof.output.console import CommandOutput
from cacheproof.reference.releases import MODELLED
from cacheproof.tables import places


def texts(output: CommandOutput, toml: Path | None) -> int:
    """Print the families of releases, and which installed ones read otherwise than the table says:
    the shipped one, or the one that is written to `toml` now. 0: none; 1: some.

    Raises:
        InputError: the file cannot be written or would lack a release that is not installed, or a
            release is no Python that can be read here.
    """
    if toml is not None:
        with _writing(toml):
            files.require_writable(toml)
    installed = {one.version: one for one in releases.list_installed() if one.version in MODELLED}
    known = known_texts.load()
    if toml is not None:
        missing = [one for one in MODELLED if one not in installed]
        if missing:
            raise InputError(
                f"--toml: {len(missing)} of {len(MODELLED)} modelled releases are not installed, "
                f"and the table would lack them; first: cacheproof vllm install {' '.join(missing)}"
            )
        known = known_texts.made_of({version: one.tree for version, one in installed.items()})
        with _writing(toml):
            files.write(toml, known_texts.written(known).encode())
    families = known.families()
    output.line(", ".join(families[0]))
    for before, family in pairwise(families):
        count = known.apart(before[-1], family[0])
        output.line(f"{', '.join(family)}: definitions that differ from {before[-1]}: {count}")
    strange = {
        version: lines
        for version, one in installed.items()
        if (reading := reading_of(one, known)) is not None
        and (lines := reading.announcement(f"vllm@{version}"))
    }
    for lines in strange.values():
        for line in lines:
            output.line(line)
    verdict = places.of_texts(len(known.of_release), len(families), len(installed), list(strange))
    facts = {"families": families, "read_otherwise": strange}
    return output.tell(Conclusion(UNLISTED if strange else HOLDS, verdict, facts))


@contextmanager
def _writing(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"--toml {file}: cannot be written: {error.strerror}; expected a file in a folder that "
            "exists"
        ) from None
