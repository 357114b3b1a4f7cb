"""Singular and plural: which words may be the same but for their number. No dictionary is asked."""

from __future__ import annotations

import itertools
import re
from functools import lru_cache

_ENDINGS = (("ies", "y"), ("ves", "f"), ("ses", "s"), ("xes", "x"), ("ches", "ch"), ("shes", "sh"), ("oes", "o"))
_PLURALS = (*_ENDINGS, ("men", "man"), ("s", ""))
IRREGULAR = {
    **{"feet": "foot", "teeth": "tooth", "leaves": "leaf", "mice": "mouse", "geese": "goose", "knives": "knife"},
    **{"children": "child", "people": "person", "antennae": "antenna", "fungi": "fungus", "cacti": "cactus"},
}
_WORD = re.compile(r"[^\W_]+(?:'\w+)?")
_NO_PLURAL = ("ss", "us", "is")


def words_of(text: str) -> list[str]:
    """The words of a text in small letters, without what stands between them."""
    return _WORD.findall(text.casefold())


def singulars(word: str) -> list[str]:
    """What a word may be the plural of, by its ending. Three letters at least: "is" is no plural of "i"."""
    forms = [word[: -len(end)] + new for end, new in _PLURALS if word.endswith(end)]
    return [form for form in forms if len(form) > 2]


def spellings(words: tuple[str, ...]) -> set[str]:
    """Words as one text, each as it stands and as what it may be the plural of."""
    return {" ".join(forms) for forms in itertools.product(*map(_forms, words))}


@lru_cache(maxsize=100_000)
def _forms(word: str) -> tuple[str, ...]:
    owner = word.removesuffix("'s")
    if owner in IRREGULAR:
        return owner, IRREGULAR[owner]
    return (owner,) if owner.endswith(_NO_PLURAL) else (owner, *singulars(owner))
