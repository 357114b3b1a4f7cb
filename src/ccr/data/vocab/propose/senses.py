"""What a class name means: its senses in WordNet, and which of them the photos, or the other classes, speak for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ccr.core.geometry import unit_rows
from ccr.data.vocab.propose.company import FEW, Company
from ccr.data.vocab.propose.names import Named
from ccr.data.vocab.propose.wordnet import FOOD, Synset
from ccr.data.vocab.read import BATCH
from ccr.progress import Tell, no_progress

#: What one place further down WordNet's order costs, in standard deviations of the fit over all senses.
RANK_COST = 0.75
#: What it brings, in the same unit, when all other classes are of a kind with it: "bird" among animals is no dish.
COMPANY_GAIN = 4.0
#: What it brings a sense that is food when all classes have one: a fruit, not its tree.
EATEN_GAIN = 2.0

EmbedTexts = Callable[[Sequence[str]], np.ndarray]


def choose_senses(
    named: Sequence[Named],
    company: Company,
    embed: EmbedTexts | None,
    *,
    photos: Mapping[str, np.ndarray] | None = None,
    tell: Tell = no_progress,
) -> dict[str, Synset]:
    """Of every class the sense whose words and gloss fit best, by class name.

    Parameters
    ----------
    named : sequence of Named
        Classes with at least one sense each.
    company : Company
        Of all classes: senses that are of a kind with the others are preferred.
    embed : callable, optional
        Texts to unit rows, in the space of the photos. None: company and frequency alone decide.
    photos : mapping of name to array (d,), optional
        Mean of each class's own photos, measured from the mean of all. None: a sense is held against the other
        classes' names instead: "kiwi" among fruits is no bird.
    """
    open_ones = [item for item in named if len(item.senses) > 1]
    chosen = {item.name: item.senses[0] for item in named}
    if not open_ones:
        return chosen
    none = np.zeros(sum(len(item.senses) for item in open_ones))
    fits = none if embed is None else _fits(open_ones, named, embed, photos, tell)
    spread, start = float(np.std(fits)) or 1.0, 0
    eaten = sum(any(sense.file == FOOD for sense in item.senses) for item in named) / (len(named) + FEW)
    for item in open_ones:
        fit = fits[start : start + len(item.senses)] / spread - RANK_COST * np.arange(len(item.senses))
        fit += EATEN_GAIN * eaten * np.array([sense.file == FOOD for sense in item.senses])
        fit += COMPANY_GAIN * np.array([company.share(item, sense) for sense in item.senses])
        chosen[item.name] = item.senses[int(fit.argmax())]
        start += len(item.senses)
    return chosen


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
    named: Sequence[Named],
    embed: EmbedTexts,
    photos: Mapping[str, np.ndarray] | None,
    tell: Tell,
) -> np.ndarray:
    """How well each sense's text fits its class's photos, or the names of the other classes."""
    texts = [_text(sense) for item in open_ones for sense in item.senses]
    names = [] if photos is not None else [item.head for item in named]
    rows = _embedded([*texts, *names], embed, tell)
    glosses = unit_rows(rows[: len(texts)] - rows[: len(texts)].mean(axis=0))
    owners = [item.name for item in open_ones for _ in item.senses]
    if photos is not None:
        nothing = np.zeros(glosses.shape[1])
        targets = np.stack([photos.get(owner, nothing) for owner in owners])
    else:
        # What all classes have in common is the point here, so that only the texts' own mean is taken off.
        others = rows[len(texts) :]
        total, at = others.sum(axis=0), {item.name: number for number, item in enumerate(named)}
        targets = np.stack([total - others[at[owner]] for owner in owners])
    return np.einsum("sd,sd->s", glosses, unit_rows(targets))
