"""In which of its ways a contract of a scheduler breaks: they have different causes."""

from collections.abc import Callable, Collection, Mapping, Set
from itertools import islice, takewhile

from cacheproof.differential.judges.scheduler_position import SchedulerPosition
from cacheproof.differential.traces.engine import EngineConfig
from cacheproof.differential.traces.outcomes import StepOutcome
from cacheproof.differential.traces.records import Raised
from cacheproof.differential.traces.scheduler import SchedulerConfig
from cacheproof.spec.scheduler_kv import Holding, KVReads, Progress
from cacheproof.spec.scheduler_records import Inputs, References, Telling

_WORDS = 3
"""How many first words of a worker's message tell its failures apart."""
_LEDGER = frozenset({"EC-1", "EC-2"})
"""Contracts that a manager breaks whose slots do not add up any more."""


def stopping(broken: Collection[str], named: Mapping[str, bool]) -> str:
    """What may keep a chunk from its item, among what is `named`; lost slots alone, where contracts
    that are `broken` say that the manager has lost some."""
    if not _LEDGER.isdisjoint(broken):
        return "lost slots"
    return " + ".join(name for name, is_there in named.items() if is_there)


def raising(
    raised: Raised,
    operation: str,
    config: SchedulerConfig,
    at: SchedulerPosition,
    waiting: Collection[str],
) -> str:
    """What is raised, where, and with what: for an assertion in schedule(), which of its known
    causes are there; for a worker, the first words that it says."""
    details = ""
    if (raised.type, operation) == ("AssertionError", "schedule"):
        added = at.arrivals.added
        adapters = {added[name].lora for name in at.running} - {None}
        if 0 < config.max_loras < len(adapters):
            details = "more adapters than a step may have"
        else:
            drafts, threshold = config.num_speculative_tokens, config.long_prefill_token_threshold
            named = {
                "a session waits": any(at.prompts[one] > added[one].prompt for one in waiting),
                "a threshold within drafts": 0 < threshold <= drafts,
            }
            details = " + ".join(name for name, is_there in named.items() if is_there)
    elif isinstance(config, EngineConfig):
        # Up to the first word with a number or a name in it: these differ from trace to trace.
        details = " ".join(islice(takewhile(str.isalpha, raised.message.split()), _WORDS))
    return f"{raised.type} in {operation}" + (f": {details}" if details else "")


def holding(
    held: References, waiting: Collection[str], preempted: Set[str], resumable: Set[str]
) -> str:
    """When requests that do not run hold entries that they should have given back."""
    names = {name for holders in held.holders.values() for name in holders} - held.running
    if not names & set(waiting):
        return "after the end"
    if names & preempted:
        return "after a preemption"
    return "between turns" if names & resumable else "while waiting"


def misreading(
    subject: Progress | KVReads | Holding,
    outcome: StepOutcome,
    resumable: Set[str],
    was_left: Callable[[str, int], bool],
) -> str:
    """Whether all that is read wrongly are blocks that a preemption left; or whether it is sessions
    alone that read KV that is not theirs, have no slots for their tokens, or have left all queues
    with their blocks."""
    if isinstance(subject, KVReads):
        places = {
            (name, block)
            for name, blocks in subject.reads.items()
            for block, count in blocks.items()
            if count > subject.right[name][block]
        }
        wrong = {name for name, _ in places}
        joins = wrong <= {*outcome["new"], *outcome["resumed"]}
        if joins and all(was_left(*place) for place in places):
            return "left by a preemption"
    elif isinstance(subject, Holding):
        wrong = {name for name, end in subject.ends.items() if end > subject.slots[name]}
        if not wrong and resumable - {*outcome["running"], *outcome["waiting"]}:
            return "a lost session"
    else:
        return ""
    return "in a session" if wrong and wrong <= resumable else ""


def overdrafting(told: Telling, ran: Collection[str]) -> str:
    """Whether all who have no token beside their drafts join the step: they did not run before."""
    wrong = {name for name, drafts in told.drafts.items() if drafts >= told.tokens.get(name, 0)}
    return "as they join" if wrong and wrong.isdisjoint(ran) else ""


def withholding(inputs: Inputs, outcome: StepOutcome, resumed: Set[str]) -> str:
    """When a request needs what was withheld."""
    lacking = {name for name in inputs.encodes if inputs.encodes[name] & inputs.withheld[name]}
    if not lacking.isdisjoint(outcome["told_new"]):
        return "at once"
    return "after a preemption" if lacking & resumed else "while it runs"
