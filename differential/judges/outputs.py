"""What requests are answered, compared: token for token, and log probabilities within a bound.

Two implementations of one model round differently. Tokens must be equal all the same, except where
the best two logits are so close that rounding decides; from there on the texts are two.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from cacheproof.differential.traces.outcomes import DecodedToken
from cacheproof.differential.traces.records import StepRecord

BOUND = 1e-3
"""Most that a log probability, or the lead of the best logit, may differ by. The tiny models'
logits are tens, and their float32 carries seven digits; what is measured is in
docs/explain/runner.md."""
NEARLY = 2 * BOUND
"""A token whose logit leads by less is one that rounding may decide."""


class OutputComparison(NamedTuple):
    """Two records without their outputs; or the field in which those differ, and what each side
    says. `ends`: from here on two texts are decoded, and nothing more is to be compared."""

    ours: StepRecord
    theirs: StepRecord
    difference: tuple[str, object, object] | None = None
    ends: bool = False


def has_outputs(record: StepRecord) -> bool:
    """Whether a record is of an update that says what requests are answered."""
    return isinstance(record.outcome, dict) and record.outcome.get("outputs") is not None


def compare_outputs(ours: StepRecord, theirs: StepRecord) -> OutputComparison:
    """Compare the outputs of two records of one update, which both have some."""
    one, other = ours.outcome["outputs"], theirs.outcome["outputs"]
    ours, theirs = _without(ours), _without(theirs)
    if one.keys() != other.keys():
        return OutputComparison(ours, theirs, ("requests with output", sorted(one), sorted(other)))
    ends = False
    for request, tokens in one.items():
        if len(tokens) != len(other[request]):
            return OutputComparison(ours, theirs, (f"tokens of {request}", tokens, other[request]))
        for mine, their in zip(tokens, other[request], strict=True):
            if mine[0] != their[0]:
                if not is_tie(mine) and not is_tie(their):
                    return OutputComparison(ours, theirs, (f"token of {request}", mine, their))
                ends = True
            elif max(abs(mine[1] - their[1]), abs(mine[2] - their[2])) > BOUND:
                return OutputComparison(
                    ours, theirs, (f"log probability of {request}", mine, their)
                )
    return OutputComparison(ours, theirs, ends=ends)


def taken(
    outputs: Mapping[str, Sequence[DecodedToken]], untaken: Mapping[str, Sequence[int]]
) -> Iterator[tuple[str, list[DecodedToken]]]:
    """Per request with output, the tokens that the scheduler took; `untaken` has the numbers of the
    others, such as those after the end of a turn."""
    for name, tokens in outputs.items():
        dropped = set(untaken.get(name, ()))
        yield name, [token for number, token in enumerate(tokens) if number not in dropped]


def is_tie(token: tuple[int, float | None, float | None]) -> bool:
    """Whether rounding may have decided on a token, of [id, log probability, lead]."""
    return token[2] is not None and token[2] < NEARLY


def _without(record: StepRecord) -> StepRecord:
    rest = {name: value for name, value in record.outcome.items() if name != "outputs"}
    return record._replace(outcome=rest)
