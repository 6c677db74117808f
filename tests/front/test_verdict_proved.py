"""What proofs conclude is said in words, and a rule that does not hold by its sentence."""

from dataclasses import replace

import pytest

from cacheproof.differential.search.known import KnownFault
from cacheproof.proving import verdict as proved
from cacheproof.spec.evidence import Evidence, Outcome, RedTwin

TWIN = (RedTwin("a twin", True),)
HELD = Evidence(
    "EC-4",
    "vllm@0.33.0",
    "EncoderCacheManager",
    "proof",
    "unbounded",
    Outcome.HOLDS,
    "",
    "",
    1,
    TWIN,
)
BROKEN = replace(HELD, contract="ID-1", outcome=Outcome.REFUTED, note="digest '0' as id '0'")
FAULT = KnownFault("identifiers", "a title", "safety", page="faults/ids/page.md")
TITLE = "Items named otherwise, or encoded with another adapter, have other identifiers"
EACH = "each of which refutes a text with a planted fault"


def said(code: int, *rows: Evidence, known: bool = True, unproved: int = 0) -> str:
    listed = {row: FAULT for row in rows if row.outcome is Outcome.REFUTED and known}
    return proved.line_of(["vllm@0.33.0"], code, rows, listed, unproved).sentence


@pytest.mark.parametrize(
    ("sentence", "told"),
    [
        (
            said(0, HELD),
            "The text of vllm@0.33.0 keeps every rule that was proved: 1 of 1 check holds, "
            f"{EACH}.",
        ),
        (
            said(0, HELD, BROKEN),
            f"The text of vllm@0.33.0 shows nothing new: 1 of 2 checks holds, {EACH}; 1 does not, "
            "for a known fault (identifiers).",
        ),
        (
            said(1, HELD, BROKEN, known=False),
            f"The text of vllm@0.33.0 shows a new fault, which breaks ID-1 ({TITLE}): 1 of 2 "
            f"checks holds, {EACH}.",
        ),
        (
            said(3, HELD, replace(HELD, outcome=Outcome.UNKNOWN), replace(HELD, twins=())),
            f"These proofs of vllm@0.33.0 do not suffice: 1 of 3 checks holds, {EACH}; 1 is not "
            "decided, since the solver gave up; 1 holds, and was not seen to fail.",
        ),
        (said(3), "These proofs of vllm@0.33.0 do not suffice: nothing was proved."),
        (
            said(130, BROKEN, known=False, unproved=2),
            f"The proofs of vllm@0.33.0 were interrupted: 0 of 1 check hold, {EACH}; not kept and "
            f"not known: ID-1 ({TITLE}); 2 texts were not proved.",
        ),
    ],
)
def test_proofs_conclude_in_a_sentence(sentence: str, told: str) -> None:
    assert sentence == told


def test_a_rule_that_does_not_hold_is_told_in_words_and_by_its_formula_last() -> None:
    assert list(proved.told(BROKEN, FAULT)) == [
        f"ID-1 does not hold of vllm@0.33.0: {TITLE}",
        "  safety; known as identifiers, faults/ids/page.md; EncoderCacheManager, by proof",
        "  shown by: digest '0' as id '0'",
    ]
    assert "not listed" in list(proved.told(BROKEN, None))[1]


def test_a_new_fault_is_to_be_searched_for_and_a_known_one_read_about() -> None:
    new = proved.line_of(["path:fork"], 1, [replace(BROKEN, target="path:fork")], {})
    assert new.command == "cacheproof fuzz --target path:fork --seconds 60"
    known = proved.line_of(["vllm@0.33.0"], 0, [BROKEN], {BROKEN: FAULT})
    assert known.step == "read what is known: faults/ids/page.md"
