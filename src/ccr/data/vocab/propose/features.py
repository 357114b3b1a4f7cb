"""What WordNet knows about a class that a photo can show: parts, kinds, and what glosses say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ccr.data.vocab.propose.glosses import compound, hidden, look, phrases
from ccr.data.vocab.propose.senses import Named
from ccr.data.vocab.propose.wordnet import Synset, WordNet

#: Kinds that say too little to be seen; what lies above them is left out too.
GENERAL = {
    *("organism", "living thing", "whole", "object", "artifact", "instrumentality", "matter", "physical entity"),
    *("substance", "solid", "natural object", "causal agent", "plant part", "plant structure", "device", "chordate"),
    *("covering", "conveyance", "structure", "vascular plant", "equipment", "natural depression"),
}
#: Kinds that no photo shows, between some that it does.
UNSEEN_KINDS = {
    *("self-propelled vehicle", "heavier-than-air craft", "wheeled vehicle", "craft", "produce", "domestic animal"),
    *("even-toed ungulate", "odd-toed ungulate", "placental", "vertebrate", "carnivore", "passerine", "oscine"),
    *("angiosperm", "spermatophyte", "asterid dicot genus", "food", "foodstuff", "nutriment", "commodity"),
}
#: Words of the lexicographer, not of people who look: what contains one is left out.
LEARNED = {
    *("genus", "part", "group", "covering", "appendage", "feature", "inhabitant", "taxon", "family", "order", "member"),
    *(
        "body",
        "female",
        "male",
        "unit",
        "person",
        "structure",
        "layer",
        "substance",
        "system",
        "dactyl",
        "digit",
        "organ",
    ),
}
#: How many kinds above a class its own parts and glosses are still taken from.
LEVELS = 4
#: More parts than this are a specialist's list: a ship's has ratlines and davits.
MANY_PARTS = 12
GLOSS_LEVELS = 2


class Feature(NamedTuple):
    """A concept proposed for a class: what kind of thing it is, and the sentence it comes from."""

    text: str
    kind: str
    sentence: str


def features(named: Named, sense: Synset, wordnet: WordNet) -> Iterator[Feature]:
    """Everything to see of a class: of its name, its sense, and the kinds that it belongs to."""
    for feature in _all_features(named, sense, wordnet):
        last = feature.text.split()[-1]
        if (
            feature.text not in LEARNED
            and (last not in LEARNED or feature.kind == "look")
            and "iform" not in feature.text
        ):
            yield feature


def _all_features(named: Named, sense: Synset, wordnet: WordNet) -> Iterator[Feature]:
    kinds = list(_kinds(sense, wordnet))
    glosses = " ".join(kind.definition for kind in (sense, *kinds[:GLOSS_LEVELS]))
    missing = {word[:-4] for word in glosses.replace(",", " ").split() if word.endswith("less")}
    yield from _of_the_name(named, wordnet)
    for level, kind in enumerate((sense, *kinds[:LEVELS])):
        if level <= GLOSS_LEVELS:
            for phrase in phrases(kind.definition, wordnet):
                yield Feature(phrase.text, phrase.kind, f"{kind.lemmas[0]}: {kind.definition}")
        for text in _parts(kind, wordnet):
            if text not in missing:
                yield Feature(text, "part", f"part of {kind.lemmas[0]}")
    if not named.complete:
        yield Feature(named.head, "kind", f"{named.name} is a kind of {named.head}")
    for kind in kinds[:LEVELS]:
        called = _usual_name(kind, wordnet)
        if called and not UNSEEN_KINDS & set(kind.lemmas):
            yield Feature(called, "kind", f"{sense.lemmas[0]} is a kind of {called}")


def _parts(kind: Synset, wordnet: WordNet) -> Iterator[str]:
    """Parts that a photo can show; where there are very many, those that people have words for."""
    parts = wordnet.pointed(kind, "%p", "%s")
    for part in parts:
        text = _usual_name(part, wordnet)
        seen = part.visible and not hidden(part, wordnet)
        if text and seen and (len(parts) <= MANY_PARTS or wordnet.is_common(text)):
            yield text


def _kinds(sense: Synset, wordnet: WordNet) -> Iterator[Synset]:
    for kind in wordnet.above(sense):
        if GENERAL & set(kind.lemmas):
            return
        yield kind


def _of_the_name(named: Named, wordnet: WordNet) -> Iterator[Feature]:
    """ "red wing" of "Red winged Blackbird", "gray" of "Gray Catbird": whether or not WordNet knows the whole."""
    words = [*named.modifiers, *named.head.split()]
    sentence = f"the name {named.name}"
    for at, word in enumerate(words[:-1]):
        following = words[at + 1]
        if phrase := compound((word, following), wordnet):
            yield Feature(phrase.text, phrase.kind, sentence)
        elif look(word, wordnet) == "colour" and not following.endswith("ed"):
            yield Feature(word, "colour", sentence)


def _usual_name(sense: Synset, wordnet: WordNet) -> str | None:
    """A word by which people would understand this sense: one that means it first or second."""
    for lemma in sense.lemmas:
        if lemma.islower() and sense.place in [other.place for other in wordnet.senses(lemma)[:2]]:
            return lemma
    return None
