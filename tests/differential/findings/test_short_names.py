"""Hashes are shortened as far as they can be told apart."""

from cacheproof.differential.findings.short_names import DIGITS_MIN, ShortNames

ONE, NEAR, FAR = "73a53baff2e5a7fe", "73a53bbff2e5a7fe", "1a96f8c3f0e27c33"


def test_a_hash_is_as_short_as_can_be() -> None:
    names = ShortNames([f"{ONE} is evicted for {FAR}"])
    assert names.say(f"{ONE}, {FAR}.") == f"{ONE[:DIGITS_MIN]}…, {FAR[:DIGITS_MIN]}…."
    assert names.full == {f"{FAR[:DIGITS_MIN]}…": FAR, f"{ONE[:DIGITS_MIN]}…": ONE}


def test_two_that_begin_alike_stay_apart() -> None:
    names = ShortNames([ONE, NEAR])
    short = [names.say(one) for one in (ONE, NEAR)]
    assert short == ["73a53ba…", "73a53bb…"]
    assert [names.full[one] for one in short] == [ONE, NEAR]


def test_one_that_another_begins_with_stays_whole() -> None:
    names = ShortNames([ONE, f"{ONE}00"])
    assert names.say(ONE) == ONE
    assert names.say(f"{ONE}00") != ONE


def test_what_is_no_hash_stays_as_it_is() -> None:
    text = "1234567890123 cafe r308 schedule(): 12 tokens"
    names = ShortNames([text])
    assert (names.say(text), names.full) == (text, {})
