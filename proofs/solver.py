"""Whether what is assumed implies what is claimed: proved, refuted, or unknown.

Quantifiers are instantiated here, at the terms that a condition speaks of, so that the solver sees
none. What it then finds unsatisfiable is proved. Otherwise the same condition is put to it over a
universe of two elements, then three, where nothing needs to be instantiated in part: what it
satisfies there is a counterexample.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import z3

from cacheproof.proofs.values import All, And, Formula, Leaf, Not, Or, Some, Universe, negated

RLIMIT = 20_000_000
"""z3's own measure of work, which no other load on the machine changes."""


@dataclass(frozen=True)
class Verdict:
    """`word` is proved, refuted or unknown; `model` the counterexample of a refuted condition;
    `work` in z3's own measure."""

    word: str
    work: int = 0
    model: z3.ModelRef | None = None


Path = tuple[Any, ...]
Clause = z3.BoolRef


@dataclass(frozen=True)
class Universal:
    """What holds of every element, unless one of the `others` does; `depth` is how many elements
    were put in on the way to it."""

    formula: All
    others: tuple[z3.BoolRef, ...]
    path: Path
    depth: int


@dataclass
class Part:
    """What a formula comes to: clauses, what is to be instantiated, and elements that there are,
    each with how many others were put in before."""

    clauses: list[Clause] = field(default_factory=list)
    universals: list[Universal] = field(default_factory=list)
    witnesses: list[tuple[z3.ExprRef, int]] = field(default_factory=list)


class Solver:
    """Checks conditions over one universe. What facts come to is kept, since conditions of one
    method share most of them."""

    def __init__(self, universe: Universe, seed: int = 0) -> None:
        self._universe = universe
        self._seed = seed
        self._facts: dict[int, tuple[Formula, Part]] = {}
        self._instances: dict[Path, Part] = {}
        self._witnesses: dict[Path, z3.ExprRef] = {}
        self._terms: dict[int, tuple[Clause, list[z3.ExprRef]]] = {}

    def check(self, assumed: Sequence[Formula], claimed: Formula, depth: int) -> Verdict:
        """Whether the assumptions imply the claim. Elements that there are said to be are looked
        at where at most `depth` others lead to them."""
        denied = Part()
        self._expand(negated(claimed), (), ("claim",), 0, denied)
        parts = [denied, *map(self._fact, assumed)]
        solver = z3.Solver()
        solver.set("rlimit", RLIMIT)
        solver.set("random_seed", self._seed)
        before = _work(solver)
        solver.add(*self._ground(parts, depth))
        answer = solver.check()
        work = _work(solver) - before
        if answer == z3.unsat:
            return Verdict("proved", work)
        if answer == z3.sat and self._universe.elements is not None:
            return Verdict("refuted", work, solver.model())
        return Verdict("unknown", work)

    def _fact(self, fact: Formula) -> Part:
        if id(fact) not in self._facts:
            part = Part()
            self._expand(fact, (), (id(fact),), 0, part)
            self._facts[id(fact)] = fact, part
        return self._facts[id(fact)][1]

    def _ground(self, parts: Iterable[Part], depth: int) -> Iterator[Clause]:
        """The clauses of parts, instantiated at every element that they speak of."""
        pool: dict[Leaf, dict[int, z3.ExprRef]] = {}
        found: list[Part] = []
        todo = list(parts)
        tried: set[tuple[Path, int]] = set()
        for part in todo:
            yield from part.clauses
            for clause in part.clauses:
                self._note(self._keys(clause), pool)
        universals: list[Universal] = []
        while todo:
            for part in todo:
                universals += part.universals
                self._note((w for w, depth_ in part.witnesses if depth_ <= depth), pool)
            todo = []
            for one in universals:
                for number, element in list(self._elements(one.formula.leaf, pool)):
                    if (one.path, number) not in tried:
                        tried.add((one.path, number))
                        todo.append(self._instance(one, element))
            found += todo
            for part in todo:
                yield from part.clauses

    def _elements(
        self, leaf: Leaf, pool: dict[Leaf, dict[int, z3.ExprRef]]
    ) -> Iterable[tuple[int, z3.ExprRef]]:
        if self._universe.elements is not None:
            return [(one.get_id(), one) for one in self._universe.members(leaf)]
        return pool.get(leaf, {}).items()

    def _instance(self, one: Universal, element: z3.ExprRef) -> Part:
        path = (*one.path, element.get_id())
        known = self._instances.get(path)
        if known is None:
            known = Part()
            self._expand(one.formula.at(element), one.others, path, one.depth + 1, known)
            if path[0] != "claim":
                self._instances[path] = known
        return known

    def _expand(
        self, formula: Formula, others: tuple[z3.BoolRef, ...], path: Path, depth: int, part: Part
    ) -> None:
        """Say that the formula holds, unless one of the others does."""
        match formula:
            case Not(inner):
                self._expand(negated(inner), others, path, depth, part)
            case And(parts):
                for number, one in enumerate(parts):
                    self._expand(one, others, (*path, number, "and"), depth, part)
            case Or(parts):
                self._either(parts, others, path, depth, part)
            case All():
                part.universals.append(Universal(formula, others, path, depth))
            case Some(leaf=leaf) if self._universe.elements is not None:
                elements = tuple(formula.at(one) for one in self._universe.members(leaf))
                self._either(elements, others, path, depth, part)
            case Some(leaf=leaf):
                place = (*path, leaf)
                if place not in self._witnesses:
                    self._witnesses[place] = self._universe.constant(leaf, "some")
                witness = self._witnesses[place]
                part.witnesses.append((witness, depth))
                self._expand(formula.at(witness), others, (*path, "some"), depth, part)
            case bool():
                if not formula:
                    part.clauses.append(z3.Or(*others) if others else z3.BoolVal(False))
            case _:
                part.clauses.append(z3.Or(formula, *others) if others else formula)

    def _either(
        self,
        parts: Sequence[Formula],
        others: tuple[z3.BoolRef, ...],
        path: Path,
        depth: int,
        part: Part,
    ) -> None:
        """Say that one of the parts holds, or one of the others."""
        if any(one is True for one in parts):
            return
        plain = tuple(one for one in parts if isinstance(one, z3.BoolRef))
        rest = [one for one in parts if not isinstance(one, z3.BoolRef) and one is not False]
        flat = tuple(inner for one in rest if isinstance(one, Or) for inner in one.parts)
        if flat:
            deeper = tuple(one for one in rest if not isinstance(one, Or))
            self._either((*plain, *deeper, *flat), others, path, depth, part)
            return
        others = (*others, *plain)
        if len(rest) == 1:
            self._expand(rest[0], others, (*path, "or"), depth, part)
            return
        chosen = [z3.Bool(f"choice!{next(self._universe.names)}") for _ in rest]
        part.clauses.append(z3.Or(*others, *chosen) if rest or others else z3.BoolVal(False))
        for number, (choice, one) in enumerate(zip(chosen, rest, strict=True)):
            self._expand(one, (z3.Not(choice),), (*path, number, "or"), depth, part)

    def _keys(self, clause: Clause) -> list[z3.ExprRef]:
        """The constants of a clause, and the identifiers of their inputs."""
        if clause.get_id() in self._terms:
            return self._terms[clause.get_id()][1]
        seen: set[int] = set()
        found: list[z3.ExprRef] = []
        stack: list[z3.ExprRef] = [clause]
        while stack:
            term = stack.pop()
            if term.get_id() in seen:
                continue
            seen.add(term.get_id())
            if z3.is_const(term) or term.decl().name() == "item":
                found.append(term)
            stack.extend(term.children())
        self._terms[clause.get_id()] = clause, found
        return found

    def _note(self, terms: Iterable[z3.ExprRef], pool: dict[Leaf, dict[int, z3.ExprRef]]) -> None:
        for term in terms:
            leaf = self._universe.leaf_of(term)
            if leaf is not None and leaf.name != "int":
                pool.setdefault(leaf, {}).setdefault(term.get_id(), term)


def _work(solver: z3.Solver) -> int:
    statistics = solver.statistics()
    counts = {key: statistics.get_key_value(key) for key in statistics.keys()}
    return int(counts.get("rlimit count", 0))
