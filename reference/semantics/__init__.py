"""What upstream changed on purpose: one flag a change, in a record of each component.

`Semantics.ideal()` is what the contracts demand. `Semantics.of_vllm("0.28.0")` is that release,
faults included, so that the reference and the release agree on every decision.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache

from cacheproof.reference.releases import FIRST_MODELLED, is_modelled, model_of
from cacheproof.reference.semantics.block_keys import BlockKeySemantics
from cacheproof.reference.semantics.change import Change
from cacheproof.reference.semantics.encoder_cache import EncoderCacheSemantics
from cacheproof.reference.semantics.front_end import FrontEndSemantics
from cacheproof.reference.semantics.kv_cache import KVCacheSemantics
from cacheproof.reference.semantics.media import MediaSemantics
from cacheproof.reference.semantics.scheduler import SchedulerSemantics
from cacheproof.spec.versions import release_key


class NotModelled(ValueError):
    """The reference does not model this release; the message names it and what to do."""


class UnknownRelease(UserWarning):
    """Nobody has held the reference against this release."""


def unknown(release: str) -> str:
    """The warning about a release that is not modelled itself."""
    return (
        f"vLLM {release} is not a release that is modelled; the semantics are those of "
        f"{model_of(release)}"
    )


@dataclass(frozen=True)
class Semantics:
    """The flags of each component. All true is `ideal()`.

    A flag's name across components is dotted: `kv_cache.trims_null_heads`.
    """

    encoder_cache: EncoderCacheSemantics = field(default_factory=EncoderCacheSemantics)
    block_keys: BlockKeySemantics = field(default_factory=BlockKeySemantics)
    media: MediaSemantics = field(default_factory=MediaSemantics)
    kv_cache: KVCacheSemantics = field(default_factory=KVCacheSemantics)
    scheduler: SchedulerSemantics = field(default_factory=SchedulerSemantics)
    front_end: FrontEndSemantics = field(default_factory=FrontEndSemantics)

    @classmethod
    def ideal(cls) -> "Semantics":
        """Everything that the contracts demand."""
        return cls()

    @classmethod
    @lru_cache
    def of_vllm(cls, release: str) -> "Semantics":
        """The decisions of one release.

        A release that is not modelled itself is warned of: the semantics are those of the newest
        one before it.

        Raises:
            NotModelled: the release keys entries per request, before 0.10.2.
            ValueError: not a release number.
        """
        if release_key(release) < release_key(FIRST_MODELLED):
            raise NotModelled(
                f"vLLM {release} keeps one entry per request and input; the reference models "
                f"{FIRST_MODELLED} and later: run it with contracts only"
            )
        if not is_modelled(release):
            warnings.warn(unknown(release), UnknownRelease, stacklevel=2)
        model = model_of(release)
        return cls().changed({name: one.is_true_of(model) for name, one in CHANGES.items()})

    @property
    def flags(self) -> dict[str, bool]:
        """Every flag by its dotted name."""
        return {
            f"{part.name}.{flag.name}": getattr(getattr(self, part.name), flag.name)
            for part in fields(self)
            for flag in fields(getattr(self, part.name))
        }

    def changed(self, flags: Mapping[str, bool]) -> "Semantics":
        """A copy with these flags set, by their dotted names.

        Raises:
            ValueError: there is no flag of that name.
        """
        if unknown_flags := sorted(flags.keys() - CHANGES.keys()):
            raise ValueError(f"no flag of the semantics: {', '.join(unknown_flags)}")
        parts: dict[str, dict[str, bool]] = {}
        for name, value in flags.items():
            part, _, flag = name.partition(".")
            parts.setdefault(part, {})[flag] = value
        return replace(
            self, **{part: replace(getattr(self, part), **of) for part, of in parts.items()}
        )

    def without(self, *flags: str) -> "Semantics":
        """A copy with these flags off, by their dotted names."""
        return self.changed(dict.fromkeys(flags, False))


CHANGES: Mapping[str, Change] = {
    f"{part.name}.{flag.name}": flag.metadata["change"]
    for part in fields(Semantics)
    for flag in fields(getattr(Semantics(), part.name))
}
"""The change behind each flag, by the flag's dotted name."""


@lru_cache
def offered_by(release: str | None) -> Semantics:
    """The semantics that say what a release offers: the first modelled one's for earlier releases,
    the ideal for None."""
    if release is None:
        return Semantics.ideal()
    try:
        return Semantics.of_vllm(release)
    except NotModelled:
        return Semantics.of_vllm(FIRST_MODELLED)
