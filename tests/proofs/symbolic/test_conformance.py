"""Texts in which one construct of Python matters: what CPython breaks is never said to hold.

Each is a change of the reference manager. That CPython breaks the contract with it is seen by
running it; the translator must refute it from some state, or refuse the text.
"""

from dataclasses import dataclass, replace

import pytest

from cacheproof.proofs.symbolic.conditions import Refuter, Subject
from cacheproof.proofs.symbolic.encoder_cache import CLASS, of_reference
from cacheproof.proofs.symbolic.gate import refuse_unread
from cacheproof.proofs.symbolic.predicates import NotTranslated
from cacheproof.proofs.symbolic.readings import Language
from cacheproof.proofs.symbolic.source import Source, source_in
from cacheproof.proofs.symbolic.values import Universe
from cacheproof.proofs.symbolic.witnesses import Exploring

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


@pytest.mark.parametrize("case", CASES, ids=lambda one: one.name)
def test_cpython_breaks_it(case: Case) -> None:
    found = Exploring(case.subject).explorations.values()
    assert any(case.contract in one.broken for one in found)


@pytest.mark.parametrize("case", CASES, ids=lambda one: one.name)
def test_it_is_refuted_or_refused(case: Case) -> None:
    subject = case.subject
    called = [one.method for one in subject.operations if one.method]
    try:
        refuse_unread(subject.sources["m"], called)
        refuter = Refuter(subject, [Language(Universe(2))])
        found = [
            one.name for one in subject.operations if refuter.counterexample(one, case.contract)
        ]
    except NotTranslated:
        return
    assert found
