"""Makes the prompts of block keys simpler."""

from collections.abc import Iterator

from cacheproof.differential.findings.shrinking.edits import Edit, Lines, edited, put
from cacheproof.differential.traces.block_hash import EMBEDDED, BlockHashEvent, Prompt
from cacheproof.differential.traces.trace import Trace


def simpler_prompts(trace: Trace) -> Iterator[Trace | None]:
    """Prompts with fewer and plainer tokens."""
    if not _with_tokens(trace):
        return
    for position, event in enumerate(_with_tokens(trace)):
        path = ("events", position)
        for number in reversed(range(len(event.tokens))):
            yield edited(trace, _remove_token(position, number))
            if event.tokens[number] not in (0, EMBEDDED):
                yield edited(trace, put((*path, "tokens", number), 0))
        rows = event.embeds if isinstance(event, Prompt) else None
        for number, row in enumerate(rows or ()):
            zero = "0" * len(row or "")
            if row is not None:
                yield edited(trace, put((*path, "embeds", number), zero))
            yield edited(
                trace, put((*path, "embeds", number), None), put((*path, "tokens", number), 0)
            )
    for number in range(max(len(event.tokens) for event in _with_tokens(trace)), 0, -1):
        yield edited(
            trace,
            *(
                _remove_token(position, number - 1)
                for position, event in enumerate(trace.events)
                if isinstance(event, Prompt) and len(event.tokens) >= number
            ),
        )


def _with_tokens(trace: Trace) -> list[BlockHashEvent]:
    """Events that bring tokens."""
    return [event for event in trace.events if isinstance(event, BlockHashEvent)]


def _remove_token(position: int, number: int) -> Edit:
    """The edit that takes out one token: items after it move up, one that holds it becomes
    shorter."""

    def edit(lines: Lines) -> None:
        event = lines["events"][position]
        event["tokens"].pop(number)
        if event.get("embeds"):
            event["embeds"].pop(number)
        for item in event.get("items", ()):
            if item["offset"] > number:
                item["offset"] -= 1
            elif item["offset"] + item["length"] > number:
                item["length"] -= 1

    return edit


EDITS = (simpler_prompts,)
