"""Changes that change nothing are read; those of them that change something are not proved."""

import ast
from pathlib import Path

import pytest

from cacheproof.differential.provision import releases
from cacheproof.proofs.symbolic.deciding.prove import ProverLibrary
from cacheproof.proofs.symbolic.gate.gate import refuse_subject
from cacheproof.proofs.symbolic.reading.source import source_in
from cacheproof.proofs.symbolic.subjects import encoder_cache
from cacheproof.proofs.symbolic.values.language import NotTranslated
from cacheproof.proving.targets import MANAGERS
from cacheproof.reference.releases import NEWEST

REFUSED = {"containers: extend by one"}
HARMFUL = [
    ("helpers: the eviction of one entry", "    self.num_free_slots += num_free_embeds\n"),
    ("helpers: what makes an entry idle", "    self.num_freeable_slots += num_encoder_embeds\n"),
    ("helpers: the eviction loop", "        self.freed.append(mm_hash)\n"),
]
"""Changes that are no refactorings without a line of what they add."""


@pytest.fixture(scope="module")
def module() -> str:
    return (releases.install(NEWEST, report=print).tree / MANAGERS).read_text()


def test_there_are_sixty_and_no_two_alike(script, module: str) -> None:
    several = script.refactorings()
    texts = {ast.unparse(ast.parse(one.of(module))) for one in several}
    assert len({str(one) for one in several}) == len(several) >= 60
    assert len(texts | {ast.unparse(ast.parse(module))}) == len(several) + 1


def test_an_edit_of_what_is_not_there_is_refused(script, module: str) -> None:
    edit = script.OneEdit("free", "no such line", before="pass")
    with pytest.raises(ValueError, match="no such line"):
        script.Refactoring("kind", "name", (edit,)).of(module)
    with pytest.raises(ValueError, match="nothing to change"):
        script.Refactoring("kind", "name", renamed=(("free", "nowhere", "here"),)).of(module)


@pytest.mark.full
def test_all_but_those_that_are_named_are_read(script, module: str) -> None:
    refused = set()
    for one in script.refactorings():
        source = source_in(one.of(module), script.CLASS, "text")
        subject = encoder_cache.of_release(NEWEST, source)
        library = ProverLibrary()
        try:
            refuse_subject(subject)
            for operation in subject.operations:
                assert library.prover(subject, operation).conditions
        except NotTranslated:
            refused.add(str(one))
    assert refused == REFUSED


@pytest.fixture(scope="module")
def kept(script, module: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is known of the release as it stands."""
    folder: Path = tmp_path_factory.mktemp("kept")
    assert script.failing(script.proved(NEWEST, module, NEWEST, folder).rows) == []
    return folder


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name, _ in HARMFUL])
def test_what_is_a_refactoring_is_proved(script, module: str, kept: Path, name: str) -> None:
    (one,) = [one for one in script.refactorings() if str(one) == name]
    assert script.failing(script.proved(name, one.of(module), NEWEST, kept).rows) == []


@pytest.mark.full
@pytest.mark.parametrize(("name", "line"), HARMFUL)
def test_what_is_none_is_not(script, module: str, kept: Path, name: str, line: str) -> None:
    (one,) = [one for one in script.refactorings() if str(one) == name]
    assert one.added.count(line) == 1
    without = script.Refactoring(one.kind, one.name, one.edits, added=one.added.replace(line, ""))
    assert script.failing(script.proved(name, without.of(module), NEWEST, kept).rows)
