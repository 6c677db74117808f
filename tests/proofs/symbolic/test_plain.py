"""What a text says in other words is read in those that proofs know, and nothing else is."""

import ast
from dataclasses import replace
from textwrap import dedent, indent
from types import SimpleNamespace
from typing import Any, cast

import pytest
import z3

from cacheproof.proofs.symbolic.deciding.prove import ProverLibrary
from cacheproof.proofs.symbolic.gate.gate import refuse_subject
from cacheproof.proofs.symbolic.reading.plain import in_plain_words
from cacheproof.proofs.symbolic.reading.source import Source, source_in
from cacheproof.proofs.symbolic.reading.statements import only_counts
from cacheproof.proofs.symbolic.subjects import encoder_cache
from cacheproof.proofs.symbolic.values.language import NotTranslated
from cacheproof.proofs.symbolic.values.state import State
from cacheproof.proofs.witness.classes import class_of
from cacheproof.reference.releases import NEWEST

LOGGER = "from vllm.logger import init_logger\nlogger = init_logger(__name__)\n"
REFERENCE = encoder_cache.of_reference().sources["m"]


def of(body: str, head: str = LOGGER) -> Source:
    method = f"def one(self, request, n):\n{indent(dedent(body).strip(), '    ')}\n"
    return source_in(f"{head}\nclass One:\n{indent(method, '    ')}", "One", "one.py")


def read(body: str, head: str = LOGGER) -> str:
    """The body of a method as proofs read it."""
    return "\n".join(map(ast.unparse, in_plain_words(of(body, head)).methods["one"].body))


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("assert n, f'{n}'", "assert n"),
        ("logger.debug('seen')", "pass"),
        ("logger.info('%d of %s', n, self.kept)", "n\nself.kept"),
        ("logger.warning(f'{n}: {self.kept!r}')", "n\nself.kept"),
        ("if (m := n) > 1:\n    return m", "m = n\nif m > 1:\n    return m"),
        ("try:\n    n = 1\nfinally:\n    n += 1", "n = 1\nn += 1"),
        ("m = []\nfor one in n:\n    m.append(one)", "m = [one for one in n]"),
        (
            "m = set()\nfor one in n:\n    if one:\n        m.add(one)",
            "m = {one for one in n if one}",
        ),
        (
            "for one in n:\n    if one:\n        return True\nreturn False",
            "return any((one for one in n))",
        ),
        (
            "for one in n:\n    if not one:\n        return False\nreturn True",
            "return all((one for one in n))",
        ),
        (
            "match n:\n    case 0:\n        return 1\n    case _:\n        return 2",
            "if n == 0:\n    return 1\nelif True:\n    return 2",
        ),
        (
            "while n:\n    logger.debug('%d', n)\n    assert n, 'n'",
            "while n:\n    n\n    assert n",
        ),
    ],
)
def test_other_words_are_read(text: str, plain: str) -> None:
    assert read(text) == plain


@pytest.mark.parametrize(
    "text",
    [
        "logger.debug()",
        "logger.debug('seen', exc_info=True)",
        "logger.warning_once('seen')",
        "logger.debug(f'{n:d}')",
        "logger.debug(*n)",
        "logger = n\nlogger.debug('seen')",
        "m = logger.debug('seen')",
        "while (m := n):\n    pass",
        "if n and (m := n):\n    pass",
        "m = n + (k := 1)",
        "try:\n    return n\nfinally:\n    n = 1",
        "try:\n    n = 1\nexcept KeyError:\n    pass",
        "m = [n]\nfor one in n:\n    m.append(one)",
        "m = []\nfor one in n:\n    m.append(one)\nreturn one",
        "m = []\nfor one in n:\n    if one not in m:\n        m.append(one)",
        "m = []\nfor one in n:\n    k.append(one)",
        "for one in n:\n    if one:\n        return 1\nreturn 0",
        "for one in n:\n    if one:\n        return True\nn = 1\nreturn False",
        "match n:\n    case True:\n        return 1",
        "match n:\n    case m:\n        return 1",
        "match n + 1:\n    case 1:\n        return 1",
    ],
)
def test_what_may_mean_something_else_is_left_as_it_is(text: str) -> None:
    source = of(text)
    assert in_plain_words(source).methods["one"] is source.methods["one"]


@pytest.mark.parametrize(
    "head",
    [
        "import logging\nlogger = logging.getLogger(__name__)\n",
        "from elsewhere import init_logger\nlogger = init_logger(__name__)\n",
        "from vllm.logger import init_logger as make\nlogger = init_logger(__name__)\n",
        "from vllm.logger import other\nlogger = init_logger(__name__)\n",
        "from vllm.logger import other as init_logger\nlogger = init_logger(__name__)\n",
        "from vllm.logger import init_logger\nlogger = other(__name__)\n",
        f"{LOGGER}logger = None\n",
        f"{LOGGER}def init_logger(name):\n    return None\n",
    ],
)
def test_another_logger_is_none(head: str) -> None:
    assert read("logger.debug('seen')", head) == "logger.debug('seen')"


def test_cpython_runs_the_text_as_it_stands() -> None:
    source = in_plain_words(of("if (m := n) > 1:\n    return m\nreturn 0"))
    assert ast.unparse(source.tree).count(":=") == 1
    assert class_of(source.tree, "one.py", "One")().one(None, 3) == 3


def test_what_a_scheduler_gives_by_place_is_not_taken_by_keyword() -> None:
    last = "        num_embeds_to_schedule: int,\n    ) -> bool:\n"
    assert REFERENCE.module.count(last) == 1
    text = REFERENCE.module.replace(last, f"        *,\n{last}")
    source = source_in(text, REFERENCE.name, "text")
    said = "can_allocate, which takes num_embeds_to_schedule by keyword alone"
    with pytest.raises(NotTranslated, match=said):
        refuse_subject(encoder_cache.of_release(NEWEST, source))


def test_attributes_of_ones_own_may_have_other_names() -> None:
    """By how they are annotated; two of one kind are not told apart."""
    text = """
class EncoderCacheManager:
    def __init__(self, cache_size):
        self.cache_size = cache_size
        self._inputs: dict[str, set[int]] = {}
        another = 0

    def free(self, request):
        self._inputs.clear()
"""
    for another, known in (("pass", True), ("self._others: dict[str, set[int]] = {}", False)):
        source = source_in(text.replace("another = 0", another), "EncoderCacheManager", "text")
        read = encoder_cache.of_release(NEWEST, source).sources["m"]
        assert ("request_cached_ids" in read.attributes) == known
        assert ("request_cached_ids" in ast.unparse(read.methods["free"])) == known


def counting(value: str) -> Source:
    """The reference's manager, which adds something to a number of its own at each look-up."""
    begun, asked = "        self.cache_size = cache_size\n", "    def check_and_update_cache("
    head, _, tail = REFERENCE.module.replace(begun, f"{begun}        self.hits = 0\n").partition(
        asked
    )
    first, _, rest = tail.partition("        identifier = ")
    text = f"{head}{asked}{first}        self.hits += {value}\n        identifier = {rest}"
    return source_in(text, REFERENCE.name, "text")


def conditions_of_a_look_up(source: Source) -> int:
    subject = encoder_cache.of_release(NEWEST, source)
    (operation,) = [one for one in subject.operations if one.name == "check"]
    return len(ProverLibrary().prover(subject, operation).conditions)


@pytest.mark.parametrize("value", ["1", "request.get_num_encoder_embeds(input_id)"])
def test_a_counter_that_nobody_reads_is_left_aside(value: str) -> None:
    assert conditions_of_a_look_up(counting(value)) >= conditions_of_a_look_up(REFERENCE)


@pytest.mark.parametrize("value", ["request.request_id", "True", "None", "self.hits"])
def test_what_is_no_number_is_not_added_to_one(value: str) -> None:
    with pytest.raises(NotTranslated, match=r"no reading of self\.hits"):
        conditions_of_a_look_up(counting(value))


def test_a_number_that_contracts_look_at_is_none_that_nobody_reads() -> None:
    """Even if it begins as a number that is written there, and is only added to."""
    text = """
class EncoderCacheManager:
    def __init__(self, cache_size):
        self.num_free_slots = 0

    def free(self, request):
        self.num_free_slots += 1
"""
    source = source_in(text, "EncoderCacheManager", "text")
    assert source.is_counter("num_free_slots")
    state = State({("m", "num_free_slots"): z3.Int("n")}, {}, {"": ("m", "free")})
    asked = SimpleNamespace(sources={"m": source})
    assert not only_counts(cast("Any", asked), "num_free_slots", state)
    nobody = replace(state, attributes={})
    assert only_counts(cast("Any", asked), "num_free_slots", nobody)
