"""Proposals from WordNet: no person, no service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ccr.data.vocab.propose.company import Company
from ccr.data.vocab.propose.features import Feature, features, name_features
from ccr.data.vocab.propose.names import look_up, plain_name
from ccr.data.vocab.propose.plurals import spellings, words_of
from ccr.data.vocab.propose.proposals import Origin, Proposal
from ccr.data.vocab.propose.senses import EmbedTexts, choose_senses
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
    different = list(dict.fromkeys(classes))
    found = [item for item in (look_up(name, wordnet) for name in different) if item is not None]
    named = Company(found, wordnet).known()
    senses = choose_senses(named, Company(named, wordnet), embed, photos=photos, tell=tell)
    known, proposals = {item.name: item for item in named}, []
    for number, name in enumerate(different):
        tell(number, len(different), "reading WordNet")
        said = features(known[name], senses[name], wordnet) if name in known else name_features(name, wordnet)
        proposals += [_proposal(name, feature) for feature in said]
    return FromWordNet(proposals, senses, [name for name in different if name not in senses])


def _proposal(name: str, feature: Feature) -> Proposal:
    return Proposal(feature.text, (Origin(name, "wordnet", feature.kind, feature.sentence),))


def label_texts(classes: Sequence[str], senses: Mapping[str, Synset]) -> set[str]:
    """Texts that give a label away: the class names as words, and the synonyms of those that are names in full."""
    texts = {plain_name(name) for name in classes} | {name.casefold() for name in classes}
    for name, sense in senses.items():
        synonyms = {lemma.casefold() for lemma in sense.lemmas}
        if spellings(tuple(words_of(plain_name(name)))) & {" ".join(words_of(synonym)) for synonym in synonyms}:
            texts |= synonyms
    return texts - {""}
