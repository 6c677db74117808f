"""What the evidence is worth: every small change of the reference managers, and what sees it.

    .venv/bin/python benchmarks/mutation.py

Operators of mutation testing change each method of EncoderCacheManager and of
EncoderDecoderCacheManager at every place where they apply. Of each change is asked whether the
proofs refute it, whether a short search by the contracts breaks it, and whether it parts from real
releases in lockstep. What nothing sees is printed.
"""

import argparse
import ast
import contextlib
import inspect
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from cacheproof.differential.judges.examination import LOCKSTEP
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.seeded import search
from cacheproof.differential.targets.reference import ReferenceTarget, protocol_of
from cacheproof.differential.targets.reference_manager import MANAGERS
from cacheproof.differential.targets.resolve import resolve
from cacheproof.proofs.symbolic.checking.mutants import EVERY, ClassMutant, mutants
from cacheproof.proofs.symbolic.checking.twins import first_broken
from cacheproof.proofs.symbolic.subjects import encoder_cache, encoder_decoder_cache
from cacheproof.proofs.symbolic.values.language import NotTranslated
from cacheproof.reference import encoder_cache as cache_module
from cacheproof.reference import encoder_decoder_cache as decoder_module
from cacheproof.reference.releases import SEARCHED
from cacheproof.reference.semantics import Semantics
from cacheproof.spec.registry import contracts

SEEDS = range(60)
SECONDS_MAX = 20
RELEASES = (*SEARCHED, "0.18.1", "0.13.0", "0.10.2")


class DoesNotEnd(BaseException):
    """A change made a loop run for ever."""


@dataclass(frozen=True)
class Manager:
    """A manager's class: where its text stands, how it is proved, and in which lanes it runs."""

    kind: str
    module: ModuleType
    about: Any

    @property
    def contracts(self) -> list[str]:
        component = self.about.COMPONENT
        return [rule.id for rule in contracts(component) if rule.component == component]

    @property
    def mutants(self) -> list[ClassMutant]:
        """Changes of what the class defines itself; what it inherits is its base's."""
        source = self.about.of_reference().sources["m"]
        own = vars(getattr(self.module, self.about.CLASS))
        return [one for one in mutants(source, EVERY) if one.method in own]

    def changed(self, mutant: ClassMutant) -> Any:
        """The class with a change, in a module of its own."""
        tree = ast.parse(inspect.getsource(self.module))
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name == self.about.CLASS:
                method = mutant.source.methods[mutant.method]
                node.body = [
                    method if getattr(one, "name", "") == mutant.method else one
                    for one in node.body
                ]
        namespace: dict[str, Any] = {"__name__": self.module.__name__}
        exec(compile(ast.fix_missing_locations(tree), mutant.name, "exec"), namespace)
        return namespace[self.about.CLASS]


OF = (
    Manager("encoder_cache", cache_module, encoder_cache),
    Manager("encoder_decoder", decoder_module, encoder_decoder_cache),
)


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Raises DoesNotEnd where this process works very long on its body."""

    def give_up(*_: object) -> None:
        raise DoesNotEnd

    signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS_MAX)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def of_proofs(manager: Manager, mutant: ClassMutant) -> str:
    try:
        return first_broken(manager.about.of_reference(), mutant, manager.contracts) or ""
    except NotTranslated as refused:
        return f"refused: {refused}"


def of_search(manager: Manager, mutant: ClassMutant) -> str:
    managers = {**MANAGERS, manager.kind: manager.changed(mutant)}
    lanes = [
        one for one in LANES.values() if one.depth == "manager" and one.manager == manager.kind
    ]
    return _broken(ReferenceTarget(managers=managers), lanes, None)


def of_lockstep(manager: Manager, mutant: ClassMutant, targets: dict[str, Any]) -> str:
    managers = {**MANAGERS, manager.kind: manager.changed(mutant)}
    for release, target in targets.items():
        lanes = [
            one
            for one in LANES.values()
            if one.depth == "manager" and one.manager == manager.kind and one.is_offered_by(release)
        ]
        semantics = Semantics.of_vllm(release)
        reference = ReferenceTarget(
            semantics, protocol_of(semantics), release=release, managers=managers
        )
        if lanes and LOCKSTEP in _broken(target, lanes, reference):
            return release
    return ""


def _broken(target: Any, lanes: list[Any], reference: ReferenceTarget | None) -> str:
    try:
        with limited():
            found = search(target, lanes, against=reference, seeds=SEEDS)
    except (DoesNotEnd, AttributeError, TypeError) as error:
        target.close()  # it has traces that nobody will ask for
        return f"{type(error).__name__}, {LOCKSTEP}"
    if found.harness_errors:
        raise SystemExit(f"VOID: {found.harness_errors[0]}")
    return ", ".join(sorted({contract for contract, _ in found.broken}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=[one.kind for one in OF], action="append")
    kinds = parser.parse_args().kind
    targets = {one: resolve(f"vllm@{one}", report=print) for one in RELEASES}
    survivors = []
    print(
        "| class | changes | refuted by proofs | broken in a search | seen in lockstep | by any |"
    )
    print("|---|---|---|---|---|---|")
    for manager in OF if kinds is None else [one for one in OF if one.kind in kinds]:
        seen: Counter[str] = Counter()
        for mutant in manager.mutants:
            found = {
                "proofs": of_proofs(manager, mutant),
                "search": of_search(manager, mutant),
                "lockstep": of_lockstep(manager, mutant, targets),
            }
            print(mutant.name, found, file=sys.stderr, flush=True)
            seen.update(name for name, by in found.items() if by)
            seen["all"] += 1
            if any(found.values()):
                seen["any"] += 1
            else:
                survivors.append(f"{manager.about.CLASS}.{mutant.name}")
        counts = [seen[name] for name in ("proofs", "search", "lockstep", "any")]
        shares = (f"{count} ({count / seen['all']:.0%})" for count in counts)
        print(f"| {manager.about.CLASS} | {seen['all']} | {' | '.join(shares)} |", flush=True)
    print("\n" + "\n".join(survivors or ["Nothing survives."]))
    for target in targets.values():
        target.close()


if __name__ == "__main__":
    main()
