"""What is said of raising is read: a contract that claims the contrary is not said to hold."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

import pytest

from cacheproof.proofs.symbolic.checking.witnesses import PoolExploring
from cacheproof.proofs.symbolic.deciding.refuter import Refuter
from cacheproof.proofs.symbolic.rules.readings import RuleLanguage
from cacheproof.proofs.symbolic.subjects import block_pool, encoder_cache, encoder_decoder_cache
from cacheproof.proofs.symbolic.values.values import Universe
from cacheproof.proofs.witness.pool import SETTINGS, explore
from cacheproof.reference.block_pool import BlockPool, KVCacheBlock
from cacheproof.spec import registry


@pytest.fixture
def negated(request: pytest.FixtureRequest) -> Iterator[str]:
    """A contract that claims the contrary."""
    rule = registry.by_id(request.param)
    tree = ast.copy_location(ast.UnaryOp(ast.Not(), rule.expression.tree), rule.expression.tree)
    expression = replace(rule.expression, tree=tree)
    registry._CONTRACTS[rule.id] = replace(
        rule, expression=expression, predicate=lambda call: not rule.predicate(call)
    )
    yield rule.id
    registry._CONTRACTS[rule.id] = rule


@pytest.mark.parametrize(
    ("negated", "about"),
    [("EC-13", encoder_cache), ("ED-4", encoder_decoder_cache)],
    indirect=["negated"],
)
def test_it_has_a_counterexample_and_no_traceback(negated: str, about: ModuleType) -> None:
    subject = about.of_reference()
    (init,) = [one for one in subject.operations if one.name == "init"]
    found = Refuter(subject, [RuleLanguage(Universe(2))]).counterexample(init, negated)
    assert found is not None
    assert found.sentence.startswith("init of capacity=")


@pytest.mark.full
@pytest.mark.parametrize("negated", ["KV-3"], indirect=True)
def test_what_a_pool_is_said_to_raise_is_asked_of_cpython(negated: str) -> None:
    exploring = PoolExploring(block_pool.of_reference())
    witness = exploring.witness(negated, (), None)
    assert "init()" in witness.against


class Raising(BlockPool):
    """A pool of which nothing is found."""

    def get_cached_block(self, *_: object) -> list[KVCacheBlock] | None:
        raise KeyError


@pytest.mark.parametrize("claims", [True, False])
def test_a_pool_that_raises_is_seen_to_where_that_is_claimed(
    monkeypatch: pytest.MonkeyPatch, claims: bool
) -> None:
    rule = registry.by_id("KV-3")
    claimed = rule.predicate if claims else lambda call: True
    monkeypatch.setitem(registry._CONTRACTS, rule.id, replace(rule, predicate=claimed))
    found = explore(Raising, SETTINGS[0], [rule.id], 100)
    assert (rule.id in found.broken) == claims
