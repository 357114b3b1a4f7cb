"""Proposals from WordNet: no person, no service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ccr.data.vocab.propose.features import features
from ccr.data.vocab.propose.proposals import Origin, Proposal
from ccr.data.vocab.propose.senses import EmbedTexts, choose_senses, in_company, look_up, plain_name
from ccr.data.vocab.propose.wordnet import Synset, WordNet
from ccr.progress import Tell, no_progress


class FromWordNet(NamedTuple):
    """What WordNet proposes, the sense taken for each class, and the classes that it does not know."""

    proposals: list[Proposal]
    senses: dict[str, Synset]
    unknown: list[str]


def wordnet_proposals(
    classes: Sequence[str],
    wordnet: WordNet,
    *,
    embed: EmbedTexts | None = None,
    photos: Mapping[str, np.ndarray] | None = None,
    tell: Tell = no_progress,
) -> FromWordNet:
    """What WordNet says about each class that a photo can show.

    Parameters
    ----------
    classes : sequence of str
        The classes' names; compound ones resolve by their parts.
    embed : callable, optional
        Texts to unit rows, by which the sense of a name is chosen. None: the most frequent sense.
    photos : mapping of class to array (d,), optional
        Mean of each class's photos measured from the mean of all; see `choose_senses`.
    """
    found = (look_up(name, wordnet) for name in dict.fromkeys(classes))
    named = in_company([item for item in found if item is not None])
    if embed is None:
        senses = {item.name: item.senses[0] for item in named}
    else:
        senses = choose_senses(named, embed, photos=photos, tell=tell)
    proposals = []
    for number, item in enumerate(named):
        tell(number, len(named), "reading WordNet")
        proposals += [
            Proposal(feature.text, (Origin(item.name, "wordnet", feature.kind, feature.sentence),))
            for feature in features(item, senses[item.name], wordnet)
        ]
    return FromWordNet(proposals, senses, [name for name in dict.fromkeys(classes) if name not in senses])


def label_texts(classes: Sequence[str], senses: Mapping[str, Synset]) -> set[str]:
    """Texts that give a label away: the class names as words, and the synonyms of those that are names in full."""
    texts = {plain_name(name) for name in classes} | {name.casefold() for name in classes}
    for name, sense in senses.items():
        synonyms = {lemma.casefold() for lemma in sense.lemmas}
        if plain_name(name) in {synonym.replace("-", " ") for synonym in synonyms}:
            texts |= synonyms
    return texts - {""}
