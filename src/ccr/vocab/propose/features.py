"""What WordNet knows about a class that a photo can show: parts, kinds, and what glosses say."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from ccr.vocab.propose.glosses import Phrase, compound, hidden, look, phrases
from ccr.vocab.propose.senses import Named, plain_name
from ccr.vocab.propose.wordnet import ANIMAL, ARTIFACT, ATTRIBUTE, FOOD, PLANT, STATE, Synset, WordNet

#: Kinds that say too little to be seen; what lies above them is left out too.
GENERAL = {
    *("organism", "living thing", "whole", "object", "artifact", "instrumentality", "matter", "physical entity"),
    *("substance", "solid", "natural object", "causal agent", "plant part", "plant structure", "device", "chordate"),
    *("covering", "conveyance", "structure", "vascular plant", "equipment", "natural depression", "material", "state"),
    *("attribute", "concave shape", "location", "public transport"),
}
#: Kinds that no photo shows, between some that it does.
UNSEEN_KINDS = {
    *("self-propelled vehicle", "heavier-than-air craft", "wheeled vehicle", "craft", "produce", "domestic animal"),
    *("even-toed ungulate", "odd-toed ungulate", "placental", "vertebrate", "carnivore", "passerine", "oscine"),
    *("angiosperm", "spermatophyte", "asterid dicot genus", "food", "foodstuff", "nutriment", "commodity"),
    *("implement", "utensil", "mammal", "canine", "feline", "ungulate", "area", "fragment", "design", "waste"),
    *("restorative", "course", "passage", "passageway", "way", "room", "vessel", "outbuilding", "cutlery", "condiment"),
}
#: Words of the lexicographer, not of people who look: what contains one is left out.
LEARNED = {
    *("genus", "part", "group", "covering", "appendage", "feature", "inhabitant", "taxon", "family", "order", "member"),
    *("body", "female", "male", "unit", "person", "structure", "layer", "substance", "system", "dactyl", "digit"),
    *("organ", "forelimb", "compartment"),
}
#: How many kinds above a class its parts and its glosses are still taken from, by lexicographer file. Animals of a kind
#: are built alike; what a building may have is not what a garage has.
LEVELS = {ANIMAL: (4, 2), PLANT: (4, 2), FOOD: (0, 1), ARTIFACT: (1, 1)}
#: How far above a class its kinds are still named.
KIND_LEVELS_ABOVE = 3
#: How many kinds below a class must say the same for it to be said of the class, how far down, and how much is taken.
AGREEING, KIND_LEVELS, MOST_AGREED = 2, 4, 12


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


def name_features(name: str, wordnet: WordNet) -> Iterator[Feature]:
    """ "red wing" of "Red winged Blackbird", "gray" of "Gray Catbird": whether or not WordNet knows the whole."""
    words = plain_name(name).split()
    sentence = f"the name {name}"
    for word, following in pairwise([*words, ""]):
        if phrase := compound((word, following), wordnet):
            yield Feature(phrase.text, phrase.kind, sentence)
        elif len(words) > 1 and look(word, wordnet) == "colour" and not following.endswith("ed"):
            yield Feature(word, "colour", sentence)


def _all_features(named: Named, sense: Synset, wordnet: WordNet) -> Iterator[Feature]:
    above = list(_kinds(sense, wordnet))
    levels, gloss_levels = LEVELS.get(sense.file, (0, 0))
    kinds = [kind for kind in above if not UNSEEN_KINDS & set(kind.lemmas)]
    if sense.file not in (ANIMAL, PLANT):  # a garage is an outbuilding, and that no common building
        levels = sum(kind in kinds for kind in above[:levels])
    glosses = " ".join(kind.definition for kind in (sense, *kinds[:gloss_levels]))
    missing = {word[:-4] for word in glosses.replace(",", " ").split() if word.endswith("less")}
    described: set[str] = set()
    yield from name_features(named.name, wordnet)
    for level, kind in enumerate((sense, *kinds[:levels])):
        if level <= gloss_levels:
            said = _said(kind, wordnet, inherited=level > 0)
            if sense.file in (ATTRIBUTE, STATE):  # of a blemish or a disease: how it looks, not where it is found
                said = [phrase for phrase in said if phrase.kind in ("look", "colour")]
            for phrase in said:
                # A pug has a flat muzzle, whatever dogs usually have.
                if phrase.kind != "part" or phrase.text.split()[-1] not in described:
                    yield Feature(phrase.text, phrase.kind, f"{kind.lemmas[0]}: {kind.definition}")
            described |= {phrase.text.split()[-1] for phrase in said if phrase.kind == "part"}
        for text in _parts(kind, wordnet, inherited=level > 0):
            if text not in missing:
                yield Feature(text, "part", f"part of {kind.lemmas[0]}")
    if named.complete and sense.file in (ANIMAL, PLANT):
        yield from _of_its_kinds(sense, wordnet)
    elif not named.complete and sense.file in LEVELS:
        yield Feature(named.head, "kind", f"{named.name} is a kind of {named.head}")
    for kind in kinds[:KIND_LEVELS_ABOVE] if sense.file in LEVELS else ():
        called = _usual_name(kind, wordnet)
        # "hunting dog", "eating apple" and "public transport" say what something is for.
        if called and " " not in called and wordnet.is_familiar(called):
            yield Feature(called, "kind", f"{sense.lemmas[0]} is a kind of {called}")


def _said(kind: Synset, wordnet: WordNet, *, inherited: bool) -> list[Phrase]:
    """What a gloss says. Where that of a kind above the class names several colours ("red or yellow or green skin"),
    nobody knows which of them the class has."""
    said = phrases(kind.definition, wordnet)
    coloured = [phrase for phrase in said if any(look(word, wordnet) == "colour" for word in phrase.text.split())]
    return [phrase for phrase in said if phrase not in coloured] if inherited and len(coloured) > 1 else said


def _of_its_kinds(sense: Synset, wordnet: WordNet) -> Iterator[Feature]:
    """What several kinds of a class have by their glosses: birds have a long tail, or a hooked beak. What is said of a
    kind as a whole is left out: it would be a "small terrier" for dogs."""
    said: dict[str, list[str]] = {}
    kinds_of: dict[str, str] = {}
    for kind in _below(sense, wordnet):
        for phrase in phrases(kind.definition, wordnet):
            if phrase.kind not in ("look", "colour"):
                said.setdefault(phrase.text, []).append(kind.lemmas[0])
                kinds_of.setdefault(phrase.text, phrase.kind)
    for text in sorted(said, key=lambda text: -len(said[text]))[:MOST_AGREED]:
        if len(said[text]) >= AGREEING:
            named = ", ".join(said[text][:3])
            yield Feature(
                text, kinds_of[text], f"said of {len(said[text])} kinds of {sense.lemmas[0]}, such as {named}"
            )


def _below(sense: Synset, wordnet: WordNet) -> list[Synset]:
    """The kinds of a class, and the kinds of those; each once."""
    level, found = [sense], dict[int, Synset]()
    for _ in range(KIND_LEVELS):
        level = [kind for above in level for kind in wordnet.pointed(above, "~") if kind.place not in found]
        found |= {kind.place: kind for kind in level}
    return list(found.values())


def _parts(kind: Synset, wordnet: WordNet, *, inherited: bool) -> Iterator[str]:
    """Parts that a photo can show and that people have words for; what a kind above may be made of is left out."""
    for part in wordnet.pointed(kind, "%p", *(() if inherited else ("%s",))):
        text = _usual_name(part, wordnet)
        if text and part.visible and not hidden(part, wordnet) and wordnet.is_familiar(text):
            yield text


def _kinds(sense: Synset, wordnet: WordNet) -> Iterator[Synset]:
    for kind in wordnet.above(sense):
        if GENERAL & set(kind.lemmas):
            return
        yield kind


def _usual_name(sense: Synset, wordnet: WordNet) -> str | None:
    """A word by which people would understand this sense: one that means it first or second."""
    for lemma in sense.lemmas:
        if lemma.islower() and sense.place in [other.place for other in wordnet.senses(lemma)[:2]]:
            return lemma
    return None
