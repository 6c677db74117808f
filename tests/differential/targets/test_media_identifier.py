"""Identifiers that real releases give to items, beside those of the reference; MH-5 over them."""

import json
import random
import subprocess
from dataclasses import replace
from functools import cache
from itertools import combinations, product

import pytest

from cacheproof.differential.provision import releases
from cacheproof.differential.targets import mended
from cacheproof.differential.texts import mends
from cacheproof.reference.media_identifier import ItemName, identifier
from cacheproof.reference.releases import NEWEST
from cacheproof.reference.semantics import Semantics
from cacheproof.reference.semantics.media import MediaSemantics
from cacheproof.spec.media_hash import NamedPair, identifiers_apart

OTHERS = ("0.14.0", "0.15.1", "0.18.1", "0.22.1", "0.28.0", "0.31.0")
CAUSES = ("media.separates_user_ids", "media.measures_adapter_names")
DRAW = random.Random("identifiers")


def drawn(count: int) -> list[str]:
    """Short texts, which have much in common."""
    return ["".join(DRAW.choices("ab:", k=DRAW.randint(1, 4))) for _ in range(count)]


NAMES = [ItemName(text, is_users) for text, is_users in product(drawn(12), (False, True))]
ADAPTERS = (None, *drawn(6))
CASES = list(product(NAMES, ADAPTERS, (False, True)))
"""How an item is named, the request's adapter, and whether adapters reach the encoder."""
ASK = """
import json, sys
from types import SimpleNamespace as N
from vllm.v1.engine.input_processor import InputProcessor
def made(key, adapter, reaches):
    processor = N(lora_config=N(enable_tower_connector_lora=reaches))
    return InputProcessor._get_mm_identifier(processor, key, adapter and N(lora_name=adapter))
def key_of(text, is_users):
    if not is_users:
        return text
    try:
        import numpy as np
        from vllm.multimodal.parse import MultiModalDataParser, parse_mm_uuids
        from vllm.multimodal.processing.inputs import ProcessorInputs
    except ImportError:
        return text
    items = MultiModalDataParser().parse_mm_data({"image": [np.zeros((2, 2, 3), "u1")]})
    inputs = ProcessorInputs([], items, mm_uuid_items=parse_mm_uuids({"image": [text]}))
    asked = ["m", "blake3"][: inputs.get_mm_hashes.__code__.co_argcount - 1]
    return inputs.get_mm_hashes(*asked)["image"][0]
cases = json.loads(sys.argv[1])
print(json.dumps([made(key_of(*name), adapter, reaches) for name, adapter, reaches in cases]))
"""


@cache
def of_release(release: str, *names: str) -> list[str]:
    """The identifier of each case by a release, with faults of these names mended. Before 0.18 the
    key of a user's id is that id."""
    installed = releases.install(release, report=print)
    if names:
        installed = mended.tree_of(installed, names, report=print)
    command, environment = releases.host_command(installed)
    done = subprocess.run(
        [*command, "-P", "-c", ASK, json.dumps(CASES)],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return list(json.loads(done.stdout.splitlines()[-1]))


def of_reference(semantics: MediaSemantics) -> list[str]:
    return [
        identifier(name, adapter if reaches else None, semantics)
        for name, adapter, reaches in CASES
    ]


def meeting(identifiers: list[str]) -> int:
    """Pairs of cases of one engine that break MH-5."""
    shown = zip(CASES, identifiers, strict=True)
    return sum(
        not identifiers_apart(NamedPair(one == two, not reaches or adapter == other, first, second))
        for ((one, adapter, reaches), first), ((two, other, also), second) in combinations(shown, 2)
        if reaches == also
    )


@pytest.mark.full
@pytest.mark.parametrize("release", [NEWEST, *OTHERS])
def test_a_release_names_items_as_the_reference_does_and_breaks_the_rule(release: str) -> None:
    assert of_release(release) == of_reference(Semantics.of_vllm(release).media)
    assert meeting(of_release(release)) > 0


@pytest.mark.full
def test_a_mended_release_names_items_as_its_flags_say_and_keeps_the_rule() -> None:
    flags = mends.flags_of(["media-hash-identifiers"])
    semantics = Semantics.of_vllm(NEWEST).changed(flags)
    identifiers = of_release(NEWEST, "media-hash-identifiers")
    assert identifiers == of_reference(semantics.media)
    assert meeting(identifiers) == 0


@pytest.mark.parametrize("missing", [None, *CAUSES])
def test_two_changes_of_the_newest_keep_the_rule_and_neither_does_alone(
    missing: str | None,
) -> None:
    flags = {flag: flag != missing for flag in CAUSES}
    made = of_reference(Semantics.of_vllm(NEWEST).changed(flags).media)
    assert (meeting(made) > 0) == (missing is not None)


def test_the_ideal_reference_keeps_the_rule() -> None:
    assert meeting(of_reference(MediaSemantics())) == 0


@pytest.mark.full
@pytest.mark.parametrize(
    "flag", ["identifies_adapters", "separates_user_ids", "measures_adapter_names"]
)
def test_another_choice_would_be_seen(flag: str) -> None:
    newest = Semantics.of_vllm(NEWEST).media
    other = replace(newest, **{flag: not getattr(newest, flag)})
    assert of_release(NEWEST) != of_reference(other)
