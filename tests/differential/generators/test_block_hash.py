"""Generated traces of block keys ask of a release what it offers, and survive their file."""

import pytest

from cacheproof.differential.generators.block_hash import block_hash_trace
from cacheproof.differential.traces.block_hash import Continue
from cacheproof.differential.traces.trace_file import dump, parse


@pytest.mark.parametrize("release", ["0.10.1.1", "0.12.0", "0.14.1", "0.32.0", "0.33.0", None])
def test_a_release_gets_traces_of_what_it_offers(release: str | None) -> None:
    traces = [block_hash_trace(seed, release=release) for seed in range(60)]
    functions = {made.header.config.algorithm for made in traces}
    expected = {
        "0.10.1.1": {"sha256", "sha256_cbor_64bit"},
        "0.12.0": {"sha256", "sha256_cbor"},
    }
    assert functions == expected.get(
        release or "", {"sha256", "sha256_cbor", "xxhash", "xxhash_cbor"}
    )
    looks_ahead = any(made.header.config.lookahead for made in traces)
    assert looks_ahead is (release in ("0.33.0", None))
    continues = any(isinstance(event, Continue) for made in traces for event in made.events)
    assert continues is (release in ("0.32.0", "0.33.0", None))


def test_every_trace_survives_its_file() -> None:
    for seed in range(50):
        made = block_hash_trace(seed)
        assert parse(dump(made).encode().splitlines(), "test") == made
