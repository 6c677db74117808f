"""Texts of managers and of what stands beside them, as they stand in targets."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from cacheproof.proofs.symbolic.deciding.subject import Subject
from cacheproof.proofs.symbolic.gate.gate import refuse_subject
from cacheproof.proofs.symbolic.reading.source import Source
from cacheproof.proofs.symbolic.subjects import (
    block_pool,
    encoder_cache,
    encoder_decoder_cache,
    entry_table,
)
from cacheproof.proofs.symbolic.subjects.calls import (
    Assumption,
    identifier_fixes_size,
    items_differ,
)
from cacheproof.proofs.symbolic.values.language import NotTranslated
from cacheproof.proofs.text.bindings import named_beside
from cacheproof.spec.registry import contracts as all_contracts

REFERENCE = "reference"
Promise = tuple[str, tuple[Assumption, ...]]
PROMISES: tuple[Promise, ...] = (
    ("any caller", ()),
    ("an identifier fixes its size", (identifier_fixes_size,)),
    (
        "an identifier fixes its size, no request shows an item twice",
        (identifier_fixes_size, items_differ),
    ),
)
"""What a caller promises beside what each operation asks of it, from nothing on."""
RESTS_ON = {identifier_fixes_size: "size_is_fixed"}
"""The invariant that a promise alone bears out: without it, it falls."""
_PROMISES_OF = {one.CLASS: one.PROMISES for one in (block_pool, entry_table)}


def promises_of(kind: str) -> tuple[Promise, ...]:
    """What callers of a kind of class promise, the fewest promises first."""
    return _PROMISES_OF.get(kind, PROMISES)


SUBJECTS = {
    one.CLASS: one for one in (encoder_cache, encoder_decoder_cache, block_pool, entry_table)
}
"""What is said of each class beside its text. Of releases' block pools, which link their blocks in
a list, no text is read; nor of their tables of entries, whose blocks have numbers."""


@dataclass(frozen=True)
class ClassText:
    """A manager's class as it stands in some targets; `release` is the first of theirs, None for
    the reference. The class of a plug-in has a name of its own: `kind` is that of the class whose
    place it takes."""

    kind: str
    targets: tuple[str, ...]
    source: Source
    release: str | None

    def subject(self, assumptions: tuple[Assumption, ...] = ()) -> Subject:
        """The class and what is said of it, where callers keep these promises."""
        about = SUBJECTS[self.kind]
        if self.release is None:
            return about.of_reference(assumptions)
        return about.of_release(self.release, self.source, assumptions)

    @cached_property
    def said_beside(self) -> str:
        """What its module says beside the class that its proofs hang on: what the class names; or
        all, where a gate refuses the module."""
        try:
            refuse_subject(self.subject())
        except NotTranslated:
            return self.source.module
        return "\n".join(sorted(named_beside(self.source.text, self.source.module)))


@dataclass(frozen=True)
class ReadClass:
    """A class as it was read of a target that is no reference: the target's name, the release whose
    contracts it promises to keep, and the class."""

    target: str
    release: str
    source: Source


def texts_of(name: str, of_targets: Iterable[ReadClass]) -> list[ClassText]:
    """The reference's text of a class, and those of targets, each once for all classes that read
    the same, in modules that say nothing else of them, and promise the same contracts."""
    found = [ClassText(name, (REFERENCE,), SUBJECTS[name].of_reference().sources["m"], None)]
    for one in of_targets:
        new = ClassText(name, (one.target,), one.source, one.release)
        for number, text in enumerate(found):
            if text.release is not None and _reads_as(text, new):
                found[number] = dataclasses.replace(text, targets=(*text.targets, one.target))
                break
        else:
            found.append(new)
    return found


def _reads_as(text: ClassText, new: ClassText) -> bool:
    """Whether a class is one that was read before, and is asked the same: what it names in its
    module reads the same too."""
    return (
        text.source.text == new.source.text
        and _promised(text) == _promised(new)
        and (text.source.module == new.source.module or text.said_beside == new.said_beside)
    )


def _promised(text: ClassText) -> list[str]:
    """The contracts that its release promises to keep."""
    component = SUBJECTS[text.kind].COMPONENT
    return [rule.id for rule in all_contracts(component, text.release)]


def families(texts: Iterable[ClassText]) -> list[list[ClassText]]:
    """Texts of a class, those with the same attributes together: they have most methods in common,
    and what is proved of such a method is proved once."""
    found: dict[frozenset[str], list[ClassText]] = {}
    for one in texts:
        found.setdefault(one.source.attributes, []).append(one)
    return list(found.values())
