"""What there is to know of one contract: who promises it, how it is checked, and who breaks it."""

import inspect
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from cacheproof.differential.errors import InputError
from cacheproof.differential.judges.rules import rules_for
from cacheproof.differential.lanes.all_lanes import LANES
from cacheproof.differential.search.canary import canaries
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.search.verdict import HOLDS
from cacheproof.listed import kept
from cacheproof.listed.explaining import ScreenPart, print_parts, rows_part, text_part
from cacheproof.listed.facts import listed_by_name, showing
from cacheproof.output.conclusion import Conclusion
from cacheproof.output.console import CommandOutput
from cacheproof.output.verdict_line import VerdictLine, counted, names
from cacheproof.reference.releases import NEWEST
from cacheproof.spec.registry import Contract, contracts

ROOMS = ("spec", "differential")
"""The folders of the package in which contracts stand."""


def contract_called(name: str) -> Contract:
    """The contract of that id, however it is written.

    Raises:
        InputError: there is none; says which are called alike.
    """
    rules = {rule.id.lower(): rule for rule in contracts()}
    if name.lower() not in rules:
        alike = [rules[one].id for one in get_close_matches(name.lower(), rules, cutoff=0.4)]
        near = f"did you mean {' or '.join(alike)}? " if alike else ""
        raise InputError(
            f"{name[:80]}: no contract; {near}expected an id that cacheproof contracts lists"
        )
    return rules[name.lower()]


def show_contract(output: CommandOutput, name: str) -> None:
    """Print it.

    Raises:
        InputError: there is no such contract.
    """
    rule = contract_called(name)
    faults = [one for one in listed_by_name().values() if rule.id in one.contracts]
    facts, searched, proved = dict(_facts(rule)), _searched(rule), _proved(rule)
    commands = list(_commands(rule, faults))
    print_parts(
        output,
        rows_part(f"{rule.id}: {rule.title}", list(facts.items())),
        text_part("the rule", f"{_signature(rule)}\n{rule.expression.text}"),
        rows_part("how a search checks it", list(searched.items())),
        rows_part(f"what is proved of it in vLLM {NEWEST}", list(proved.items())),
        rows_part("known faults that break it", [(one.name, _told(one)) for one in faults]),
        ScreenPart("see more", commands),
    )
    told = {
        "contract": rule.id,
        "title": rule.title,
        "facts": facts,
        "predicate": rule.expression.text,
        "searched": searched,
        "proved": proved,
        "faults": {one.name: _told(one) for one in faults},
        "commands": commands,
    }
    output.tell(Conclusion(HOLDS, _verdict_of(rule, faults, commands), told))


def _facts(rule: Contract) -> Iterator[tuple[str, str]]:
    yield "harm", rule.harm
    yield "asked of", f"vLLM {rule.versions.told}"
    yield "component", rule.component
    calls = f", judged at {names(sorted(rule.calls))}" if rule.calls else ""
    yield "kind", f"{rule.kind}{calls}"
    yield "from", rule.source
    yield "stands in", _place(rule)


def _place(rule: Contract) -> str:
    """File, line and function of its predicate, as in the repository."""
    file = Path(inspect.getsourcefile(rule.predicate) or "").resolve()
    room = next((one for one in ROOMS if one in file.parts), "")
    path = "/".join(file.parts[file.parts.index(room) :]) if room else file.name
    line = inspect.getsourcelines(rule.predicate)[1]
    return f"{path}, line {line}: {rule.predicate.__name__}"


def _searched(rule: Contract) -> dict[str, str]:
    """The lanes in which a contract is judged at every call, by depth."""
    lanes: dict[str, list[str]] = {}
    for lane in LANES.values():
        if rule in rules_for(lane.manager, None, lane.depth, lane.silent_on).all:
            lanes.setdefault(lane.depth, []).append(lane.name)
    planted = {
        canary.fault
        for lane in LANES.values()
        for canary in canaries(lane.manager, None, depth=lane.depth)
        if canary.contract == rule.id
    }
    told = {f"{depth} lanes": names(of_depth) for depth, of_depth in lanes.items()}
    return told | ({"planted faults": names(sorted(planted))} if planted else {})


def _proved(rule: Contract) -> dict[str, str]:
    """What was proved or refuted of it, by what it was proved of; as
    docs/evidence/evidence-releases.md."""
    return {
        proof.subject: ", ".join(filter(None, (str(proof.outcome), proof.scope)))
        for proof in kept.proofs(NEWEST)
        if rule.id in proof.contracts
    }


def _signature(rule: Contract) -> str:
    """What the predicate looks at: each letter with its record."""
    looked_at = inspect.signature(rule.predicate).parameters.values()
    kinds = (getattr(one.annotation, "__name__", str(one.annotation)) for one in looked_at)
    return ", ".join(f"{one}: {kind}" for one, kind in zip(rule.parameters, kinds, strict=True))


def _told(fault: KnownFault) -> str:
    where = fault.product or fault.seen
    return f"{fault.title} ({where})"


def _commands(rule: Contract, faults: list[KnownFault]) -> Iterator[str]:
    for fault in faults[:1]:
        yield from list(showing(fault))[:1]
        yield f"cacheproof explain {fault.name}"
    if not faults:
        yield "cacheproof gallery"
    yield "cacheproof prove --target reference"


def _verdict_of(rule: Contract, faults: list[KnownFault], commands: list[str]) -> VerdictLine:
    known = (
        f"{counted(len(faults), 'known fault')} of real releases "
        f"{'breaks' if len(faults) == 1 else 'break'} it"
        if faults
        else "no known fault breaks it"
    )
    step = ("see it broken", commands[0]) if faults else ("", "")
    return VerdictLine(f"{rule.id} is a {rule.harm} rule of {rule.component}; {known}.", *step)
