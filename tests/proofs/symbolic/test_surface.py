"""What no proof of a class's calls would notice is refused: what else changes its objects, calls
that it lacks, and how they come to be built."""

import ast
from collections.abc import Mapping

import pytest

from cacheproof.proofs.symbolic.checking.witnesses import ManagerExploring
from cacheproof.proofs.symbolic.deciding.prove import prove
from cacheproof.proofs.symbolic.gate.gate import _assigned, refuse_subject
from cacheproof.proofs.symbolic.gate.gate_module import unbound
from cacheproof.proofs.symbolic.reading.source import source_in, source_of
from cacheproof.proofs.symbolic.subjects import encoder_cache, encoder_decoder_cache
from cacheproof.proofs.symbolic.values.language import NotTranslated
from cacheproof.proofs.witness.classes import class_of
from cacheproof.proofs.witness.exploration import SCOPES

RELEASE = "0.33.0"
MANAGER = encoder_cache.CLASS
COUNTER = encoder_decoder_cache.CLASS
TEXT = encoder_cache.of_reference().sources["m"].module
BUILT = "        self.cache_size = cache_size\n"
RESET = "    def reset(self) -> None:\n"
COUNTS = f"""

class {COUNTER}({MANAGER}):
    def __init__(self, cache_size):
        self.cache_size = cache_size
        self.num_free_slots = cache_size
        self.allocated = []
        self.to_free = []

    def reset(self):
        self.num_free_slots = self.cache_size
        self.allocated.clear()
        self.to_free.clear()

    def check_and_update_cache(self, request, input_id):
        return False

    def can_allocate(self, request, input_id, budget, pending):
        need = request.get_num_encoder_embeds(input_id)
        return need <= budget and need + pending <= self.num_free_slots

    def allocate(self, request, input_id):
        self.num_free_slots -= request.get_num_encoder_embeds(input_id)
        self.allocated.append(request.mm_features[input_id].identifier)

    def free(self, request):
        for input_id in range(len(request.mm_features)):
            self.free_encoder_input(request, input_id)

    def get_cached_input_ids(self, request):
        return set(range(len(request.mm_features)))

    def get_freed_mm_hashes(self):
        to_free = self.to_free
        self.to_free = self.allocated
        self.allocated = []
        return to_free

    def free_encoder_input(self, request, input_id):
        self.num_free_slots += request.get_num_encoder_embeds(input_id)
"""
HEAD = f"\n\nclass {COUNTER}"
METHOD = "    def get_manager_metadata(self) -> None:\n"
BUILDER = "        return cls(cache_size)\n"
RUNS = "def _patched():\n    return int\n\n\n"
OF_MANAGER: Mapping[str, tuple[str, str]] = {
    "a method without a proof that empties a dict": (
        METHOD,
        METHOD + "        self.cached.clear()\n",
    ),
    "one that empties a list in place": (
        METHOD,
        METHOD + "        freed = self.freed\n        freed *= 0\n",
    ),
    "one that has a builtin change a list": (
        METHOD,
        METHOD + "        sorted(self.cached, key=self.freed.append)\n",
    ),
    "one that sets an attribute": (METHOD, METHOD + "        self.num_free_slots = 0\n"),
    "one that runs a call that is proved": (METHOD, METHOD + "        self.reset()\n"),
    "one that gives a container away": (METHOD, METHOD + "        empty(self.cached)\n"),
    "a builder that changes what it built": (
        BUILDER,
        "        one = cls(cache_size)\n        one.num_free_slots += 1\n        return one\n",
    ),
    "a builder of another capacity": (BUILDER, "        return cls(cache_size + 1)\n"),
    "a builder of a capacity that it is not given": (
        "create_manager(cls, *, cache_size: int, ",
        "create_manager(cls, *, ",
    ),
    "one that gives a builtin a function": (METHOD, METHOD + "        sorted([1], key=_wipe)\n"),
    "one that raises": (METHOD, METHOD + "        raise NotImplementedError\n"),
    "one that may not end": (METHOD, METHOD + "        while True:\n            pass\n"),
    "self under another name": (RESET, RESET + "        me = self\n        me.freeable = {}\n"),
    "self in a list": (METHOD, METHOD + "        str([self])\n"),
    "an annotation that runs something": (
        f"class {MANAGER}",
        f"{RUNS}_kept: _patched() = 1\n\n\nclass {MANAGER}",
    ),
    "a function's annotation that runs something": (
        f"class {MANAGER}",
        f"{RUNS}def _other() -> _patched():\n    pass\n\n\nclass {MANAGER}",
    ),
    "a default that runs something": (
        f"class {MANAGER}",
        f"{RUNS}def _other(one=_patched()):\n    pass\n\n\nclass {MANAGER}",
    ),
    "a default of a method that runs something": (
        f"class {MANAGER}",
        f"{RUNS}class _Other:\n    def of(self, *, one=_patched()):\n        pass\n\n\n"
        f"class {MANAGER}",
    ),
    "a base that runs something": (
        f"class {MANAGER}",
        f"{RUNS}class _Other(_patched()):\n    pass\n\n\nclass {MANAGER}",
    ),
    "a function of the module by another name": (
        f"class {MANAGER}",
        f"{RUNS}_alias = _patched\n_done = _alias()\n\n\nclass {MANAGER}",
    ),
    "a decorator of the module that has a known name": (
        f"class {MANAGER}",
        "def overload(of):\n    return of\n\n\n@overload\ndef _other():\n    pass\n\n\n"
        f"class {MANAGER}",
    ),
    "a decorator from elsewhere that has a known name": (
        f"class {MANAGER}",
        "from elsewhere import overload\n\n\n@overload\ndef _other():\n    pass\n\n\n"
        f"class {MANAGER}",
    ),
    "a class of the module that is asked for an item": (
        f"class {MANAGER}",
        "class _P:\n    def __class_getitem__(cls, item):\n        return cls\n\n\n"
        f"class _Other(_P[0]):\n    pass\n\n\nclass {MANAGER}",
    ),
    "a value that a class of the module is asked for": (
        f"class {MANAGER}",
        "class _P:\n    def __class_getitem__(cls, item):\n        return cls\n\n\n"
        f"_done = _P[0]\n\n\nclass {MANAGER}",
    ),
    "an imported function that runs one of the module": (
        f"class {MANAGER}",
        f"from functools import reduce\n\n\n{RUNS}_done = reduce(_patched, 'ab')\n\n\n"
        f"class {MANAGER}",
    ),
    "an imported function that runs a text": (
        f"class {MANAGER}",
        f"from timeit import timeit\n\n_done = timeit('0', 'pass', 1)\n\n\nclass {MANAGER}",
    ),
    "a module that waits": (
        f"class {MANAGER}",
        f"from time import sleep\n\n_done = sleep(100000)\n\n\nclass {MANAGER}",
    ),
    "a module that prints": (f"class {MANAGER}", f"_done = print('here')\n\n\nclass {MANAGER}"),
    "a logger from elsewhere": (
        f"class {MANAGER}",
        f"from elsewhere import init_logger\n\nlogger = init_logger(__name__)\n\n\nclass {MANAGER}",
    ),
    "a call that fails": (METHOD, METHOD + "        return 1 // 0\n"),
    "a call that calls itself": (METHOD, METHOD + "        return self.get_manager_metadata()\n"),
    "a builder that is not given what a scheduler gives it": (
        "def create_manager(cls, *, cache_size: int, vllm_config: Any)",
        "def create_manager(cls, *, cache_size: int)",
    ),
    "a builder that wants more": (
        "def create_manager(cls, *, cache_size: int, vllm_config: Any)",
        "def create_manager(cls, *, cache_size: int, vllm_config: Any, more: int)",
    ),
    "a call that wants more than it is given": (
        METHOD,
        METHOD.replace("self", "self, step"),
    ),
    "an object from elsewhere": (
        f"class {MANAGER}:",
        f"from elsewhere import Base as object\n\n\nclass {MANAGER}(object):",
    ),
    "a name that nothing binds": (RESET, RESET + "        if self.freed:\n            nothing\n"),
    "an annotation that nothing binds": (METHOD, METHOD.replace("None", "Nothing")),
    "a property that is called": (
        RESET,
        "    @property\n    def _room(self) -> int:\n        return self.num_free_slots\n\n"
        f"{RESET}        room = self._room()\n",
    ),
    "a method that is not called": (RESET, RESET + "        room = self.free\n"),
    "a keyword that Python does not change as it changes the parameter": (
        RESET,
        "    def _lacks(self, __need: int) -> bool:\n        return __need > 0\n\n"
        f"{RESET}        lacks = self._lacks(__need=1)\n",
    ),
    "a class that is told of those that are derived from it": (
        f"class {MANAGER}",
        f"class _Hook:\n    def __init_subclass__(cls):\n        pass\n\n\nclass {MANAGER}",
    ),
    "a base from elsewhere that runs something": (
        f"class {MANAGER}",
        f"from enum import Enum\n\n\nclass _E(Enum):\n    A = 1\n\n\nclass {MANAGER}",
    ),
    "a base that is no class of the module": (
        f"class {MANAGER}",
        "from elsewhere import other\n\n_base = other\n\n\n"
        f"class _E(_base):\n    pass\n\n\nclass {MANAGER}",
    ),
    "an annotation that asks what the module defines": (
        f"class {MANAGER}",
        f"class _E:\n    A = 1\n\n\ndef _other(one: _E.A | None):\n    pass\n\n\nclass {MANAGER}",
    ),
    "a default that asks what the module defines": (
        f"class {MANAGER}",
        f"class _E:\n    A = 1\n\n\ndef _other(one=_E.A):\n    pass\n\n\nclass {MANAGER}",
    ),
    "a value that asks what the module defines": (
        f"class {MANAGER}",
        f"class _E:\n    A = 1\n\n\n_done = _E.A + 1\n\n\nclass {MANAGER}",
    ),
    "a value that is put into words": (
        f"class {MANAGER}",
        f"class _E:\n    A = 1\n\n\n_done = f'{{_E}}'\n\n\nclass {MANAGER}",
    ),
    "a method with a decorator's name": (
        "    @classmethod\n    def create_manager",
        "    def classmethod(of):\n        return of\n\n    @classmethod\n    def create_manager",
    ),
    "a class without a call": (RESET, "    def reset_all(self) -> None:\n"),
    "an __init__ that answers": (
        BUILT,
        BUILT + "        if cache_size:\n            return True\n",
    ),
    "a capacity that is none's": (BUILT, "        self.cache_size = cache_size + 1\n"),
    "a parameter that is changed first": (BUILT, "        cache_size += 1\n" + BUILT),
    "a capacity that grows": (RESET, RESET + "        self.cache_size += 1\n"),
    "a class that raises what ends a process": (RESET, RESET + "        raise SystemExit(0)\n"),
    "a module with builtins of its own": (
        f"class {MANAGER}",
        f"from elsewhere import some as __builtins__\n\n\nclass {MANAGER}",
    ),
}
OF_COUNTER: Mapping[str, tuple[str, str]] = {
    "a base that is imported over the one that is read": (
        HEAD,
        f"\n\nfrom elsewhere import {MANAGER}{HEAD}",
    ),
    "a base that is something else by then": (
        HEAD,
        f"\n\nfrom elsewhere import Other\n\n{MANAGER} = Other{HEAD}",
    ),
    "an inherited method that sets an attribute": (
        "        return self.num_embeds_by_hash.get(",
        "        self.num_free_slots += 1\n        return self.num_embeds_by_hash.get(",
    ),
    "a class that inherits a call from nowhere": (
        f"class {COUNTER}({MANAGER})",
        f"class {COUNTER}",
    ),
    "a base that lacks a call": ("def get_manager_metadata", "def metadata"),
    "a class that inherits a call": (
        "    def allocate(self, request, input_id):\n",
        "    def _of(self, request, input_id):\n",
    ),
}


def test_what_is_changed_here_is_let_through_as_it_stands() -> None:
    refuse_subject(encoder_cache.of_reference())
    refuse_subject(encoder_decoder_cache.of_release(RELEASE, source_in(TEXT + COUNTS, COUNTER, "")))


@pytest.mark.parametrize("name", OF_MANAGER)
def test_a_manager_is_refused_with(name: str) -> None:
    with pytest.raises(NotTranslated, match=r"changed\.py:\d+: no reading of"):
        refuse_subject(_changed(*OF_MANAGER[name]))


@pytest.mark.parametrize("name", OF_COUNTER)
def test_a_manager_that_inherits_is_refused_with(name: str) -> None:
    old, new = OF_COUNTER[name]
    text = TEXT + COUNTS
    assert old in text
    before, after = text.rsplit(old, 1)
    source = source_in(before + new + after, COUNTER, "changed.py")
    with pytest.raises(NotTranslated, match=r"changed\.py:\d+: no reading of"):
        refuse_subject(encoder_decoder_cache.of_release(RELEASE, source))


@pytest.mark.parametrize("name", ["get_manager_metadata", "create_manager"])
def test_a_class_has_what_its_scheduler_calls_beside_what_is_proved(name: str) -> None:
    source = source_in(TEXT.replace(f"def {name}", f"def _{name}"), MANAGER, "changed.py")
    refuse_subject(encoder_cache.of_release("0.26.0", source))
    with pytest.raises(NotTranslated, match=f"{MANAGER} without a method {name}"):
        refuse_subject(encoder_cache.of_release(RELEASE, source))


@pytest.mark.parametrize(
    ("name", "now", "has", "lacks"),
    [
        ("get_num_encoder_tokens", "get_num_encoder_embeds", "0.12.0", "0.13.0"),
        ("get_num_encoder_embeds", "get_num_encoder_embeds", "0.13.0", "0.12.0"),
        ("mm_hashes[input_id]", "mm_features[input_id].identifier", "0.10.2", "0.11.0"),
    ],
)
def test_a_request_is_asked_for_what_it_has_in_its_release(
    name: str, now: str, has: str, lacks: str
) -> None:
    text = TEXT.replace(now, name)
    if now != "get_num_encoder_embeds":
        text = text.replace("get_num_encoder_embeds", "get_num_encoder_tokens")
    source = source_in(text, MANAGER, "changed.py")
    refuse_subject(encoder_cache.of_release(has, source))
    with pytest.raises(NotTranslated, match="which a request of its release has not"):
        refuse_subject(encoder_cache.of_release(lacks, source))


def test_a_name_that_only_a_checker_imports_is_not_there() -> None:
    checked = "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    "
    uses = f"class {MANAGER}:\n    def kept(self) -> int:\n        return 1\n\n"
    imports = "from collections import OrderedDict\n\n\n"
    asks = uses.replace("return 1", "return len(OrderedDict())")
    for told, is_there in (("", True), (checked, False)):
        found = unbound(source_in(told + imports + asks, MANAGER, "changed.py"))
        assert [one.what for one in found] == (
            [] if is_there else ["OrderedDict, which nothing is certain to bind"]
        )


def test_what_loops_bind_are_names_each_once() -> None:
    for target in (
        "self.num_free_slots",
        "self.freeable[one]",
        "(one, one)",
        "(one, (two, three))",
    ):
        for text in (
            f"one = 0\n        any(True for {target} in range(1))",
            f"one = 0\n        for {target} in range(1):\n            pass",
        ):
            with pytest.raises(NotTranslated, match="bound by a loop"):
                refuse_subject(_changed(RESET, f"{RESET}        {text}\n"))


def test_a_release_before_a_call_may_lack_it() -> None:
    text = TEXT.replace(RESET, "    def _reset(self) -> None:\n")
    operations = [
        [one.name for one in encoder_cache.of_release(release, source).operations]
        for source in [source_in(text, MANAGER, "changed.py")]
        for release in ("0.15.1", "0.16.0")
    ]
    assert "reset" not in operations[0]
    assert "reset" in operations[1]


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("an __init__ that answers", "EC-13"),
        ("a capacity that is none's", "EC-1"),
        ("a capacity that grows", "EC-1"),
        ("a class that raises what ends a process", "EC-13"),
    ],
)
def test_the_exploration_breaks_by_itself(name: str, rule: str) -> None:
    exploring = ManagerExploring(_changed(*OF_MANAGER[name]))
    assert any(rule in exploring.explorer.explore(scope, 600).broken for scope in SCOPES)


def test_a_text_is_read_in_its_own_encoding(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "changed.py"
    hidden = "# a remark \\n        return True\n"
    path.write_text(f"# coding: unicode_escape\nclass A:\n    def m(self):\n        {hidden}")
    assert "m" in source_of(path, "A").methods
    assert "return True" in source_of(path, "A").module


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [
        (
            "        if holders is None:\n            return False\n",
            "        if holders is None:\n            return 0\n",
            r"check_and_update_cache\(\), which answers no truth value",
        ),
        (
            "            self.num_freeable_slots -= self.freeable.pop(identifier)\n",
            "            next(iter(self.freeable), self.freeable.pop(identifier))\n",
            r"self\.freeable\.pop\(identifier\)",
        ),
        (
            RESET,
            f"{RESET}        kept = list(self.cached.items())\n        kept = 1\n",
            r"no reading of list\(self\.cached\.items\(\)\)",
        ),
        (
            RESET,
            f"{RESET}        if set() in self.cached.values():\n            return\n",
            r"no reading of set\(\) in self\.cached\.values\(\)",
        ),
        (
            RESET,
            f"{RESET}        self.num_embeds_by_hash = OrderedDict()\n",
            r"an empty OrderedDict is put where",
        ),
        (
            "    def __init__(self, cache_size: int, semantics: ",
            "    def __init__(self, cache_size: int, more: int, further: int, semantics: ",
            r"changed\.py:\d+: no reading of __init__\(\) with 2 arguments",
        ),
    ],
)
def test_what_is_refused_where_it_is_read(old: str, new: str, refused: str) -> None:
    with pytest.raises(NotTranslated, match=refused):
        prove(_changed(old, new))


def test_a_module_that_ends_the_process_or_does_not_end_has_no_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cacheproof.proofs.witness.classes.SECONDS_OF_IMPORT", 0.1)
    for text in ("raise SystemExit(0)\n", "while True:\n    pass\n"):
        with pytest.raises(LookupError, match="does not run to its end"):
            class_of(ast.parse(text), "changed.py", MANAGER)


def test_what_is_put_where_is_followed_into_tuples() -> None:
    (node,) = ast.parse("(self.a, (b, c)), d = (({}, x), 0)").body
    pairs = [(ast.unparse(target), ast.unparse(value)) for target, value in _assigned(node)]
    assert pairs == [("self.a", "{}"), ("b", "x"), ("c", "x"), ("d", "0")]


def test_a_text_that_is_nested_too_deeply_is_no_text() -> None:
    text = f"x = {' + '.join(['1'] * 400)}\n"
    with pytest.raises(ValueError, match="nested too deeply"):
        source_in(text, MANAGER, "changed.py")


def _changed(old: str, new: str) -> encoder_cache.Subject:
    assert TEXT.count(old) == 1
    source = source_in(TEXT.replace(old, new), MANAGER, "changed.py")
    return encoder_cache.subject_of(
        "changed", source, None, constants=encoder_cache.of_reference().constants
    )
