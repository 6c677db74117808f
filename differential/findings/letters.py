"""What the letters of a contract's formula stand for."""

import re
from typing import get_type_hints

from cacheproof.spec.registry import Contract

BOUND = {
    "h": "an identifier: the entry that an item of a request is cached as",
    "r": "a request",
    "q": "another request",
    "i": "an item of a request, by its number, from 0",
    "b": "a KV block, by its number",
    "e": "another identifier",
    "k": "a key or an identifier that is looked up",
    "t": "a transfer of KV blocks",
}
"""Letters that a contract's own terms bind. Longer names say what they are."""
_LETTER = re.compile(r"\b(?:[a-z]|pre|post)\b")


def letters_of(rule: Contract, formula: str) -> list[tuple[str, str]]:
    """The letters that stand in a formula of a contract, in order, and what each is."""
    hints = get_type_hints(rule.predicate)
    said = {name: _first_sentence(hints[name].__doc__ or "") for name in rule.parameters}
    for state, when in (("pre", "before the call"), ("post", "after the call")):
        if state in said:
            said[state] = f"{said[state].rstrip('.').removesuffix(' between two calls')}, {when}"
    meanings = BOUND | said
    found = dict.fromkeys(_LETTER.findall(re.sub(r"'[^']*'", "", formula)))
    return [(letter, meanings[letter].rstrip(".")) for letter in found if meanings.get(letter)]


def _first_sentence(text: str) -> str:
    """The first sentence of a docstring, in one line; its first letter is lowered unless a name
    begins it."""
    words = re.split(r"(?<=\.)\s", " ".join(text.split("\n\n")[0].split()))[0]
    begins_a_name = words[:2].isupper() and words[:2].isalpha()
    return words if begins_a_name else f"{words[:1].lower()}{words[1:]}"
