"""What a class name means: its senses in WordNet, and which of them the photos, or the other classes, speak for."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ccr.core.geometry import unit_rows
from ccr.data.vocab.propose.wordnet import FOOD, PERSON, PLANT, Synset, WordNet
from ccr.data.vocab.read import BATCH
from ccr.progress import Tell, no_progress

#: Senses of a name that are considered, the most frequent ones.
MOST_SENSES = 6
#: What one place further down WordNet's order costs, in standard deviations of the fit over all senses.
RANK_COST = 0.75
#: What it brings, in the same unit, when the first sense of all classes is of the same kind (an animal, an artifact, a
#: plant or food): "bird" among animals is no dish.
COMPANY_GAIN = 4.0
#: What it brings a sense that is food when all classes have one: a fruit, not its tree.
EATEN_GAIN = 2.0
#: Where a name is known by its last words alone and less than this share of the classes has a sense of its kind, it is
#: taken as unknown: "Russian Blue" among cats and dogs is no sky.
LEAST_COMPANY = 0.1

EmbedTexts = Callable[[Sequence[str]], np.ndarray]


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


def in_company(named: Sequence[Named]) -> list[Named]:
    """Those whose last words alone are known, and those that name people, only if other classes have a sense of the
    same kind."""
    share = _company(named)

    def sure(item: Named) -> bool:
        return item.complete and item.senses[0].file != PERSON

    def known(item: Named) -> bool:
        return max(share.get(_kind(sense), 0.0) for sense in item.senses) >= LEAST_COMPANY

    return [item for item in named if sure(item) or known(item)]


def choose_senses(
    named: Sequence[Named],
    embed: EmbedTexts,
    *,
    photos: Mapping[str, np.ndarray] | None = None,
    tell: Tell = no_progress,
) -> dict[str, Synset]:
    """Of every class the sense whose words and gloss fit best, by class name.

    Parameters
    ----------
    named : sequence of Named
        Classes with at least one sense each.
    embed : callable
        Texts to unit rows, in the space of the photos.
    photos : mapping of name to array (d,), optional
        Mean of each class's own photos, measured from the mean of all. None: a sense is held against the other
        classes' names instead: "kiwi" among fruits is no bird.
    """
    open_ones = [item for item in named if len(item.senses) > 1]
    chosen = {item.name: item.senses[0] for item in named}
    if not open_ones:
        return chosen
    texts = [_text(sense) for item in open_ones for sense in item.senses]
    names = [] if photos is not None else [item.head for item in named]
    rows = _embedded([*texts, *names], embed, tell)
    glosses = unit_rows(rows[: len(texts)] - rows[: len(texts)].mean(axis=0))
    fits = _fits(open_ones, glosses, photos, None if photos is not None else rows[len(texts) :], named)
    spread, share, start = float(np.std(fits)) or 1.0, _company(named), 0
    eaten = np.mean([any(sense.file == FOOD for sense in item.senses) for item in named])
    for item in open_ones:
        fit = fits[start : start + len(item.senses)] / spread - RANK_COST * np.arange(len(item.senses))
        fit += EATEN_GAIN * eaten * np.array([sense.file == FOOD for sense in item.senses])
        fit += COMPANY_GAIN * np.array([share.get(_kind(sense), 0.0) for sense in item.senses])
        chosen[item.name] = item.senses[int(fit.argmax())]
        start += len(item.senses)
    return chosen


def _company(named: Sequence[Named]) -> dict[int, float]:
    """Of every kind of thing, the share of the classes whose most frequent sense is one."""
    counts = Counter(_kind(item.senses[0]) for item in named)
    return {kind: count / len(named) for kind, count in counts.items()}


def _kind(sense: Synset) -> int:
    """WordNet's lexicographer file, with plants and what is eaten of them as one."""
    return PLANT if sense.file == FOOD else sense.file


def _spellings(words: Sequence[str]) -> list[str]:
    """A name as it stands, run together, and with one gap closed by a hyphen: "black-footed albatross"."""
    hyphened = [
        " ".join([*words[:at], f"{words[at]}-{words[at + 1]}", *words[at + 2 :]]) for at in range(len(words) - 1)
    ]
    return [" ".join(words), *hyphened, *(["".join(words)] if len(words) == 2 else [])]


def _text(sense: Synset) -> str:
    return f"{', '.join(sense.lemmas[:3])}: {sense.definition}"


def _embedded(texts: Sequence[str], embed: EmbedTexts, tell: Tell) -> np.ndarray:
    """Each different text once, in batches, so that progress can be seen."""
    different = list(dict.fromkeys(texts))
    parts = []
    for start in range(0, len(different), BATCH):
        tell(start, len(different), "reading senses of class names")
        parts.append(embed(different[start : start + BATCH]))
    row = {text: number for number, text in enumerate(different)}
    return np.concatenate(parts)[[row[text] for text in texts]]


def _fits(
    open_ones: Sequence[Named],
    glosses: np.ndarray,
    photos: Mapping[str, np.ndarray] | None,
    names: np.ndarray | None,
    named: Sequence[Named],
) -> np.ndarray:
    """How well each sense's text fits its class's photos, or the names of the other classes."""
    owners = [item.name for item in open_ones for _ in item.senses]
    if photos is not None:
        nothing = np.zeros(glosses.shape[1])
        targets = np.stack([photos.get(owner, nothing) for owner in owners])
    else:
        assert names is not None
        total, at = names.sum(axis=0), {item.name: number for number, item in enumerate(named)}
        targets = np.stack([total - names[at[owner]] for owner in owners])
        # What all classes have in common is the point here, so that only the texts' own mean is taken off.
    return np.einsum("sd,sd->s", glosses, unit_rows(targets))
