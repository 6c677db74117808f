"""Drafts by prompt lookup: what followed the last tokens of a request where they stood before."""

from collections.abc import Sequence


def look_up(
    token_ids: Sequence[int], num_drafts: int, *, longest: int, shortest: int = 1
) -> list[int]:
    """At most `num_drafts` tokens that may follow, none where the last tokens never stood before.

    Of the last `longest` to `shortest` tokens the most that stood together before decide, and the
    first place where they did. Source: vLLM's method `ngram`.
    """
    for count in range(min(longest, len(token_ids) - 1), shortest - 1, -1):
        suffix = list(token_ids[-count:])
        for start in range(len(token_ids) - count):
            if list(token_ids[start : start + count]) == suffix:
                return list(token_ids[start + count : start + count + num_drafts])
    return []


def look_up_latest(
    token_ids: Sequence[int], num_drafts: int, *, longest: int, shortest: int = 1
) -> list[int]:
    """As many drafts as there are to be: what followed at the last such place, and the last token
    for those that are left.

    Source: the second model runner's `ngram`, whose requests all have drafts.
    """
    drafts: list[int] = []
    for count in range(min(longest, len(token_ids) - 1), shortest - 1, -1):
        suffix = list(token_ids[-count:])
        starts = [
            start
            for start in range(len(token_ids) - count)
            if list(token_ids[start : start + count]) == suffix
        ]
        if starts:
            drafts = list(token_ids[starts[-1] + count :][:num_drafts])
            break
    return [*drafts, *[token_ids[-1]] * (num_drafts - len(drafts))]
