"""Class names in WordNet: as words, and the longest part of each that has senses."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from ccr.data.vocab.propose.wordnet import PERSON, Synset, WordNet

#: Senses of a name that are considered, the most frequent ones.
MOST_SENSES = 6


@dataclass(frozen=True)
class Named:
    """A class name in WordNet: the longest part of it that has senses (`head`), the words before it, the senses."""

    name: str
    head: str
    modifiers: tuple[str, ...]
    senses: tuple[Synset, ...]

    @property
    def complete(self) -> bool:
        """Whether the whole name is known, not its last words alone."""
        return not self.modifiers


def plain_name(name: str) -> str:
    """A class name as words: "012.Golden-Delicious" and "ice_cream" as "golden delicious" and "ice cream"."""
    text = unicodedata.normalize("NFKC", name)
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    return " ".join(re.sub(r"[^\w']|_|\d", " ", spaced).split()).casefold()


def look_up(name: str, wordnet: WordNet) -> Named | None:
    """The senses of a class name that a photo can show, or None where nobody knows it.

    "Red-winged Blackbird" is known as a whole; of "Brewer Blackbird" the last word is.
    """
    words = plain_name(name).split()
    for start in range(len(words)):
        for head in _spellings(words[start:]):
            base = wordnet.base(head)
            # Classes are kinds of things, so that the one constellation called Crane is none.
            known = [sense for sense in wordnet.senses(base or "") if not wordnet.pointed(sense, "@i")]
            # People are photographed too, but a "frog" is one only where nothing else bears the name.
            senses = [s for s in known if s.visible] or [s for s in known if s.file == PERSON]
            if senses:
                return Named(name, " ".join(words[start:]), tuple(words[:start]), tuple(senses[:MOST_SENSES]))
    return None


def _spellings(words: Sequence[str]) -> list[str]:
    """A name as it stands, run together, and with one gap closed by a hyphen: "black-footed albatross"."""
    hyphened = [
        " ".join([*words[:at], f"{words[at]}-{words[at + 1]}", *words[at + 2 :]]) for at in range(len(words) - 1)
    ]
    return [" ".join(words), *hyphened, *(["".join(words)] if len(words) == 2 else [])]
