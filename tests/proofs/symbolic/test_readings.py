"""A rule that was read of names says of terms what it says when it is read of them."""

from collections.abc import Mapping
from types import ModuleType

import pytest
import z3

from cacheproof.proofs.logic import Formula
from cacheproof.proofs.symbolic.deciding.play import Play
from cacheproof.proofs.symbolic.rules.predicates import PredicateReader
from cacheproof.proofs.symbolic.rules.readings import RuleLanguage
from cacheproof.proofs.symbolic.subjects import block_pool, encoder_cache, encoder_decoder_cache
from cacheproof.proofs.symbolic.values.records import Record
from cacheproof.proofs.symbolic.values.state import Operand
from cacheproof.proofs.symbolic.values.values import Universe


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("about", "size"),
    [(encoder_cache, None), (encoder_decoder_cache, 2), (block_pool, None)],
    ids=["encoder cache", "encoder-decoder, two elements", "block pool"],
)
def test_every_rule_reads_as_it_would_anew(about: ModuleType, size: int | None) -> None:
    subject = about.of_reference()
    language = RuleLanguage(Universe(size))
    compared = 0
    for operation in subject.operations:
        play = Play(subject, operation, language)
        rules = subject.transitions.get(operation.name, ())
        for end in play.ends:
            names = play.names(end.after)
            judged = [(rule, names) for rule in subject.invariants]
            for rule, seen in (*judged, *((rule, end.names) for rule in rules)):
                anew = PredicateReader(language.words, rule.place).formula(rule.tree, seen)
                if anew[0] is True:  # words that make something new are never the same
                    _, holds = language.formula(rule, seen)
                    assert _is(holds, anew[1]), (operation.name, rule.id)
                    compared += 1
    assert compared > 100


def _is(one: Formula, other: Formula) -> bool:
    if isinstance(one, z3.ExprRef) and isinstance(other, z3.ExprRef):
        return z3.simplify(one).eq(z3.simplify(other))  # z3 turns 1 <= x into x >= 1
    return one is other


def test_records_of_another_kind_are_read_anew() -> None:
    language = RuleLanguage(Universe(2))
    subject = encoder_cache.of_reference()
    (rule,) = [one for one in subject.transitions["can"] if one.id == "EC-12"]

    def records(answer: Operand) -> Mapping[str, Record]:
        call = {"granted": answer, "need": z3.Int("need"), "budget": z3.Int("budget")}
        play = Play(subject, subject.operations[0], language)
        state = play.names(play.ends[0].after)["s"]
        return {"pre": state, "post": state, "c": Record({**call, "pending": z3.Int("pending")})}

    unknown, granted = (
        language.formula(rule, records(answer))[1] for answer in (z3.Bool("granted"), True)
    )
    assert not _is(unknown, granted)
    assert _is(language.formula(rule, records(True))[1], granted)
