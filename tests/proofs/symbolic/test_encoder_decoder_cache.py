"""The encoder-decoder cache manager of the reference is proved by its text."""

import inspect
from dataclasses import replace
from pathlib import Path

import pytest

from cacheproof.proofs.symbolic.deciding.prove import prove
from cacheproof.proofs.symbolic.evidence import prove_texts
from cacheproof.proofs.symbolic.reading.source import source_of
from cacheproof.proofs.symbolic.subjects.encoder_decoder_cache import CLASS, of_reference
from cacheproof.proofs.symbolic.texts import SUBJECTS, ClassText, ReadClass, texts_of
from cacheproof.proofs.text.bindings import named_beside
from cacheproof.proving.jobs import _digest
from cacheproof.reference.encoder_decoder_cache import EncoderDecoderCacheManager
from cacheproof.spec.encoder_decoder_cache import COMPONENT
from cacheproof.spec.evidence import Outcome
from cacheproof.spec.registry import contracts
from tests.proofs.symbolic.negated import is_refuted_negated

CONTRACTS = [rule.id for rule in contracts(COMPONENT) if rule.component == COMPONENT]


@pytest.mark.full
def test_every_contract_is_proved_beside_a_change_that_breaks_it() -> None:
    rows = prove_texts(texts_of(CLASS, []))
    assert {row.contract for row in rows} == set(CONTRACTS)
    assert {row.outcome for row in rows} == {Outcome.HOLDS}
    assert [row.contract for row in rows if not row.counts] == []


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_negated_contract_is_refuted(contract: str) -> None:
    assert is_refuted_negated(of_reference(), contract)


@pytest.fixture
def forgetful(tmp_path: Path) -> Path:
    """The reference without its memory of debits, as releases are (vLLM #55733)."""
    text = Path(inspect.getfile(EncoderDecoderCacheManager)).read_text()
    once = "        if not self.semantics.releases_decoder_once:\n    "
    assert once in text
    file = tmp_path / "encoder_decoder_cache.py"
    file.write_text(text.replace(once, ""))
    return file


@pytest.mark.full
def test_a_second_release_breaks_what_it_breaks_in_releases(forgetful: Path) -> None:
    subject = of_reference()
    source = source_of(forgetful, CLASS).of_base(subject.sources["m"])
    outcomes = prove(replace(subject, sources={**subject.sources, "m": source}))
    assert {one for one in CONTRACTS if outcomes[one].word == "refuted"} == {
        "ED-1",
        "ED-2",
        "ED-5",
    }


def test_one_text_under_other_promises_is_another() -> None:
    source = SUBJECTS[CLASS].of_reference().sources["m"]
    reads = [ReadClass("path:a", one, source) for one in ("0.33.0", "0.32.0", "0.10.2")]
    _, *texts = texts_of(CLASS, reads)
    assert [(one.release, len(one.targets)) for one in texts] == [("0.33.0", 2), ("0.10.2", 1)]


def test_one_text_beside_others_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where a gate lets through what it names."""
    monkeypatch.setattr("cacheproof.proofs.symbolic.texts.refuse_subject", lambda _: None)
    source = SUBJECTS[CLASS].of_reference().sources["m"]
    name = min(named_beside(source.text, source.module), key=len).split()[-1]
    modules = ["", "\nUNNAMED = 1\n", f"\n{name} = 1\n", f"\ndef f():\n    global {name}\n"]
    reads = [
        ReadClass(f"path:{number}", "0.33.0", replace(source, module=source.module + more))
        for number, more in enumerate(modules)
    ]
    _, *texts = texts_of(CLASS, reads)
    assert [one.targets for one in texts] == [("path:0", "path:1"), ("path:2",), ("path:3",)]


@pytest.mark.parametrize(
    ("more", "is_told_again"),
    [
        ("\nUNNAMED = 1\n", True),
        ("\ndef unnamed() -> int:\n    return 1\n", True),
        ("\nsorted = len\n", False),
        ("\nprint(1)\n", False),
    ],
)
def test_a_class_is_proved_again_where_what_it_names_has_changed(
    more: str, is_told_again: bool
) -> None:
    """Or where a gate refuses the module, whatever it is that has changed."""
    source = SUBJECTS[CLASS].of_reference().sources["m"]
    texts = [
        ClassText(CLASS, ("path:a",), replace(source, module=source.module + one), "0.33.0")
        for one in ("", more)
    ]
    digests = {_digest(one, 0) for one in texts}
    assert (len(digests) == 1) == is_told_again
