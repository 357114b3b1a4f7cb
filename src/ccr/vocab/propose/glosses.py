"""What a definition says that a photo can show: "yellow fruit with soft flesh" says "yellow" and "soft flesh"."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ccr.vocab.propose.wordnet import ANIMAL, BODY, FOOD, OBJECT, PLANT, SHAPE, SUBSTANCE, Synset, WordNet


class Phrase(NamedTuple):
    """Something to see, and what it is: colour, shape, look, part, surroundings, material."""

    text: str
    kind: str


COLOURS = {"chromatic", "achromatic"}
#: Heads of WordNet's clusters of adjectives whose members describe looks.
LOOKS = {
    *("patterned", "rough", "smooth", "hairy", "hairless", "rounded", "angular", "long", "short", "large", "small"),
    *("thick", "thin", "wide", "narrow", "tall", "low", "crooked", "straight", "curved", "pointed", "blunt", "round"),
    *("bright", "dull", "soft", "wrinkled", "unwrinkled", "glossy", "spiny", "prickly", "woody", "leafy"),
    *("opaque", "transparent", "fat", "lean", "big", "little", "broad", "square", "flat", "spotted"),
    *("colorful", "light-colored", "dark", "light", "dense", "furry", "crested", "winged", "horned", "bearded"),
    *("coarse", "petalous", "double", "compound", "erect", "hollow", "solid", "shapely", "wet", "dry", "metallic"),
}
#: Words that begin something that is not there, or not in the picture: what follows is left out up to a comma.
ELSEWHERE = {
    *("no", "not", "without", "lacking", "unlike", "except", "native", "used", "resembling", "distinguished", "from"),
    *("formerly", "chiefly", "sometimes", "especially", "similar", "related", "but", "than", "said", "called", "named"),
    *(
        "cultivated",
        "grown",
        "bred",
        "feeds",
        "feeding",
        "eating",
        "yielding",
        "producing",
        "between",
        "for",
        "ability",
    ),
    *("whose", "where", "when", "if", "as", "like", "adapted", "by", "before", "after", "during", "reared", "trained"),
    *("caused", "causing", "resulting", "derived", "obtained", "until", "while", "because", "through", "into", "etc"),
}
#: Nouns that name nothing in particular, or only the whole.
EMPTY = {
    *("any", "kind", "sort", "genus", "family", "species", "variety", "member", "form", "part", "type", "group", "use"),
    *("source", "number", "body", "thing", "object", "order", "world", "substance", "material", "structure", "device"),
    *("matter", "product", "male", "female", "adult", "young", "one", "several", "various", "many", "two", "three"),
    *("four", "a", "an", "the", "in", "on", "at", "of", "with", "and", "or", "having", "being", "that", "is", "are"),
    *(
        "it",
        "its",
        "large",
        "small",
        "side",
        "end",
        "top",
        "bottom",
        "back",
        "man",
        "person",
        "people",
        "unit",
        "breed",
    ),
    *("common", "usually", "often", "very", "more", "less", "most", "other", "some", "both", "all", "each", "half"),
    *("who", "has", "have", "was", "be", "can", "may", "piece", "pair", "set", "place", "point", "line", "way", "so"),
    *("vertebrate", "animal", "organism", "plant", "mammal", "head", "area", "section", "edge", "base", "old", "new"),
    *("region", "build", "drop", "vegetable", "food", "nut", "ground", "shape", "surface", "tissue", "central"),
    *(
        "mixture",
        "ingredient",
        "vegetation",
        "location",
        "equipment",
        "growth",
        "mass",
        "element",
        "e",
        "g",
        "exposure",
    ),
    *(
        "house",
        "flavoring",
        "seasoning",
        "pan",
        "flesh",
        "pulp",
        "juice",
        "vine",
        "condition",
        "disease",
        "process",
        "state",
        "strip",
        "strand",
    ),
}
#: Spared by the rule above when an adjective stands before them: "red head" says something, "head" alone little.
WITH_ADJECTIVE = {"head", "back", "body", "side", "top", "edge", "base", "animal", "plant"}
#: What a photo does not show of a body or a machine, with everything of its kind.
HIDDEN = {
    *("internal organ", "bone", "skeletal structure", "muscle", "gland", "nerve", "cavity", "blood vessel", "ovary"),
    *("mycelium", "hymenium", "volva", "frame", "chassis", "floorboard", "spar", "running board", "tail fin"),
    *("sweetening", "capacitor", "resistor"),
    *("bodily fluid", "liquid body substance", "cell", "joint", "ovule", "brain", "cranium", "skull"),
    *("system", "engine", "gear", "pedal", "control", "measuring instrument", "neural structure", "nervous system"),
    *("alimentary canal", "sac", "membrane", "brake system", "fuel system", "taxonomic group", "waste", "fluid", "gas"),
    *("compound", "macromolecule", "seed plant", "air", "stabilizer", "accessory", "tissue layer", "spinal column"),
    *(
        "electrical system",
        "cooling system",
        "drive line",
        "gearshift",
        "restraint",
        "apparatus",
        "cargo",
        "serving",
        "horsemeat",
    ),
}
#: Adjectives in those clusters that say nothing of the looks of a thing.
NOT_LOOKS = {
    *(
        "intelligent",
        "distributed",
        "handsome",
        "perennial",
        "loose",
        "hard",
        "firm",
        "watery",
        "far",
        "heavy",
        "durable",
    ),
    *("avocado",),
}
#: Nouns whose adjectives are not those of what they are full of: "a large group of small songbirds".
MANY = {"group", "number", "family", "genus", "variety", "species", "order", "breed", "kind", "sort", "type", "form"}
#: Words before a verb.
BEFORE_VERBS = {"that", "which", "can", "may", "does", "to"}
#: Words after which a noun phrase is over.
_FUNCTION = {",", "and", "or", "of", "with", "in", "on", "at", "having", "that", "for", "from", "to", "by", "which"}
#: Genera that say less than what one sees of them.
_SHOWN_AS = {"solid": "surface"}
_SHADES = {"bright", "dark", "pale", "light", "deep", "dull"}
KINDS = {OBJECT: "surroundings", SUBSTANCE: "material", SHAPE: "shape", FOOD: "part"}


def phrases(definition: str, wordnet: WordNet) -> list[Phrase]:
    """What can be seen, in the order in which the definition says it."""
    found: dict[str, Phrase] = {}
    plain = re.sub(r"\([^)]*\)", " ", definition).split(":")[0]  # after a colon: kinds of it
    for number, clause in enumerate(plain.split(";")):
        for phrase in _Clause(wordnet, first=number == 0).phrases(re.findall(r"[\w'-]+|,", clause)):
            found.setdefault(phrase.text, phrase)
    return list(found.values())


def compound(words: Sequence[str], wordnet: WordNet) -> Phrase | None:
    """ "red wing" for "red-winged" and "red winged", "crescent shape" for "crescent-shaped"."""
    if len(words) != 2 or not words[1].endswith("ed"):
        return None
    stem = words[1][:-2]
    if stem in ("shap", "color", "colour"):
        kind = "shape" if stem == "shap" else "colour"
        return Phrase(f"{words[0]} {kind}", kind)
    forms = (stem, f"{stem}e", f"{stem[:-1]}y" if stem.endswith("i") else stem, stem[:-1])
    # Nobody is called yellow-billed or red-throated for what is not seen, whatever else a bill and a throat are.
    worn = look(words[0], wordnet) == "colour"
    known = (form for form in forms if len(form) > 2 and (seen(form, wordnet) or (worn and _of_animals(form, wordnet))))
    noun = next(known, None)
    if noun is None or not (wordnet.is_adjective(words[0]) or wordnet.base(words[0])):
        return None
    return Phrase(f"{words[0]} {noun}", "part")


def look(word: str, wordnet: WordNet) -> str | None:
    """ "colour" or "look" for an adjective that a photo can show, judged by its first two senses."""
    if word in ("black", "white"):  # which are no members of the cluster of colours
        return "colour"
    for sense in wordnet.senses(word, "a")[:2] if word not in NOT_LOOKS else ():
        heads = {lemma for head in (sense, *wordnet.pointed(sense, "&")) for lemma in head.lemmas}
        if heads & COLOURS:
            return "colour"
        if heads & LOOKS:
            return "look"
    return None


def seen(noun: str, wordnet: WordNet) -> Synset | None:
    """The sense in which a photo can show a noun: its first one, or a part of a body or a plant."""
    senses = wordnet.senses(noun)
    usual = [sense for sense in senses[:1] if sense.visible] or [s for s in senses[:4] if s.file in (BODY, PLANT)]
    return usual[0] if usual and not hidden(usual[0], wordnet) else None


def _of_animals(noun: str, wordnet: WordNet) -> bool:
    return any(sense.file in (ANIMAL, BODY) for sense in wordnet.senses(noun))


def hidden(sense: Synset, wordnet: WordNet) -> bool:
    """Whether a photo usually does not show it: a gland, a gear."""
    return any(lemma in HIDDEN for kind in (sense, *wordnet.above(sense)) for lemma in kind.lemmas)


class _Clause:
    """One clause read from left to right: adjectives wait for their noun. The first noun of the first clause is the
    genus: what is said of it is said of the whole. Later clauses wander off, so that only what they describe counts."""

    def __init__(self, wordnet: WordNet, *, first: bool) -> None:
        self._wordnet = wordnet
        self._first = self._genus = first
        self._waiting: list[Phrase] = []

    def phrases(self, words: Sequence[str]) -> Iterator[Phrase]:
        skipping, at = False, 0
        while at < len(words):
            word, following = words[at].lower(), words[at + 1].lower() if at + 1 < len(words) else ","
            before = words[at - 1].lower() if at else ""
            pair = f"{word} {following}"
            at += 1
            verb = word == "to" and not self._wordnet.is_adjective(following) and self._wordnet.is_verb(following)
            if skipping or verb or word in ELSEWHERE or (word == "any" and at > 2):  # "fruit of any of several trees"
                skipping = word != ","
                self._waiting = self._waiting if word == "," else []
            elif "-" in word and (said := compound(word.split("-"), self._wordnet)):
                yield said
            elif following not in _FUNCTION and words[at].islower() and self._wordnet.base(pair):
                yield from self._noun(pair)
                at += 1
            elif following == "to" and look(word, self._wordnet) == "colour":
                continue  # "yellow to orange": nearer to the second
            elif word in MANY:
                self._waiting = []
            elif (kind := look(word, self._wordnet)) and not (self._waiting and self._ends(word, following)):
                self._wait(word, kind)
            elif word.isalpha() and words[at - 1].islower() and word not in EMPTY - WITH_ADJECTIVE:
                modifies = self._wordnet.is_adjective(word) and following not in _FUNCTION
                if not modifies and before not in BEFORE_VERBS:
                    yield from self._noun(word)

    def _wait(self, word: str, kind: str) -> None:
        if kind == "colour" and self._waiting and self._waiting[-1].text in _SHADES:
            word = f"{self._waiting.pop().text} {word}"
        self._waiting.append(Phrase(word, kind))

    def _ends(self, word: str, following: str) -> bool:
        """Whether a word that is a noun as well stands where a noun must: "with thick down and long hair"."""
        return following in _FUNCTION - {"and", "or", "to", ","} and self._wordnet.base(word) is not None

    def _noun(self, word: str) -> Iterator[Phrase]:
        """What is said with a noun: each waiting adjective with it, or the noun alone."""
        base = self._wordnet.base(word)
        if base is None:
            return
        waiting, self._waiting = self._waiting, []
        genus, self._genus = self._genus, False
        sense, noun = seen(base, self._wordnet), base.replace("_", " ")
        noun = _SHOWN_AS.get(noun, noun)
        last = noun.split()[-1]
        named = (
            sense is not None
            and (last == noun or last not in EMPTY - WITH_ADJECTIVE)
            and (noun not in EMPTY or bool(waiting and noun in WITH_ADJECTIVE | {"surface"}))
        )
        part = "part" if sense is None else KINDS.get(sense.file, "part")
        for text, kind in waiting:
            if kind == "colour" and (genus or not named):
                yield Phrase(text, kind)
            elif named:
                yield Phrase(f"{text} {noun}", "look" if genus else part)
        if named and not waiting and self._first and not genus:
            yield Phrase(noun, part)
