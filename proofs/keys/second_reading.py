"""What is proved of keys, beside more readings of the same text: all must agree.

Exploration: Python runs the text on every content of small scopes, judged by the contract itself.
Validation: the paths that the proof is about are held against what Python makes of such contents;
each path must be one that some content takes. Of a row about a release: its own run, which must
write what the text writes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from cacheproof.proofs.keys.exploration import Explore
from cacheproof.proofs.keys.validation import Validated
from cacheproof.spec.evidence import RedTwin, Witness

NO_TWIN = "any change of the text"
OWN_RUN = "the release itself"
NOT_RUN = Witness(
    OWN_RUN, "not run", "", RedTwin(NO_TWIN, refuted=False), unreached="any of its keys"
)
TextT = TypeVar("TextT")
Validate = Callable[[TextT, TextT], Validated]
"""Holds a text that is read against the text that Python runs, in that order."""
Changes = Sequence[tuple[str, TextT]]


@dataclass(frozen=True)
class SecondReading(Generic[TextT]):
    """The witnesses of a row. Of a lemma, which has no text, there is nothing to validate:
    `impossible` says which of its steps assume what cannot be. `of_release`: the row is about a
    release, and `own` is its run, None where there is none to be asked."""

    explore: Explore[TextT]
    validate: Validate[TextT] | None = None
    impossible: Callable[[], str] | None = None
    of_release: bool = False
    own: Explore[TextT] | None = None

    def witnesses(self, text: TextT, changes: Changes[TextT]) -> list[Witness]:
        """What they say of a text; `changes` are those of which the proof refutes it."""
        found = [explored(self.explore, text, changes)]
        if self.impossible is not None:
            found = [replace(one, vacuous=self.impossible()) for one in found]
        if self.validate is not None:
            found.append(validated(self.validate, text, changes))
        if self.of_release:
            found.append(
                NOT_RUN if self.own is None else explored(self.own, text, changes, OWN_RUN)
            )
        return found


def explored(
    explore: Explore[TextT], text: TextT, changes: Changes[TextT], name: str = "exploration"
) -> Witness:
    """The exploration of a text; a change at least must be noticed there too."""
    found = explore(text)
    noticed = [changed for changed, other in changes if explore(other).against]
    twin = RedTwin(noticed[0], refuted=True) if noticed else RedTwin(NO_TWIN, refuted=False)
    reach = f"{found.reach}, {len(noticed)} of {len(changes)} changes noticed"
    return Witness(name, reach, found.against, twin)


def validated(validate: Validate[TextT], text: TextT, changes: Changes[TextT]) -> Witness:
    """The validation of the reader on a text; it must notice where a changed text is read in place
    of it."""
    try:
        found = validate(text, text)
    except Exception as why:  # whatever the text does where it is run on symbols
        reach = f"none: {type(why).__name__}: {why}"
        return Witness("validation", reach, "", RedTwin(NO_TWIN, refuted=False))
    twin = next(
        (RedTwin(name, refuted=True) for name, read in changes if _notices(validate, read, text)),
        RedTwin(NO_TWIN, refuted=False),
    )
    return Witness("validation", found.reach, found.against, twin, vacuous=found.vacuous)


def _notices(validate: Validate[TextT], read: TextT, ran: TextT) -> bool:
    try:
        return bool(validate(read, ran).against)
    except Exception:  # the change led out of what can be read
        return False
