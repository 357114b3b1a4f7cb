"""The meaning of class names: their senses in WordNet, and which of them the photos or the other classes speak for."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ccr.geometry import unit_rows
from ccr.utils.processes import OnProgress, no_progress
from ccr.vocab.domains import BROAD, domains_of
from ccr.vocab.lists import BATCH
from ccr.vocab.wordnet import COMMUNICATION, FOOD, PERSON, PLANT, Synset, WordNet, spellings

#: Senses of a name that are considered, the most frequent ones.
MOST_SENSES = 6
#: Cost of one place further down WordNet's order, in standard deviations of the fit over all senses.
RANK_COST = 1.0
#: Further cost of it, whether or not the senses were counted, so that of equals the first is taken.
TIE_COST = 0.15
#: Weight of the fit where there are no photos: names of classes say less about a sense than photos do.
NAMES_WEIGHT = 0.4
#: Gain, in the same unit, of a sense when all other classes are of a kind with it: "bird" among animals is no dish.
COMPANY_GAIN = 4.0
#: What it brings a sense that WordNet calls by this name first: few mean a man-of-war by "jellyfish".
NAMED_FIRST_GAIN = 0.7
#: How often senses are chosen, each time in the company of those chosen before: maple among trees is no wood.
ROUNDS = 2
#: Gain of a sense that is food when another is a plant, and when all classes have one: a fruit, not its tree.
FRUIT_GAIN, EATEN_GAIN = 1.1, 2.0
#: Kinds that anything belongs to.
ANYTHING = {
    *("organism", "living thing", "whole", "object", "physical entity", "entity", "matter", "solid", "substance"),
    *("artifact", "instrumentality", "natural object", "causal agent", "covering", "material", "abstraction"),
    *("attribute", "state", "condition", "shape"),
    *("animal", "plant"),  # "Russian Blue" among cats and dogs is no butterfly
}
#: A sense is at home where this share of the other classes belongs to a kind or a domain of its own.
LEAST_COMPANY = 0.1
#: Where such a share of the classes belongs to one kind, a name that few people use and whose senses are all strangers
#: is taken as unknown.
AGREED = 0.5
#: Weight of another class of the same domain, relative to one of the same kind.
DOMAIN_COMPANY = 0.75
#: Words of a definition that are embedded, and other classes that stand for all of them: the rest changes the sense of
#: one name in 300 and takes half of the time.
DEFINITION_WORDS, MOST_OTHERS = 16, 200
#: So many classes more are thought to be of other kinds.
FEW = 3

EmbedTexts = Callable[[Sequence[str]], np.ndarray]


@dataclass(frozen=True)
class Named:
    """A class name in WordNet: the longest part of it that has senses (`head`), the words before it, the senses, and
    how many of them, the first, occur in the texts that WordNet counted: the order of the others means nothing."""

    name: str
    head: str
    modifiers: tuple[str, ...]
    senses: tuple[Synset, ...]
    counted: int

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
    """The senses of a class name that a photo can show, or None where WordNet has none.

    "Red-winged Blackbird" is known as a whole; of "Brewer Blackbird" the last word is.
    """
    words = plain_name(name).split()
    for start in range(len(words)):
        if len(words[start:]) == 1 and len(words[start]) == 1:  # "A113" is a code, not the letter
            continue
        for head in _spellings(words[start:]):
            senses = _shown(head, wordnet)[:MOST_SENSES]
            if senses:
                counted = sum(wordnet.is_counted(head, sense) for sense in senses)
                return Named(name, " ".join(words[start:]), tuple(words[:start]), tuple(senses), counted)
        if any(_is_kind(sense, wordnet) for head in _spellings(words[start:]) for sense in wordnet.senses(head)):
            return None  # known, and nothing to see: a pole vault is no vault
    return None


def _shown(head: str, wordnet: WordNet) -> list[Synset]:
    """The senses of a noun that a photo can show: things, and whatever else belongs to a domain of the generic list,
    such as diseases and blemishes."""
    # Pliers are listed in the plural; their singular is somebody who plies a trade. A banded texture is no band.
    derived = [] if wordnet.is_adjective(head) else wordnet.bases(head)
    forms = dict.fromkeys([wordnet.base(head) or "", head, *derived])
    known = [sense for form in forms for sense in wordnet.senses(form) if _is_kind(sense, wordnet)]
    different = list({sense.place: sense for sense in known}.values())
    # People are photographed too, but a "frog" is one only where nothing else bears the name.
    things = [sense for sense in different if sense.file != PERSON and _is_shown(sense, wordnet)]
    return things or [sense for sense in different if sense.file == PERSON]


def _is_kind(sense: Synset, wordnet: WordNet) -> bool:
    """Whether it is a kind, as classes are, and not a single one as the constellation called Crane."""
    return not wordnet.pointed(sense, "@i")


def _is_shown(sense: Synset, wordnet: WordNet) -> bool:
    """Whether a photo can show it: a thing, what belongs to a domain of the generic list, or what WordNet files under
    communication and is yet made by people, such as notebooks and newspapers."""
    written = sense.file == COMMUNICATION and any("artifact" in kind.lemmas for kind in wordnet.above(sense))
    return sense.visible or written or bool(domains_of(sense, wordnet))


def _spellings(words: Sequence[str]) -> list[str]:
    """A name as it stands, run together, and with one gap closed by a hyphen: "black-footed albatross"."""
    hyphened = [
        " ".join([*words[:at], f"{words[at]}-{words[at + 1]}", *words[at + 2 :]]) for at in range(len(words) - 1)
    ]
    return [" ".join(words), *hyphened, *(["".join(words)] if len(words) == 2 else [])]


class ClassContext:
    """The kinds and domains that classes belong to, by which a sense is at home among the others or a stranger: "pink
    lady" among fruits is no cocktail, "bird" among animals no dish."""

    def __init__(self, named: Sequence[Named], wordnet: WordNet, *, meant: Mapping[str, Synset] | None = None) -> None:
        """`meant`: the senses that names have, as far as known; others count by their most frequent one."""
        self._named, self._wordnet, self._meant = named, wordnet, meant or {}
        self._counts = Counter(place for item in named for place in set(self._kinds(self._first(item))))
        # A domain counts by any sense: of six names of surface damage, none has it as its most frequent one.
        self._domains = Counter(domain for item in named for domain in self._domains_of_any(item))

    def share(self, item: Named, sense: Synset) -> float:
        """The largest share of the other classes that belongs to one kind or domain with this sense, in [0, 1); a few
        classes are little company, however alike."""
        own, any_own = set(self._kinds(self._first(item))), self._domains_of_any(item)
        others: list[float] = [self._counts[place] - (place in own) for place in self._kinds(sense)]
        others += [DOMAIN_COMPANY * (self._domains[domain] - (domain in any_own)) for domain in self._narrow(sense)]
        return max(others, default=0) / (len(self._named) - 1 + FEW)

    def kinship(self, item: Named, sense: Synset) -> float:
        """Nearness of a sense to the other classes, in [0, 1): from the mean number of kinds that it shares with one,
        so that a van among cars and trucks is no railway van."""
        kinds_of_item = set(self._kinds(self._first(item)))
        kinds = sum(self._counts[place] - (place in kinds_of_item) for place in self._kinds(sense))
        return max(self.share(item, sense), 1.0 - math.exp(-kinds / (len(self._named) - 1 + FEW)))

    def known(self) -> list[Named]:
        """The classes whose names mean what one would think here. A name of which only the last words are known needs
        company, and so does one that means people; where most classes are of one kind, every name that few use."""
        first = Counter(domain for item in self._named for domain in self._narrow(item.senses[0]))
        most = max([*self._counts.values(), *first.values()], default=0)
        agreed = most >= AGREED * len(self._named) and len(self._named) > 2
        return [item for item in self._named if self._sure(item, agreed) or self._at_home(item)]

    def knowing(self, meant: Mapping[str, Synset]) -> ClassContext:
        """The same classes with senses that have been chosen."""
        return ClassContext(self._named, self._wordnet, meant=meant)

    def _first(self, item: Named) -> Synset:
        return self._meant.get(item.name, item.senses[0])

    def _at_home(self, item: Named) -> bool:
        return max(self.share(item, sense) for sense in item.senses) >= LEAST_COMPANY

    def _sure(self, item: Named, agreed: bool) -> bool:
        usual = not agreed or (item.counted > 0 and self._wordnet.is_common(item.head))
        return item.complete and item.senses[0].file != PERSON and usual

    def _kinds(self, sense: Synset) -> Iterator[int]:
        """The places of a sense and the kinds above it that say something."""
        for kind in (sense, *self._wordnet.above(sense)):
            if ANYTHING & set(kind.lemmas):
                return
            yield kind.place

    def _narrow(self, sense: Synset) -> frozenset[str]:
        return domains_of(sense, self._wordnet) - BROAD

    def _domains_of_any(self, item: Named) -> set[str]:
        return {domain for sense in item.senses for domain in self._narrow(sense)}


def choose_senses(
    named: Sequence[Named],
    company: ClassContext,
    embed: EmbedTexts | None,
    *,
    photos: Mapping[str, np.ndarray] | None = None,
    tell: OnProgress = no_progress,
) -> dict[str, Synset]:
    """Word sense disambiguation: the WordNet sense of each class whose words and gloss fit best, by class name.

    Parameters
    ----------
    named : classes with at least one sense each.
    company : of all classes: senses that are of a kind with the others are preferred.
    embed : texts to unit rows, in the space of the photos. None: company and frequency alone decide.
    photos : (d,), mean of each class's own photos, measured from the mean of all. None: a sense is held against the
        other classes' names instead: "kiwi" among fruits is no bird.
    """
    open_ones = [item for item in named if len(item.senses) > 1]
    chosen = {item.name: item.senses[0] for item in named}
    if not open_ones:
        return chosen
    none = np.zeros(sum(len(item.senses) for item in open_ones))
    fits = none if embed is None else _fits(open_ones, named, embed, photos, tell)
    spread = (float(np.std(fits)) or 1.0) / (NAMES_WEIGHT if photos is None else 1.0)
    eaten = sum(any(sense.file == FOOD for sense in item.senses) for item in named) / (len(named) + FEW)
    for _ in range(ROUNDS):
        start = 0
        for item in open_ones:
            fit = fits[start : start + len(item.senses)] / spread
            ranks = np.arange(len(item.senses))
            fit -= RANK_COST * np.minimum(ranks, item.counted) + TIE_COST * ranks
            gain = EATEN_GAIN * eaten + FRUIT_GAIN * any(sense.file == PLANT for sense in item.senses)
            fit += gain * np.array([sense.file == FOOD for sense in item.senses])
            fit += NAMED_FIRST_GAIN * np.array([_named_first(item, sense) for sense in item.senses])
            fit += COMPANY_GAIN * np.array([company.kinship(item, sense) for sense in item.senses])
            chosen[item.name] = item.senses[int(fit.argmax())]
            start += len(item.senses)
        company = company.knowing(chosen)
    return chosen


def _named_first(item: Named, sense: Synset) -> bool:
    """Whether the name, in singular or plural, is the first of the sense's."""
    return sense.lemmas[0].casefold() in spellings(tuple(item.head.split()))


def _text(sense: Synset) -> str:
    return f"{', '.join(sense.lemmas[:3])}: {' '.join(sense.definition.split()[:DEFINITION_WORDS])}"


def _embedded(texts: Sequence[str], embed: EmbedTexts, tell: OnProgress) -> np.ndarray:
    """Each different text once, in batches of similar length, so that progress can be seen."""
    different = sorted(set(texts), key=lambda text: (len(text), text))
    parts = []
    for start in range(0, len(different), BATCH):
        tell(start, len(different), "reading senses of class names")
        parts.append(embed(different[start : start + BATCH]))
    row = {text: number for number, text in enumerate(different)}
    return np.concatenate(parts)[[row[text] for text in texts]]


def _fits(
    open_ones: Sequence[Named],
    named: Sequence[Named],
    embed: EmbedTexts,
    photos: Mapping[str, np.ndarray] | None,
    tell: OnProgress,
) -> np.ndarray:
    """Fit of each sense's text to its class's photos, or to the names of the other classes."""
    texts = [_text(sense) for item in open_ones for sense in item.senses]
    others = [] if photos is not None else named[:: -(-len(named) // MOST_OTHERS)]
    rows = _embedded([*texts, *(item.head for item in others)], embed, tell)
    glosses = unit_rows(rows[: len(texts)] - rows[: len(texts)].mean(axis=0))
    owners = [item.name for item in open_ones for _ in item.senses]
    if photos is not None:
        nothing = np.zeros(glosses.shape[1])
        targets = np.stack([photos.get(owner, nothing) for owner in owners])
    else:
        # What all classes have in common is the point here, so that only the texts' own mean is taken off.
        by_name = {item.name: row for item, row in zip(others, rows[len(texts) :], strict=True)}
        total, nothing = rows[len(texts) :].sum(axis=0), np.zeros(rows.shape[1])
        targets = np.stack([total - by_name.get(owner, nothing) for owner in owners])
    return np.einsum("sd,sd->s", glosses, unit_rows(targets))
