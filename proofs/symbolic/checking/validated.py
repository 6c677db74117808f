"""Whether what CPython's calls showed of a text bears out all that is proved of it."""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping

from cacheproof.proofs.symbolic.checking.vacuity import contradicted, unseen, words_of
from cacheproof.proofs.symbolic.checking.validator import ShownCalls
from cacheproof.proofs.symbolic.deciding.prove import ProverLibrary
from cacheproof.proofs.symbolic.deciding.prover import Prover
from cacheproof.proofs.symbolic.deciding.subject import Operation, Subject
from cacheproof.proofs.symbolic.values.state import Place
from cacheproof.spec.evidence import RedTwin, Witness


class Validation:
    """Weighs what calls showed of the texts of a family, as a library proves these."""

    def __init__(self, library: ProverLibrary) -> None:
        self._library = library
        self._places: dict[Hashable, frozenset[Place]] = {}

    def witness(
        self,
        subject: Subject,
        shown_of: Mapping[str, ShownCalls],
        fallen: Collection[str],
    ) -> Witness:
        """What the calls of all operations say together, where some rules have fallen."""
        shown = {one: shown_of[one.name] for one in subject.operations}
        made = sum(one.calls for one in shown.values())
        refused = sum(one.refused for one in shown.values())
        against = [one.against for one in shown.values() if one.against]
        vacuous = [
            why
            for one, of in shown.items()
            if not of.unread
            for why in self._vacuous(subject, one, of, fallen)
        ]
        return Witness(
            "validation",
            f"{made:,} calls",
            "" if vacuous or not against else against[0],
            RedTwin(
                f"{made - refused} of {made} states after with one thing changed",
                refuted=all(one.refused for one in shown.values() if one.calls),
            ),
            vacuous="; ".join(vacuous),
            unreached="; ".join(
                why
                for one, of in shown.items()
                for why in self._unreached(subject, one, of, fallen)
            ),
        )

    def _vacuous(
        self,
        subject: Subject,
        operation: Operation,
        shown: ShownCalls,
        fallen: Collection[str],
    ) -> Iterator[str]:
        """The places of an operation at which what is taken to be known contradicts itself, in
        words."""
        if not shown.calls:
            if not shown.can_be_called:
                yield operation.name
            return
        prover = self._library.prover(subject, operation)
        for place in sorted(self._looked_for(contradicted, prover, shown, fallen)):
            yield f"{operation.name} at {words_of(subject, place)}"

    def _unreached(
        self,
        subject: Subject,
        operation: Operation,
        shown: ShownCalls,
        fallen: Collection[str],
    ) -> Iterator[str]:
        """The places of an operation that calls did not show, in words: larger states alone go
        there, or no call did."""
        places = set(shown.elsewhere)
        if shown.unread:
            yield f"{operation.name}: {shown.unread}"
        elif shown.undecided:
            yield shown.undecided
        elif shown.calls:
            prover = self._library.prover(subject, operation)
            places |= self._looked_for(unseen, prover, shown, fallen)
        elif not shown.against:
            yield operation.name
        for place in sorted(places):
            yield f"{operation.name} at {words_of(subject, place)}"

    def _looked_for(
        self,
        look: Callable[[Prover, Collection[Place], Collection[str]], frozenset[Place]],
        prover: Prover,
        shown: ShownCalls,
        fallen: Collection[str],
    ) -> frozenset[Place]:
        """What a look at a prover's paths finds, beside the places that calls went through."""
        asked = look, id(prover), frozenset(shown.ran), frozenset(fallen)
        if asked not in self._places:
            self._places[asked] = prover.answers.once(
                (look.__name__, prover.reading, sorted(shown.ran), sorted(fallen)),
                frozenset[Place],
                lambda: look(prover, shown.ran, fallen),
            )
        return self._places[asked]
