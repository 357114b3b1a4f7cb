"""Proposals without a person or a service: what WordNet says of classes, and the generic list of their domains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ccr.utils.progress import Tell, no_progress
from ccr.vocab.propose.features import Feature, features, name_features
from ccr.vocab.propose.generic import fitting_domains, generic_proposals
from ccr.vocab.propose.glosses import look
from ccr.vocab.propose.plurals import spellings, words_of
from ccr.vocab.propose.proposals import COLOUR_NAMES, Origin, Proposal, Proposals, together
from ccr.vocab.propose.senses import Company, EmbedTexts, choose_senses, look_up, plain_name
from ccr.vocab.propose.wordnet import Synset, WordNet

#: Colours that grey photos show, and words that are of colours wherever they stand.
GREYS = {
    "black",
    "white",
    "grey",
    "gray",
    "silver",
    "dark",
    "light",
    "pale",
    "greyish",
    "grayish",
    "blackish",
    "whitish",
}
COLOURED = {"colour", "colours", "color", "colors", "coloured", "colored", "rust", "rusty", "tan", "golden", "brownish"}


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


def reasoned_proposals(
    classes: Sequence[str],
    wordnet: WordNet | None,
    *,
    embed: EmbedTexts | None = None,
    photos: Mapping[str, np.ndarray] | None = None,
    grey: bool = False,
    sources: Sequence[str] = ("wordnet", "generic"),
    told: Sequence[Proposal] = (),
    tell: Tell = no_progress,
) -> Proposals:
    """Concepts for classes, each with its reasons: WordNet ties it to a class, a language model said it, or it belongs
    to a part of the generic list that fits the domain of the classes.

    Parameters
    ----------
    classes : the classes' names.
    wordnet : None: domains are judged by the sentence model alone, and synonyms of class names are not known.
    embed, photos : see `wordnet_proposals`; `embed` also relates names that WordNet does not know to domains.
    grey : whether the photos are without colour, so that concepts that name one are left out.
    sources : "wordnet", "generic" or both.
    told : proposals of a language model.
    """
    known = FromWordNet([], {}, list(classes))
    if wordnet is not None:
        known = wordnet_proposals(classes, wordnet, embed=embed, photos=photos, tell=tell)
    domains = fitting_domains(classes, known.senses, wordnet, embed) if "generic" in sources else {}
    said = [known.proposals if "wordnet" in sources else [], told, generic_proposals(domains)]
    if grey:
        said = [[item for item in part if not names_colour(item.concept, wordnet)] for part in said]
    unknown = known.unknown if "wordnet" in sources else []
    return together(said, leaking=label_texts(classes, known.senses, wordnet), unknown=unknown)


def names_colour(concept: str, wordnet: WordNet | None) -> bool:
    """Whether a concept names a colour other than black, white and shades of grey, as no grey photo shows."""
    words = set(words_of(concept)) - GREYS
    coloured = words & COLOURED or words & COLOUR_NAMES
    return bool(coloured) or (wordnet is not None and any(look(word, wordnet) == "colour" for word in words))


def _proposal(name: str, feature: Feature) -> Proposal:
    return Proposal(feature.text, (Origin(name, "wordnet", feature.kind, feature.sentence),))


def label_texts(classes: Sequence[str], senses: Mapping[str, Synset], wordnet: WordNet | None = None) -> set[str]:
    """Texts that give a label away: the class names as words, and the synonyms of those that are names in full. With
    `wordnet`, a synonym counts only where it means that first: a wheel is a bicycle to few."""
    texts = {plain_name(name) for name in classes} | {name.casefold() for name in classes}
    for name, sense in senses.items():
        synonyms = {lemma.casefold() for lemma in sense.lemmas}
        if spellings(tuple(words_of(plain_name(name)))) & {" ".join(words_of(synonym)) for synonym in synonyms}:
            texts |= {text for text in synonyms if wordnet is None or sense in wordnet.senses(text, sense.pos)[:1]}
    return texts - {""}
