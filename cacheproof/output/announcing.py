"""What is said of targets before they are run: which are not, or read otherwise than, a release
that is modelled."""

from cacheproof.differential.targets.base import Target
from cacheproof.differential.texts.known_texts import Reading
from cacheproof.output.console import CommandOutput


def announce(output: CommandOutput, target: Target, *, compared: bool) -> dict[str, object]:
    """Print a target's announcement, and what follows where it is `compared` with the reference.
    Returns it as the commands' JSON has it."""
    for line in target.announcement:
        output.line(line)
    if compared and has_text_of_its_own(target):
        output.line(
            f"{target.name}: where it parts from the reference of {target.model}, that is a "
            "difference from the model: exit code 4, or 1 where a contract breaks behind it"
        )
    return as_json(target.announcement, target.reading)


def start(output: CommandOutput, target: Target) -> None:
    """Start a target's host, and say meanwhile that it starts.

    Raises:
        HarnessError: it does not start.
    """
    with output.live(f"starting {target.name}"):
        assert target.protocol


def as_json(announcement: list[str], reading: Reading | None) -> dict[str, object]:
    """An announcement and what it rests on."""
    return {
        "announced": announcement,
        "reading": None if reading is None else reading.to_json(),
    }


def has_text_of_its_own(target: Target) -> bool:
    """Whether what the target does otherwise than the reference may be its own decision."""
    return target.reading is not None and target.reading.differs
