"""Runs the source text of methods on symbolic values: what they do on every path through them.

The text is not changed and not imported.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import z3

from cacheproof.proofs.symbolic.reading import containers
from cacheproof.proofs.symbolic.reading.builtin_calls import FUNCTIONS, is_itself
from cacheproof.proofs.symbolic.reading.execution import Readings, Run
from cacheproof.proofs.symbolic.reading.expressions import ATTRIBUTES, EXPRESSIONS, ITEMS, TARGETS
from cacheproof.proofs.symbolic.reading.statements import STATEMENTS
from cacheproof.proofs.symbolic.values.state import Evaluated, Lazy, Operand, Ref, State
from cacheproof.proofs.symbolic.values.values import Leaf, ListOf, SequenceOf, SetOf, Value

READINGS = Readings(STATEMENTS, EXPRESSIONS, TARGETS, ATTRIBUTES, {**FUNCTIONS, **ITEMS})
"""How texts of all classes are read."""


class Machine(Run):
    """Runs methods of objects whose attributes have the types of a table."""

    def fresh_state(self, constants: Mapping[tuple[str, str], Operand]) -> State:
        """Objects of which nothing is known, with some attributes that are."""
        state = State(dict(constants), {}, {})
        for (owner, name), kind in self.types.items():
            value = self.universe.fresh(kind, f"{owner}.{name}")
            state = self.become(owner, name, value, state)
            state = state.assuming(*containers.in_order(value))
        return replace(state, snapshots=()).snapshot(anew=True)

    def emptied(self, state: State, attributes: Sequence[tuple[str, str]]) -> State:
        """The state with some attributes empty; a number is 0."""
        for owner, name in attributes:
            kind = self.types[owner, name]
            nothing = z3.IntVal(0) if isinstance(kind, Leaf) else self.universe.empty(kind)
            state = self.become(owner, name, nothing, state)
        return state

    def become(self, owner: str, name: str, value: Value, state: State) -> State:
        """The state with another value of an attribute."""
        return containers.set_attribute(self, state, owner, name, value)

    def put(self, owner: str, name: str, key: z3.ExprRef, value: z3.ExprRef, state: State) -> State:
        """The state with an item of a map set."""
        return containers.put(self, state.attributes[owner, name], key, value, state)

    def kept_by_caller(self, owner: str, name: str, state: State) -> list[Evaluated]:
        """The ends of a call, as `call` has them, of a method without parameters whose answer the
        caller keeps: an answer that the object goes on using would change there.

        Raises:
            NotTranslated: an attribute is what it answers.
        """
        ends = self.call(owner, name, [], state)
        for end, answer in ends:
            for (_, attribute), operand in end.attributes.items():
                if (
                    isinstance(answer, Ref)
                    and isinstance(operand, Ref)
                    and answer.cell == operand.cell
                ):
                    method = self.sources[owner].methods[name]
                    words = f"{name}(), which answers with {attribute} itself"
                    raise self.refused(owner, method, words)
        return ends

    def inputs_in(self, owner: str, name: str, answer: Operand, state: State) -> Value | None:
        """The members of a set or a list that a call of a method has answered; None: it is neither.

        Raises:
            NotTranslated: its members are made of others.
        """
        if isinstance(answer, Lazy):
            if not is_itself(answer):
                method = self.sources[owner].methods[name]
                raise self.refused(owner, method, f"{name}(), whose answer's members are made")
            return answer.members
        if isinstance(answer, Ref):
            found = state.value(answer)
            return found.keys if isinstance(found.kind, SetOf | ListOf | SequenceOf) else None
        return None

    def asked(
        self, name: str, given: Sequence[Operand], state: State
    ) -> Iterator[tuple[State, bool | z3.BoolRef]]:
        """The ends of a call, as `call` has them, of a method of the manager that answers yes or
        no.

        Raises:
            NotTranslated: it answers something that is only as good as true, or as false.
        """
        for after, answer in self.call("m", name, given, state):
            if not isinstance(answer, bool | z3.BoolRef):
                words = f"{name}(), which answers no truth value"
                raise self.refused("m", self.sources["m"].methods[name], words)
            yield after, answer
