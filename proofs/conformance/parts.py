"""What no claim of a method reaches of the translator: calls as schedulers make them, texts that
are run beside the one under proof, and what a proof may lean on.

Each check has a docstring that says what must be so, and gives what is wrong instead; nothing when
all is well.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import z3

from cacheproof.proofs.symbolic.deciding.refuter import Refuter
from cacheproof.proofs.symbolic.deciding.subject import Subject
from cacheproof.proofs.symbolic.gate.gate import refuse_subject
from cacheproof.proofs.symbolic.reading.source import source_in
from cacheproof.proofs.symbolic.rules.readings import RuleLanguage
from cacheproof.proofs.symbolic.subjects import encoder_decoder_cache
from cacheproof.proofs.symbolic.subjects.encoder_cache import of_reference
from cacheproof.proofs.symbolic.values.language import NotTranslated
from cacheproof.proofs.symbolic.values.solver import RLIMIT, Premises
from cacheproof.proofs.symbolic.values.state import Fact
from cacheproof.proofs.symbolic.values.values import IDENTIFIER, INT, REQUEST, MapOf, Universe

Check = Callable[[], Iterator[str]]
CHECKS: dict[str, Check] = {}
HITS = "        if holders is None:\n            return False\n"
"""Lines of the reference at which a lookup misses."""
COPIED = "        self.num_freeable_slots = cache_size\n"
"""A line of the reference in which it is built."""
ANSWER = "            return set(self._claims.get(request.request_id, ()))\n"
"""The line of the reference that says what a request may release."""


def _check(check: Check) -> Check:
    CHECKS[f"parts: {check.__name__.strip('_').replace('_', ' ')}"] = check
    return check


def _refuted(subject: Subject, operations: Sequence[str]) -> set[tuple[str, str]]:
    refuter = Refuter(replace(subject, replay=None), [RuleLanguage(Universe(2))])
    return {
        (one.name, rule)
        for one in subject.operations
        if one.name in operations
        for rule in refuter.rules(one)
        if refuter.is_soon_refuted(one, rule)
    }


def _is_refused(subject: Subject, operations: Sequence[str]) -> bool:
    """Whether one of these operations is refused where it is read."""
    refuter = Refuter(subject, [RuleLanguage(Universe(2))])
    try:
        for one in subject.operations:
            if one.name in operations:
                refuter.rules(one)
    except NotTranslated:
        return True
    return False


def changed(subject: Subject, owner: str, changes: Mapping[str, str]) -> Subject:
    """A subject of which one text reads otherwise, at places that it has once."""
    source = subject.sources[owner]
    text = source.module
    for old, new in changes.items():
        if text.count(old) != 1:
            raise ValueError(f"{source.path} does not have this once: {old}")
        text = text.replace(old, new)
    other = source_in(text, source.name, source.path)
    methods = {**source.methods, **other.methods}
    return replace(subject, sources={**subject.sources, owner: replace(other, methods=methods)})


def _rests_on_none_of(out: frozenset[str], fact: Fact) -> bool:
    return fact.rules.isdisjoint(out)


@_check
def _the_reference_is_not_refuted() -> Iterator[str]:
    """A new manager, a lookup and a reset keep what they must."""
    for operation, rule in sorted(_refuted(of_reference(), ["init", "check", "reset"])):
        yield f"{operation}: {rule} is refuted of the reference"


@_check
def _a_lookup_that_always_hits_is_refuted() -> Iterator[str]:
    """The ghost is told what a lookup grants: after a wrong hit it needs what is not there."""
    subject = changed(of_reference(), "m", {HITS: HITS.replace("False", "True")})
    if not _refuted(subject, ["check"]):
        yield "nothing is refuted of a lookup that always hits"


@_check
def _an_answer_that_is_only_as_good_as_true_is_refused() -> Iterator[str]:
    """A scheduler asks for the truth of an answer; the ghost is told of one that is True."""
    for new, expected in (("False", False), ("0", True), ("None", True)):
        subject = changed(of_reference(), "m", {HITS: HITS.replace("False", new)})
        if _is_refused(subject, ["check"]) != expected:
            yield f"{new}: {'read' if expected else 'refused'}"


@_check
def _what_is_added_to_a_number_that_nobody_reads_has_its_effects() -> Iterator[str]:
    """The number may be anything; what is evaluated for it happens."""
    counts = {
        COPIED: f"{COPIED}        self.looked_up = 0\n",
        HITS: f"{HITS}        self.looked_up += self.num_embeds_by_hash.pop(identifier)\n",
    }
    if not _refuted(changed(of_reference(), "m", counts), ["check"]):
        yield "nothing is refuted of a lookup that takes an entry's size away"


@_check
def _inputs_are_those_of_an_answer_that_is_a_set_or_a_list() -> Iterator[str]:
    """A set or a list says what a request may release; any other answer names nothing, and one
    whose members are made of others is refused."""
    for answer, names_all in (
        ("set(self._claims.get(request.request_id, ()))", True),
        ("list(self._claims.get(request.request_id, ()))", True),
        ("set()", False),
        ("None", False),
        ("self._claims.get(request.request_id, {})", False),
    ):
        subject = changed(of_reference(), "m", {ANSWER: f"            return {answer}\n"})
        if (("inputs", "EC-18") in _refuted(subject, ["inputs"])) == names_all:
            yield f"{answer}: {'names nothing' if names_all else 'names inputs'}"
    claims = "self._claims.get(request.request_id, {}).items()"
    made = f"[identifier for _, identifier in {claims}]"
    if not _is_refused(
        changed(of_reference(), "m", {ANSWER: f"            return {made}\n"}), ["inputs"]
    ):
        yield f"{made}: read"


@_check
def _attributes_that_are_one_object_are_refused() -> Iterator[str]:
    """At the end of a call each attribute has a container of its own; asked of encoder-decoder
    managers, which have two of one type."""
    subject = encoder_decoder_cache.of_reference()
    other = changed(
        subject,
        "m",
        {
            "encoded, self.allocated = self.allocated, []": "encoded = self.allocated",
        },
    )
    for text, expected in ((subject, False), (other, True)):
        operations = [one.name for one in text.operations]
        if _is_refused(text, operations) != expected:
            yield f"{text.name}: {'read' if expected else 'refused'}"


@_check
def _notices_that_the_manager_goes_on_using_are_refused() -> Iterator[str]:
    """A step's output keeps the notices: what comes later to the manager's own list would come to
    them."""
    taken = "        freed, self.freed = self.freed, []\n"
    lent = f"        if not self.freed:\n            return self.freed\n{taken}"
    for new, expected in ((taken, False), (lent, True)):
        if _is_refused(changed(of_reference(), "m", {taken: new}), ["notices"]) != expected:
            yield f"{new!r}: {'read' if expected else 'refused'}"


@_check
def _what_is_in_a_container_becomes_no_attribute() -> Iterator[str]:
    """An attribute has a container of its own, and none of another container."""
    missing = "        holders = self.cached.get(identifier)\n        if holders is None:\n"
    taken = "        self.num_embeds_by_hash = self.request_hash_refs[request.request_id]\n"
    subject = changed(of_reference(), "m", {missing: f"{taken}{missing}"})
    refs = MapOf(REQUEST, MapOf(IDENTIFIER, INT))
    source = subject.sources["m"]
    methods = {one: it for one, it in source.methods.items() if one != "request_hash_refs"}
    subject = replace(
        subject,
        types={**subject.types, ("m", "request_hash_refs"): refs},
        sources={**subject.sources, "m": replace(source, methods=methods)},
    )
    (check,) = (one for one in subject.operations if one.name == "check")
    try:
        Refuter(subject, [RuleLanguage(Universe(2))]).rules(check)
    except NotTranslated as refusal:
        if "no reading of self.num_embeds_by_hash =" not in str(refusal):
            yield f"refused for another reason: {refusal}"
        return
    yield "it is read"


@_check
def _all_texts_go_through_the_gate() -> Iterator[str]:
    """A text under proof and one beside it are refused, each where a call runs what is unread."""
    subject = of_reference()
    refuse_subject(subject)
    for owner, read in (
        ("m", "claims = self._claims.get(request.request_id, {})"),
        ("g", "self.idle_since[identifier] = self._clock"),
    ):
        target, _, value = read.partition(" = ")
        other = changed(subject, owner, {read: f"{target} = (lambda: {value})()"})
        try:
            refuse_subject(other)
        except NotTranslated:
            continue
        yield f"{other.sources[owner].path} with a lambda is not refused"


@_check
def _a_proof_leans_on_what_it_takes() -> Iterator[str]:
    """A proof takes the facts that it is given to take, and all facts without a rule; it names the
    rules of those that it needs. Some say of every element that there is another one."""
    x, here, there = z3.Ints("x here there")
    is_there = z3.Function("is_there", z3.IntSort(), z3.BoolSort())
    another = z3.Not(z3.ForAll([there], z3.Not(z3.And(is_there(there), x > 4))))
    gives = z3.ForAll([here], z3.Implies(is_there(here), another), patterns=[is_there(here)])
    plain = (x > 4, another)
    giving = (gives, z3.And(x < 9, gives), z3.Or(x > 5, gives), gives == z3.BoolVal(True))
    for formula, of_sums in product((*plain, *giving), (False, True)):
        fact = Fact(formula, frozenset({"R"}), of_sums)
        if fact.gives_elements != any(formula is one for one in giving):
            yield f"{formula} is read as {'' if fact.gives_elements else 'not '}giving elements"
        known = Fact(is_there(z3.IntVal(0)))
        for path in ([fact], [Fact(x > 0), fact], [fact, Fact(x < 9, frozenset({"other"}))]):
            for taken in (True, False):
                out = frozenset() if taken else frozenset({"R"})
                takes = partial(_rests_on_none_of, out)
                verdict = Premises().imply([known, *path], x > 4, takes, RLIMIT)
                if (verdict.word == "proved") != taken:
                    yield f"{verdict.word} by a fact that is {'' if taken else 'not '}taken"
                if verdict.word == "proved" and (not taken or "R" not in verdict.rules):
                    yield f"proved by {sorted(verdict.rules)}"
    verdict = Premises().imply([Fact(x > 4)], x > 4, lambda _: False, RLIMIT)
    if verdict.word != "proved" or verdict.rules:
        yield "what has no rule is not known"
