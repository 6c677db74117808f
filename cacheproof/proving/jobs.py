"""The work of proving, in pieces that are kept, and in jobs of pieces that are proved together."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from cacheproof.differential.errors import HarnessError
from cacheproof.differential.provision import releases
from cacheproof.differential.targets.resolve import resolve
from cacheproof.proving.kept import KeptProofs, code_digest, digest_of
from cacheproof.proving.targets import Tree, silent, sources
from cacheproof.reference.semantics import Semantics
from cacheproof.spec.evidence import Evidence

if TYPE_CHECKING:
    from cacheproof.proofs.symbolic.texts import ClassText


SECONDS_OF_TEXT = {
    "EncoderCacheManager": 40,
    "EncoderDecoderCacheManager": 12,
    "BlockPool": 90,
    "EntryTable": 8,
}


@dataclass(frozen=True)
class Piece:
    """What is proved by itself, and kept.

    Attributes:
        digest: of all that its rows say something of.
        text: what of a target it is about; None where no target's text enters it.
    """

    digest: str
    text: "ClassText | None" = field(default=None, compare=False)

    def told(self, rows: Iterable[Evidence]) -> Iterator[Evidence]:
        """The piece's rows, once for each target that has its text."""
        for row in rows:
            for target in (row.target,) if self.text is None else self.text.targets:
                yield replace(row, target=target)


@dataclass(frozen=True)
class ProofJob:
    """Pieces that are proved in one process, since what they have in common is proved once; and
    about how much processor time each takes: the longest jobs are begun first. `about` says in
    words what is proved."""

    about: str
    seconds_of_piece: int
    run: Callable[[Sequence["ClassText"]], list[Evidence]]
    pieces: tuple[Piece, ...]

    @property
    def seconds(self) -> int:
        return self.seconds_of_piece * len(self.pieces)

    def without(self, found: Mapping[Piece, object]) -> "ProofJob":
        """The job without the pieces that were found."""
        return replace(self, pieces=tuple(one for one in self.pieces if one not in found))

    def evidence(self) -> list[Evidence]:
        """Prove all pieces."""
        return self.run([one.text for one in self.pieces if one.text is not None])

    def by_piece(self, evidence: Sequence[Evidence]) -> Iterator[tuple[Piece, list[Evidence]]]:
        """Each piece with its rows; for a text, those of the first target that has it."""
        for piece in self.pieces:
            first = None if piece.text is None else piece.text.targets[0]
            yield piece, [row for row in evidence if first in (None, row.target)]


def jobs_for(
    wanted: Sequence[Tree | None], seed: int, *, fresh: bool = False
) -> Iterator[ProofJob]:
    """The jobs, in the order of the report; with `fresh` no answer that is kept is used."""
    from cacheproof.proofs.crosshair import text
    from cacheproof.proofs.keys.prove import KEYED_RELEASES
    from cacheproof.proofs.symbolic.texts import SUBJECTS, families, texts_of

    for name in SUBJECTS:
        texts = texts_of(name, sources(name, wanted))
        for family in families(one for one in texts if one.release is not None or None in wanted):
            pieces = tuple(Piece(_digest(one, seed), one) for one in family)
            about = f"{name} of {_few([one.targets[0] for one in family])}"
            prove = partial(_prove_texts, seed, fresh)
            yield ProofJob(about, SECONDS_OF_TEXT[name], prove, pieces)
    if None in wanted:
        piece = Piece(digest_of("keys", str(seed)))
        yield ProofJob("keys of the reference", 22, partial(_prove_keys, seed), (piece,))
    for one in wanted:
        if one is not None and one.is_release and one.release.version in KEYED_RELEASES:
            piece = Piece(_digest_of_keys(one.release, seed))
            prove_keys = partial(_prove_keys_of, one.release.version, seed)
            yield ProofJob(f"keys of {one.name}", 14, prove_keys, (piece,))
    code_of_hosts = code_digest(["differential"])
    if None in wanted:
        piece = Piece(digest_of("halves", code_of_hosts))
        yield ProofJob("both halves of the media cache of the reference", 3, _halves, (piece,))
    for one in wanted:
        if one is not None and one.plug_in is None:
            own = code_digest([""], one.release.tree)
            piece = Piece(digest_of("halves", one.name, code_of_hosts, own))
            prove_halves = partial(_halves_of, one.name, one.release)
            about = f"both halves of the media cache of {one.name}"
            yield ProofJob(about, 15, prove_halves, (piece,))
    yield ProofJob(
        "lemmas", 1, partial(_prove_lemmas, seed), (Piece(digest_of("lemmas", str(seed))),)
    )
    if None in wanted:
        for name in (text.ENCODER_CACHE, text.ENCODER_DECODER_CACHE):
            piece = Piece(digest_of("crosshair", name))
            yield ProofJob(f"{name} searched by CrossHair", 8, partial(_search, name), (piece,))


def _few(names: Sequence[str]) -> str:
    """The first of some names, and how many more there are."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _digest(text: "ClassText", seed: int) -> str:
    """The digest of a text, of what its proofs use of its module, and of what is asked of it."""
    parts = text.source.name, text.source.text, text.said_beside
    return digest_of(text.kind, *parts, text.release or "", str(seed))


def _prove_texts(seed: int, fresh: bool, texts: Sequence["ClassText"]) -> list[Evidence]:
    from cacheproof.proofs.symbolic.evidence import prove_texts

    kept = KeptProofs.locate(silent)
    try:
        return prove_texts(texts, seed, kept.answers(reads=not fresh))
    except EOFError:
        raise HarnessError(
            f"the process that ran {texts[0].source.name} beside its proof ended before its work "
            "was done; expected memory for two on each core"
        ) from None


def _prove_keys(seed: int, _texts: Sequence["ClassText"]) -> list[Evidence]:
    from cacheproof.proofs.keys.prove import prove_keys

    return prove_keys(seed)


def _digest_of_keys(release: releases.InstalledRelease, seed: int) -> str:
    """The digest of all modules of a release, whichever its own run uses, and of what runs them."""
    from cacheproof.proving import own_run

    code = code_digest(["differential"]), code_digest([""], release.tree)
    return digest_of("keys", release.version, str(seed), inspect.getsource(own_run), *code)


def _prove_keys_of(release: str, seed: int, _texts: Sequence["ClassText"]) -> list[Evidence]:
    from cacheproof.proofs.keys.prove import prove_keys_of
    from cacheproof.proving.own_run import OwnRun

    with closing(resolve(f"vllm@{release}", report=silent)) as target:
        return prove_keys_of(release, seed, OwnRun(target, Semantics.of_vllm(release)))


def _halves(_texts: Sequence["ClassText"]) -> list[Evidence]:
    from cacheproof.proving.halves import prove_reference

    return [prove_reference()]


def _halves_of(
    name: str, release: releases.InstalledRelease, _texts: Sequence["ClassText"]
) -> list[Evidence]:
    from cacheproof.proving.halves import prove_release

    return [prove_release(name, release)]


def _prove_lemmas(seed: int, _texts: Sequence["ClassText"]) -> list[Evidence]:
    from cacheproof.proofs.symbolic.deciding.lemmas import prove_lemmas

    return prove_lemmas(seed)


def _search(name: str, _texts: Sequence["ClassText"]) -> list[Evidence]:
    from cacheproof.proofs.crosshair import text, witness

    return witness.run(text.of_reference(name))
