"""What a row says beside its witnesses."""

from cacheproof.spec.evidence import Evidence, Outcome, RedTwin, Witness, witnessed

ROW = Evidence(
    "EC-1", "reference", "EncoderCacheManager", "proof", "unbounded", Outcome.HOLDS, "", "d", 0.0,
    (RedTwin("a change", refuted=True),),
)  # fmt: skip
NOTICED = RedTwin("a change", refuted=True)
AGREES = Witness("exploration", "9 calls", "", NOTICED)


def test_a_row_whose_witnesses_agree_holds() -> None:
    assert witnessed(ROW, [AGREES]).outcome is Outcome.HOLDS


def test_a_witness_that_saw_otherwise_is_named_with_what_it_saw() -> None:
    row = witnessed(ROW, [AGREES, Witness("exploration", "9 calls", "init(); can(r0, 0)", NOTICED)])
    assert row.outcome is Outcome.DISAGREE
    assert row.note == "proved; but exploration saw init(); can(r0, 0)"


def test_a_witness_that_notices_nothing_leaves_the_proof_alone() -> None:
    blind = Witness("exploration", "9 calls", "", RedTwin("a change", refuted=False))
    row = witnessed(ROW, [blind])
    assert row.outcome is Outcome.ALONE
    assert "does not notice a change" in row.note


def test_calls_that_cannot_happen_make_a_row_vacuous() -> None:
    row = witnessed(ROW, [Witness("validation", "9 calls", "", NOTICED, vacuous="reset")])
    assert row.outcome is Outcome.VACUOUS
    assert row.note == "proved of calls that cannot happen: reset"


def test_a_witness_that_does_not_reach_a_call_leaves_the_proof_alone() -> None:
    row = witnessed(ROW, [Witness("validation", "9 calls", "", NOTICED, unreached="reset")])
    assert row.outcome is Outcome.ALONE
    assert row.note == "validation (9 calls) does not reach reset"


def test_the_worst_that_a_witness_says_is_what_a_row_says() -> None:
    vacuous = Witness("validation", "9 calls", "", NOTICED, vacuous="reset")
    against = Witness("exploration", "9 calls", "init()", NOTICED)
    for witnesses in ([vacuous, against, AGREES], [AGREES, against, vacuous]):
        assert witnessed(ROW, witnesses).outcome is Outcome.DISAGREE
