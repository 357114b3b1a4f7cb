"""Visual features of a class from WordNet: parts, kinds, and phrases in its definitions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from ccr.vocab.senses import Named, plain_name
from ccr.vocab.wordnet import (
    ANIMAL,
    ARTIFACT,
    ATTRIBUTE,
    BODY,
    FOOD,
    OBJECT,
    PLANT,
    SHAPE,
    STATE,
    SUBSTANCE,
    Synset,
    WordNet,
    spellings,
    words_of,
)


def listed(text: str) -> frozenset[str]:
    """The words and phrases of a text that has commas between them."""
    return frozenset(" ".join(part.split()) for part in text.split(","))


class Phrase(NamedTuple):
    """Something to see, and what it is: colour, shape, look, part, surroundings, material."""

    text: str
    kind: str


COLOURS = {"chromatic", "achromatic"}
#: Heads of WordNet's clusters of adjectives whose members describe looks.
LOOKS = listed(
    """
    patterned, rough, smooth, hairy, hairless, rounded, angular, long, short, large, small, thick, thin, wide, narrow,
    tall, low, crooked, straight, curved, pointed, blunt, round, bright, dull, soft, wrinkled, unwrinkled, glossy,
    spiny, prickly, woody, leafy, opaque, transparent, fat, lean, big, little, broad, square, flat, spotted, colorful,
    light-colored, dark, light, dense, furry, crested, winged, horned, bearded, coarse, petalous, double, compound,
    erect, hollow, solid, shapely, wet, dry, metallic
    """
)
#: Words that begin something that is not there, or not in the picture: what follows is left out up to a comma.
ELSEWHERE = listed(
    """
    no, not, without, lacking, unlike, except, native, used, resembling, distinguished, from, formerly, chiefly,
    sometimes, especially, similar, related, but, than, said, called, named, cultivated, grown, bred, feeds, feeding,
    eating, yielding, producing, between, for, ability, whose, where, when, if, as, like, adapted, by, before, after,
    during, reared, trained, caused, causing, resulting, derived, obtained, until, while, because, through, into, etc,
    degenerate, vestigial, rudimentary, modified, nests, nesting, inhabiting, frequenting, under, over, beneath, behind,
    inside, within, odor, smell, taste, flavor, scent, tone, up, male, female, males, females
    """
)
#: Verbs whose object is to be seen of their subject: "a garment that has sleeves", not "that covers the body".
HAVING = listed("has, have, is, are, bears, bear, contains, contain, consists, consist, includes, include, shows, show")
#: Words before which a word that may be a verb is one: "covers the body", "stands more".
_AFTER_VERBS = {"the", "a", "an", "its", "their", "more"}
#: Words of which a class has one.
ALTERNATIVES = r"[\w'-]+(?:,? or [\w'-]+)+"
#: Words before examples of a kind, of which the class is at most one.
EXAMPLES = {"including", "such"}
#: Nouns that name nothing in particular, or only the whole.
EMPTY = listed(
    """
    any, kind, sort, genus, family, species, variety, member, form, part, type, group, use, source, number, body, thing,
    object, order, world, substance, material, structure, device, matter, product, male, female, adult, young, one,
    several, various, many, two, three, four, a, an, the, in, on, at, of, with, and, or, having, being, that, is, are,
    it, its, large, small, side, end, top, bottom, back, man, person, people, unit, breed, common, usually, often, very,
    more, less, most, other, some, both, all, each, half, who, has, have, was, be, can, may, piece, pair, set, place,
    point, line, way, so, vertebrate, animal, organism, plant, mammal, head, area, section, edge, base, old, new,
    region, build, drop, vegetable, food, nut, ground, shape, surface, tissue, central, mixture, ingredient, vegetation,
    location, equipment, growth, mass, element, e, g, exposure, house, flavoring, seasoning, pan, flesh, pulp, juice,
    vine, condition, disease, process, state, strip, strand
    """
)
#: Spared by the rule above when an adjective stands before them: "red head" says something, "head" alone little.
WITH_ADJECTIVE = {"head", "back", "body", "side", "top", "edge", "base", "animal", "plant"}
#: Words by which a part is defined that only an opened or entered thing shows.
INDOORS = {"inside", "within", "inner", "interior"}
#: Parts of a body or a machine that a photo does not show, with everything of their kind.
HIDDEN = listed(
    """
    internal organ, bone, skeletal structure, muscle, gland, nerve, cavity, blood vessel, ovary, mycelium, hymenium,
    volva, frame, chassis, floorboard, spar, running board, tail fin, sweetening, capacitor, resistor, bodily fluid,
    liquid body substance, cell, joint, ovule, brain, cranium, skull, system, engine, gear, pedal, control, measuring
    instrument, neural structure, nervous system, alimentary canal, sac, membrane, brake system, fuel system, taxonomic
    group, waste, fluid, gas, compound, macromolecule, seed plant, air, stabilizer, accessory, tissue layer, plant
    tissue, spinal column, electrical system, cooling system, drive line, gearshift, restraint, apparatus, cargo,
    serving, horsemeat, beverage, ware, conductor, electrical device, root
    """
)
#: Adjectives in those clusters that say nothing of the looks of a thing.
NOT_LOOKS = listed(
    """
    intelligent, distributed, handsome, perennial, loose, hard, firm, watery, far, heavy, durable, avocado, mild,
    colored
    """
)
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
    """Phrases of a definition that a photo can show, in their order there."""
    by_text: dict[str, Phrase] = {}
    plain = re.sub(r"\([^)]*\)", " ", definition).split(":")[0]  # after a colon: kinds of it
    for number, clause in enumerate(plain.split(";")):
        for phrase in _Clause(wordnet, first=number == 0).phrases(re.findall(r"[\w'-]+|,", clause)):
            by_text.setdefault(phrase.text, phrase)
    return list(by_text.values())


def compound(words: Sequence[str], wordnet: WordNet) -> Phrase | None:
    """ "red wing" for "red-winged" and "red winged", "crescent shape" for "crescent-shaped"."""
    if len(words) != 2 or not words[1].endswith("ed"):
        return None
    stem = words[1][:-2]
    if stem in ("shap", "color", "colour"):
        kind = "shape" if stem == "shap" else "colour"
        return Phrase(f"{words[0]} {kind}", kind)
    forms = (stem, f"{stem}e", f"{stem[:-1]}y" if stem.endswith("i") else stem, stem[:-1])
    # A name such as yellow-billed or red-throated is given for what is seen, whatever else a bill and a throat are.
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
            if word in EXAMPLES:
                return
            to = word == "to" and not look(following, self._wordnet) and self._wordnet.is_verb(following)
            does = word in ("that", "which") and following not in HAVING and self._wordnet.is_verb_form(following)
            acts = following in _AFTER_VERBS and word.endswith("s") and word not in HAVING
            acts = acts and self._wordnet.is_verb_form(word)
            lies = following in ("in", "on", "at", "to") and self._wordnet.is_participle(word)  # "fried on a griddle"
            other = word == "or" and following in ("a", "an", "any") and self._first
            # "fruit of any of several trees"
            away = to or does or acts or lies or other or word in ELSEWHERE or (word == "any" and at > 2)
            if skipping or away:
                skipping = word != ","
                self._waiting = self._waiting if word == "," else []
            elif "-" in word and (joined := compound(word.split("-"), self._wordnet)):
                yield joined
            elif following not in _FUNCTION and words[at].islower() and self._wordnet.base(pair):
                at += 1
                yield from self._noun(pair, words[at].lower() if at < len(words) else ",")
            elif following == "to" and look(word, self._wordnet) == "colour":
                continue  # "yellow to orange": nearer to the second
            elif word in MANY:
                self._waiting = []
            elif word in ("with", "having"):  # "is round and hard with a narrow brim"
                yield from (phrase for phrase in self._waiting if phrase.kind == "colour")
                self._waiting = []
            elif (kind := look(word, self._wordnet)) and not (self._waiting and self._ends(word, following)):
                self._wait(word, kind)
            elif word.isalpha() and words[at - 1].islower() and word not in EMPTY - WITH_ADJECTIVE:
                modifies = self._wordnet.is_adjective(word) and following not in _FUNCTION
                hangs = word.endswith("ing") and following == "from"
                if not modifies and not hangs and before not in BEFORE_VERBS:
                    yield from self._noun(word, following)

    def _wait(self, word: str, kind: str) -> None:
        if kind == "colour" and self._waiting and self._waiting[-1].text in _SHADES:
            word = f"{self._waiting.pop().text} {word}"
        self._waiting.append(Phrase(word, kind))

    def _ends(self, word: str, following: str) -> bool:
        """Whether a word that is a noun as well stands where a noun must: "with thick down and long hair"."""
        return following in _FUNCTION - {"and", "or", "to", ","} and self._wordnet.base(word) is not None

    def _noun(self, word: str, following: str) -> Iterator[Phrase]:
        """Phrases made with a noun: each pending adjective with it, or the noun alone. Of several genera ("tree or
        shrub") a class is only one."""
        base = self._wordnet.base(word)
        joined = self._genus and following in ("or", "and")
        if base is None or (joined and self._wordnet.is_adjective(word)):  # "acid or granitic glass"
            return
        waiting, self._waiting = self._waiting, []
        genus, self._genus = self._genus, joined
        if joined:
            return
        sense, noun = seen(base, self._wordnet), base.replace("_", " ")
        modifies = following not in _FUNCTION and not following.endswith(("ed", "ing"))
        if sense and sense.file == SUBSTANCE and modifies and self._wordnet.base(following):
            self._waiting, self._genus = waiting, genus  # "soft leather shoe": the shoe is soft
            return
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


#: Kinds that say too little to be seen; what lies above them is left out too.
GENERAL = listed(
    """
    organism, living thing, whole, object, artifact, instrumentality, matter, physical entity, substance, solid, natural
    object, causal agent, plant part, plant structure, device, chordate, covering, conveyance, structure, vascular
    plant, equipment, natural depression, material, state, attribute, concave shape, location, public transport,
    invertebrate, arthropod, mollusk, echinoderm, coelenterate
    """
)
#: Kinds that no photo shows, between some that it does.
UNSEEN_KINDS = listed(
    """
    self-propelled vehicle, heavier-than-air craft, wheeled vehicle, craft, produce, domestic animal, even-toed
    ungulate, odd-toed ungulate, placental, vertebrate, carnivore, passerine, oscine, angiosperm, spermatophyte, asterid
    dicot genus, food, foodstuff, nutriment, commodity, implement, utensil, mammal, canine, feline, ungulate, area,
    fragment, design, waste, restorative, course, passage, passageway, way, room, vessel, outbuilding, cutlery,
    condiment, constraint, machinery
    """
)
#: Words of the lexicographer, not of people who look: what contains one is left out.
LEARNED = listed(
    """
    genus, part, group, covering, appendage, feature, inhabitant, taxon, family, order, member, body, female, male,
    unit, person, structure, layer, substance, system, dactyl, digit, organ, forelimb, compartment
    """
)
#: How many kinds above a class its parts and its glosses are still taken from, by lexicographer file. Animals of a kind
#: are built alike; what a building may have is not what a garage has.
LEVELS = {ANIMAL: (4, 2), PLANT: (4, 2), FOOD: (0, 1), ARTIFACT: (1, 1)}
#: How far above a class its kinds are still named.
KIND_LEVELS_ABOVE = 3
#: How many kinds below a class must say the same for it to be said of the class, which share of those that mention the
#: part must agree on its adjective, how far down, and how much is taken.
AGREEING, MOSTLY, KIND_LEVELS, MOST_AGREED = 3, 2 / 3, 4, 12
#: Of a kind with more kinds than this, a part is only said where so many of their definitions mention it: trees have
#: trunks, no stumps, and not every garment has a pocket.
MANY_KINDS, MENTIONED = 100, 3


class Feature(NamedTuple):
    """A concept proposed for a class: what kind of thing it is, and the sentence it comes from."""

    text: str
    kind: str
    sentence: str


def features(named: Named, sense: Synset, wordnet: WordNet, *, common: Sequence[Synset] = ()) -> Iterator[Feature]:
    """Visible features of a class: of its name, its sense, and the kinds that it belongs to. Kinds that all classes
    have in `common` are not named, and what they are as a whole is left out: it tells no two classes apart."""
    shared = {spelling for kind in common for lemma in kind.lemmas for spelling in spellings(tuple(words_of(lemma)))}
    wholes = {f"{kind.lemmas[0]}: {kind.definition}" for kind in common}
    for feature in _all_features(named, sense, wordnet):
        last = feature.text.split()[-1]
        if (
            feature.text not in LEARNED
            and (last not in LEARNED or feature.kind == "look")
            and "iform" not in feature.text
            and feature.text not in shared
            and not (feature.kind == "look" and feature.sentence in wholes)
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
            glossed = _said(kind, wordnet, inherited=level > 0)
            if sense.file in (ATTRIBUTE, STATE):  # of a blemish or a disease: how it looks, not where it is found
                glossed = [phrase for phrase in glossed if phrase.kind in ("look", "colour")]
            for phrase in glossed:
                # A pug has a flat muzzle, whatever dogs usually have.
                if phrase.kind != "part" or phrase.text.split()[-1] not in described:
                    yield Feature(phrase.text, phrase.kind, f"{kind.lemmas[0]}: {kind.definition}")
            described |= {phrase.text.split()[-1] for phrase in glossed if phrase.kind == "part"}
        for text in _parts(kind, wordnet, inherited=level > 0):
            if text not in missing:
                yield Feature(text, "part", f"part of {kind.lemmas[0]}")
    if named.complete and sense.file in (ANIMAL, PLANT):
        yield from _of_its_kinds(sense, wordnet)
    elif not named.complete and sense.file in LEVELS:
        yield Feature(named.head, "kind", f"{named.name} is a kind of {named.head}")
    for kind in kinds[:KIND_LEVELS_ABOVE] if sense.file in LEVELS else ():
        # "hunting dog", "eating apple" and "public transport" say what something is for.
        called = _usual_name(kind, wordnet)
        if called and " " not in called and wordnet.is_familiar(called) and not _misleads(called, kind, wordnet):
            yield Feature(called, "kind", f"{sense.lemmas[0]} is a kind of {called}")


def _said(kind: Synset, wordnet: WordNet, *, inherited: bool) -> list[Phrase]:
    """Phrases of a gloss. If the gloss is `inherited` from a hypernym, alternatives ("of leather or plastic") and
    several colours are dropped: it does not say which of them the class has."""
    glossed = phrases(re.sub(ALTERNATIVES, "item", kind.definition) if inherited else kind.definition, wordnet)
    coloured = [phrase for phrase in glossed if any(look(word, wordnet) == "colour" for word in phrase.text.split())]
    return [phrase for phrase in glossed if phrase not in coloured] if inherited and len(coloured) > 1 else glossed


def _of_its_kinds(sense: Synset, wordnet: WordNet) -> Iterator[Feature]:
    """Parts that the glosses of several hyponyms of a class mention: oaks have acorns. An adjective is only said where
    most of those agree that mention the part: pines have needles, some long ones and some short ones. Phrases about a
    kind as a whole are left out (a "small terrier" for dogs), and so are the surroundings of a few kinds."""
    by_kind: dict[str, list[str]] = {}
    part_of: dict[str, str] = {}
    for kind in _below(sense, wordnet):
        texts = [phrase.text for phrase in phrases(kind.definition, wordnet) if phrase.kind == "part"]
        parts = {text: _bare(text, wordnet) for text in texts}
        part_of |= parts
        for text in {*parts, *parts.values()}:
            by_kind.setdefault(text, []).append(kind.lemmas[0])
    for text in sorted(by_kind, key=lambda text: (-len(by_kind[text]), text))[:MOST_AGREED]:
        if len(by_kind[text]) >= max(AGREEING, MOSTLY * len(by_kind[part_of.get(text, text)])):
            named = ", ".join(by_kind[text][:3])
            sentence = f"said of {len(by_kind[text])} kinds of {sense.lemmas[0]}, such as {named}"
            yield Feature(text, "part", sentence)


def _bare(text: str, wordnet: WordNet) -> str:
    """A part without its adjective: "needle" of "long needle"."""
    first, _, rest = text.partition(" ")
    return rest if rest and wordnet.is_adjective(first) else text


def _below(sense: Synset, wordnet: WordNet) -> list[Synset]:
    """The kinds of a class, and the kinds of those; each once."""
    level, kinds = [sense], dict[int, Synset]()
    for _ in range(KIND_LEVELS):
        level = [kind for above in level for kind in wordnet.pointed(above, "~") if kind.place not in kinds]
        kinds |= {kind.place: kind for kind in level}
    return list(kinds.values())


def _parts(kind: Synset, wordnet: WordNet, *, inherited: bool) -> Iterator[str]:
    """Parts that a photo can show and that people have words for. What a kind above may be made of is left out, and
    what a substance is made of: the silicon in quartz cannot be seen."""
    made_of = () if inherited or kind.file == SUBSTANCE else ("%s",)
    for part in wordnet.pointed(kind, "%p", *made_of):
        text = _usual_name(part, wordnet)
        if (
            text
            and part.visible
            and (part.file != FOOD or kind.file == FOOD)  # meat is made of a bird
            and text not in kind.lemmas
            and not hidden(part, wordnet)
            and wordnet.is_familiar(text)
            and not INDOORS & set(words_of(part.definition))
            and _usual_part(part, kind, wordnet)
        ):
            yield text


def _usual_part(part: Synset, kind: Synset, wordnet: WordNet) -> bool:
    """Whether kinds of a thing usually have a part, to judge by how many of their definitions mention it."""
    words = _words_of_kinds(kind.place, wordnet) if kind.pos == "n" else []
    names = {spelling for lemma in part.lemmas for spelling in spellings(tuple(words_of(lemma)))}
    return len(words) <= MANY_KINDS or sum(not names.isdisjoint(known) for known in words) >= MENTIONED


@lru_cache(maxsize=10_000)
def _words_of_kinds(place: int, wordnet: WordNet) -> list[set[str]]:
    """The words of the definition of each noun below one, as they stand and in the singular."""
    kinds = _below(wordnet.synset("n", place), wordnet)
    return [{form for word in words_of(kind.definition) for form in spellings((word,))} for kind in kinds]


def _kinds(sense: Synset, wordnet: WordNet) -> Iterator[Synset]:
    for kind in wordnet.above(sense):
        if GENERAL & set(kind.lemmas):
            return
        yield kind


def _misleads(word: str, sense: Synset, wordnet: WordNet) -> bool:
    """Whether a word means something else of the same sort first: a freight car is no car, an American oriole none."""
    first = wordnet.senses(word)[0]
    return first.place != sense.place and first.file == sense.file


def _usual_name(sense: Synset, wordnet: WordNet) -> str | None:
    """A word by which people would understand this sense: one that means it first or second."""
    for lemma in sense.lemmas:
        if lemma.islower() and sense.place in [other.place for other in wordnet.senses(lemma)[:2]]:
            return lemma
    return None
