"""Texts in which one construct of Python matters: what CPython breaks is never said to hold.

Each is a change of the reference manager. That CPython breaks the contract with it is seen by
running it; the translator must refute it from some state, or refuse the text.
"""

from dataclasses import dataclass, replace

import pytest

from cacheproof.proofs.symbolic.checking.witnesses import CALLS_OF_TWIN, ManagerExploring
from cacheproof.proofs.symbolic.deciding.refuter import Refuter
from cacheproof.proofs.symbolic.deciding.subject import Subject
from cacheproof.proofs.symbolic.gate.gate import refuse_subject
from cacheproof.proofs.symbolic.reading.source import Source, source_in
from cacheproof.proofs.symbolic.rules.readings import RuleLanguage
from cacheproof.proofs.symbolic.subjects.encoder_cache import CLASS, of_reference
from cacheproof.proofs.symbolic.values.language import NotTranslated
from cacheproof.proofs.symbolic.values.values import Universe
from cacheproof.proofs.witness.exploration import SCOPES

SUBJECT = of_reference()
TEXT = SUBJECT.sources["m"].module


@dataclass(frozen=True)
class Case:
    """A change, `old` for `new`, with which CPython breaks a contract; `more` is put behind the
    class, `head` in front of it."""

    name: str
    contract: str
    changes: tuple[tuple[str, str], ...]
    more: str = ""
    head: str = ""

    @property
    def source(self) -> Source:
        text = TEXT
        for old, new in self.changes:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        head = f"class {CLASS}"
        assert text.count(head) == 1
        return source_in(text.replace(head, self.head + head) + self.more, CLASS, self.name)

    @property
    def subject(self) -> Subject:
        return replace(SUBJECT, sources={**SUBJECT.sources, "m": self.source})


METHOD = "    def free(self, request: Request) -> None:\n"
GRANTING = "    def can_allocate(self, request, input_id, budget, more):\n        return True\n\n"
CASES = (
    Case(
        "keyword arguments in another order",
        "EC-12",
        (
            (
                "        if need > self.num_freeable_slots:\n",
                "        if self._over(limit=need, wanted=self.num_freeable_slots):\n",
            ),
            (
                METHOD,
                "    def _over(self, wanted, limit):\n        return wanted > limit\n\n" + METHOD,
            ),
        ),
    ),
    Case(
        "a module that binds a builtin",
        "EC-7",
        (),
        head="def iter(found):\n    return __builtins__['reversed'](found)\n\n\n",
    ),
    Case(
        "a class that is changed after its body",
        "EC-12",
        (),
        more=f"\n\n{CLASS}.can_allocate = lambda self, request, input_id, budget, more: True\n",
    ),
    Case(
        "a class that is defined twice",
        "EC-12",
        (),
        more=f"\n\n_Of = {CLASS}\n\n\nclass {CLASS}(_Of):\n"
        "    def can_allocate(self, request, input_id, budget, more):\n        return True\n",
    ),
    Case(
        "a decorator",
        "EC-12",
        ((("    def can_allocate(\n"), "    @_granted\n    def can_allocate(\n"),),
        head="def _granted(method):\n    return lambda *given: True\n\n\n",
    ),
    Case(
        "a decorated class",
        "EC-12",
        (),
        head="def _granted(of):\n    of.can_allocate = lambda *given: True\n    return of\n\n\n"
        "@_granted\n",
    ),
    Case(
        "a base that sees what is set",
        "EC-1",
        ((f"class {CLASS}:", f"class {CLASS}(_Kept):"),),
        head="class _Kept:\n    def __setattr__(self, name, value):\n"
        "        super().__setattr__(name, 0 if name == 'num_free_slots' else value)\n\n\n",
    ),
    Case(
        "a method that sees what is set",
        "EC-1",
        (
            (
                METHOD,
                "    def __setattr__(self, name, value):\n"
                "        kept = 0 if name == 'num_free_slots' else value\n"
                "        object.__setattr__(self, name, kept)\n\n" + METHOD,
            ),
        ),
    ),
    Case(
        "a method bound again in the class body",
        "EC-12",
        ((METHOD, "    can_allocate = lambda *given: True\n\n" + METHOD),),
    ),
    Case(
        "a method that is defined twice",
        "EC-12",
        (
            (
                METHOD,
                GRANTING + METHOD,
            ),
        ),
    ),
    Case(
        "an attribute in the place of a method",
        "EC-13",
        (
            (
                "        self.freed: list[str] = []\n",
                "        self.freed: list[str] = []\n        self.can_allocate = len\n",
            ),
        ),
    ),
    Case(
        "a generator that is never run",
        "EC-14",
        (
            (
                "            self.free_encoder_input(request, input_id)\n",
                "            self.free_encoder_input(request, input_id)\n"
                "        if False:\n            yield\n",
            ),
        ),
    ),
    Case(
        "a name that is local",
        "EC-13",
        (
            (
                "        while need > self.num_free_slots:\n",
                "        if need < 0:\n            iter = None\n"
                "        while need > self.num_free_slots:\n",
            ),
        ),
    ),
    Case(
        "a comparison by identity",
        "EC-14",
        (
            (
                "        holders.discard(request.request_id)\n",
                "        if holders is self.cached[identifier]:\n            return\n"
                "        holders.discard(request.request_id)\n",
            ),
        ),
    ),
    Case(
        "effects in a quantifier that stops",
        "EC-14",
        (
            (
                "        holders.discard(request.request_id)\n",
                "        any(holders.discard(request.request_id) for one in claims)\n",
            ),
        ),
    ),
    Case(
        "effects in a chained comparison",
        "EC-15",
        (
            (
                "        while need > self.num_free_slots:\n"
                "            self._evict(next(iter(self.freeable)))\n",
                "        if 1 > need > self._make_room(need):\n            return False\n",
            ),
            (
                METHOD,
                "    def _make_room(self, need: int) -> int:\n"
                "        while need > self.num_free_slots:\n"
                "            self._evict(next(iter(self.freeable)))\n"
                "        return 0\n\n" + METHOD,
            ),
        ),
    ),
    Case(
        "an OrderedDict's method of a dict",
        "EC-13",
        (
            (
                "            self._evict(next(iter(self.freeable)))\n",
                "            identifier, _ = self.freeable.popitem(last=False)\n"
                "            self.freeable[identifier] = self.num_embeds_by_hash[identifier]\n"
                "            self.freeable.move_to_end(identifier, last=False)\n"
                "            self._evict(identifier)\n",
            ),
        ),
    ),
    Case(
        "the wrong kind of empty container",
        "EC-13",
        (("self.cached.setdefault(identifier, set())", "self.cached.setdefault(identifier, {})"),),
    ),
    Case(
        "a view that its loop changes",
        "EC-13",
        (
            (
                "        self.freed.clear()\n",
                "        for identifier in self.cached.keys():\n"
                "            del self.cached[identifier]\n"
                "        self.freed.clear()\n",
            ),
            ("        self.cached.clear()\n", ""),
        ),
    ),
    Case(
        "an entry that leaves one of two tables",
        "EC-4",
        (
            (
                "        if need > encoder_compute_budget:\n",
                "        self.cached.clear()\n        if need > encoder_compute_budget:\n",
            ),
        ),
    ),
    Case(
        "a variable of a caller that a callee makes stale",
        "EC-4",
        (
            (
                "        holders.discard(request.request_id)\n",
                "        self._renew(identifier)\n        holders.discard(request.request_id)\n",
            ),
            (
                METHOD,
                "    def _renew(self, identifier: str) -> None:\n"
                "        found = sorted(self.cached[identifier])\n"
                "        del self.cached[identifier]\n"
                "        for one in found:\n"
                "            self.cached.setdefault(identifier, set()).add(one)\n\n" + METHOD,
            ),
        ),
    ),
)


_GRANT = "lambda *given: True"
ELSEWHERE: tuple[tuple[str, str], ...] = (
    ("by another name", f"\n\n_Of = {CLASS}\n_Of.can_allocate = {_GRANT}\n"),
    ("by setattr", f"\n\nsetattr({CLASS}, 'can_allocate', {_GRANT})\n"),
    ("by type's setattr", f"\n\ntype.__setattr__({CLASS}, 'can_allocate', {_GRANT})\n"),
    ("in a loop", f"\n\nfor _of in ({CLASS},):\n    _of.can_allocate = {_GRANT}\n"),
    ("in a comprehension", f"\n\n_ = [setattr(a, 'can_allocate', {_GRANT}) for a in [{CLASS}]]\n"),
    ("through globals", f"\n\nglobals()['{CLASS}'].can_allocate = {_GRANT}\n"),
    ("in a function", f"\n\ndef _set(of):\n    of.can_allocate = {_GRANT}\n\n\n_set({CLASS})\n"),
    (
        "in a function that names it",
        f"\n\ndef _patch():\n    of = {CLASS}\n    of.can_allocate = {_GRANT}\n    return 0\n\n\n"
        "_PATCHED = _patch()\n",
    ),
    (
        "in another class's body",
        f"\n\nclass _Patch:\n    of = {CLASS}\n    of.can_allocate = {_GRANT}\n",
    ),
    (
        "by a decorator of something else",
        f"\n\ndef _patch(found):\n    {CLASS}.can_allocate = {_GRANT}\n    return found\n\n\n"
        "@_patch\ndef _other():\n    pass\n",
    ),
    (
        "by a subclass's keyword",
        f"\n\nclass _Meta(type):\n    def __init__(cls, *given):\n"
        f"        cls.__mro__[1].can_allocate = {_GRANT}\n\n\n"
        f"class _Sub({CLASS}, metaclass=_Meta):\n    pass\n",
    ),
    ("by exec", f"\n\nexec('{CLASS}.can_allocate = {_GRANT}')\n"),
    ("where a condition holds", f"\n\nif True:\n    {CLASS}.can_allocate = {_GRANT}\n"),
    (
        "where something fails",
        f"\n\ntry:\n    raise KeyError\nexcept KeyError:\n    {CLASS}.can_allocate = {_GRANT}\n",
    ),
    ("while another context runs", "\n\nfrom contextlib import nullcontext\n\n"
     f"with nullcontext({CLASS}) as _of:\n    _of.can_allocate = {_GRANT}\n"),
    ("by what it is bound to", f"\n\n{CLASS}.can_allocate, _kept = {_GRANT}, {CLASS}\n"),
)  # fmt: skip
"""How a module changes a class behind its body."""
BETWEEN_CALLS = (
    Case(
        "an attribute that a quantifier binds",
        "EC-2",
        (
            (
                "        need += num_embeds_to_schedule\n",
                "        need += num_embeds_to_schedule\n"
                "        any(False for self.num_freeable_slots in range(0, 1))\n",
            ),
        ),
    ),
    Case(
        "one empty container in two attributes",
        "EC-13",
        (
            (
                "        self.freed.clear()\n        self._claims.clear()\n",
                "        self.freed.clear()\n        self._claims.clear()\n        nothing = {}\n"
                "        self.cached = nothing\n        self.num_embeds_by_hash = nothing\n",
            ),
        ),
    ),
    Case(
        "an empty container that a callee puts in two places",
        "EC-13",
        (
            (
                "        self.freed.clear()\n        self._claims.clear()\n",
                "        self.freed.clear()\n        self._claims.clear()\n"
                "        self._begin({})\n",
            ),
            (
                METHOD,
                "    def _begin(self, nothing) -> None:\n        self.cached = nothing\n"
                "        self.num_embeds_by_hash = nothing\n\n" + METHOD,
            ),
        ),
    ),
    Case(
        "a comprehension that runs backwards",
        "EC-7",
        (
            (
                "            self._evict(next(iter(self.freeable)))\n",
                "            order = [one for one in reversed(self.freeable)]\n"
                "            self._evict(next(iter(order)))\n",
            ),
        ),
    ),
    Case(
        "two lists of the same in another order",
        "EC-1",
        (
            (
                "        self.cached.clear()\n        self.num_embeds_by_hash.clear()\n"
                "        self.freeable.clear()\n",
                "        was = [one for one in self.freeable]\n"
                "        now = [one for one in reversed(self.freeable)]\n"
                "        self.cached.clear()\n        self.num_embeds_by_hash.clear()\n"
                "        self.freeable.clear()\n",
            ),
            (
                "        self.num_freeable_slots = self.cache_size\n\n    def check",
                "        self.num_freeable_slots = self.cache_size\n        if was != now:\n"
                "            self.num_free_slots -= 1\n\n    def check",
            ),
        ),
    ),
    Case(
        "a look-up that misses what nobody holds",
        "EC-16",
        (("        if holders is None:\n", "        if not holders:\n"),),
    ),
    Case(
        "two attributes that are one object from the beginning",
        "EC-4",
        (
            (
                "        self.freeable: dict[str, int] = {}\n",
                "        self.freeable: dict[str, int] = self.num_embeds_by_hash\n",
            ),
        ),
    ),
    Case(
        "two attributes that are one object from a reset on",
        "EC-4",
        (
            (
                "        self.freed.clear()\n        self._claims.clear()\n",
                "        self.freed.clear()\n        self._claims.clear()\n"
                "        self.freeable = self.num_embeds_by_hash\n",
            ),
        ),
    ),
    Case(
        "an attribute that one call leaves to the next",
        "EC-12",
        (
            (
                "        self.freed: list[str] = []\n",
                "        self.freed: list[str] = []\n        self._granted = False\n",
            ),
            (
                "        need += num_embeds_to_schedule\n",
                "        if self._granted:\n            return False\n"
                "        self._granted = True\n        need += num_embeds_to_schedule\n",
            ),
        ),
    ),
    Case(
        "an answer that is as good as true",
        "EC-12",
        (
            (
                "            self._evict(next(iter(self.freeable)))\n        return True\n",
                "            self._evict(next(iter(self.freeable)))\n        return need\n",
            ),
        ),
    ),
    Case(
        "a while loop that does not end",
        "EC-13",
        (("            self._evict(next(iter(self.freeable)))\n", "            pass\n"),),
    ),
    Case(
        "an item of items that its loop changes through another name",
        "EC-13",
        (
            (
                "        self.freed.clear()\n",
                "        sizes = self.num_embeds_by_hash\n"
                "        for identifier, size in sizes.items():\n"
                "            del self.num_embeds_by_hash[identifier]\n"
                "        self.freed.clear()\n",
            ),
            ("        self.num_embeds_by_hash.clear()\n", ""),
        ),
    ),
    Case(
        "a loop whose member is taken out and put back",
        "EC-13",
        (
            (
                "        for input_id in sorted(self.get_cached_input_ids(request)):\n"
                "            self.free_encoder_input(request, input_id)\n",
                "        for input_id in self._claims.get(request.request_id, {}):\n"
                "            self.free_encoder_input(request, input_id)\n",
            ),
        ),
    ),
    Case(
        "a base whose method is inherited",
        "EC-14",
        (
            (f"class {CLASS}:", f"class {CLASS}(_Base):"),
            (
                METHOD + '        """Release everything that the request holds: it finished, was '
                'aborted or preempted."""\n'
                "        for input_id in sorted(self.get_cached_input_ids(request)):\n"
                "            self.free_encoder_input(request, input_id)\n",
                "",
            ),
        ),
        head="class _Base:\n    def free(self, request):\n        pass\n\n\n",
    ),
)
ALL = (
    *CASES,
    *(Case(f"a class that is changed {how}", "EC-12", (), more=more) for how, more in ELSEWHERE),
    *BETWEEN_CALLS,
)


def _breaks(case: Case) -> bool:
    """Whether an exploration of the class, short or long, breaks the contract."""
    exploring = ManagerExploring(case.subject)
    return any(
        case.contract in exploring.explorer.explore(scope, calls).broken
        for calls in CALLS_OF_TWIN
        for scope in SCOPES
    )


@pytest.mark.sample(5)
@pytest.mark.parametrize("case", ALL, ids=lambda one: one.name)
def test_cpython_breaks_it(case: Case) -> None:
    assert _breaks(case)


@pytest.mark.sample(5)
@pytest.mark.parametrize("case", ALL, ids=lambda one: one.name)
def test_it_is_refuted_or_refused(case: Case) -> None:
    subject = case.subject
    try:
        refuse_subject(subject)
        refuter = Refuter(subject, [RuleLanguage(Universe(2))])
        found = [
            one.name for one in subject.operations if refuter.counterexample(one, case.contract)
        ]
    except NotTranslated:
        return
    assert found
