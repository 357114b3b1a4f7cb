"""Proposed concepts with their origins, put together, cleared of class names and written beside their list.

They come from WordNet, a language model, and the generic list by domain; what they say of classes is also a first table
of knowledge.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ccr.errors import CCRError, FormatError
from ccr.io.files import read_regular, write_json, write_text
from ccr.io.remote import AnyPath
from ccr.knowledge import Answer, Knowledge
from ccr.utils.processes import OnProgress, no_progress
from ccr.vocab.domains import fitting_domains, read_domains
from ccr.vocab.features import Feature, features, look, name_features
from ccr.vocab.lists import LONGEST_CONCEPT, concept_line
from ccr.vocab.senses import ClassContext, EmbedTexts, choose_senses, look_up, plain_name
from ccr.vocab.wordnet import ARTICLES, Synset, WordNet, concept_key, spellings, words_of

#: The weight of a concept for a class of which it is not said to be true, only possible.
FITTING = 0.5
#: Classes of one kind among which its name says nothing.
LEAST_SHARING = 3
#: Things that are colours as well.
COLOUR_NAMES = {"orange", "violet", "rose", "olive", "lilac", "lavender", "peach", "salmon", "cherry", "lime", "lemon"}


@dataclass(frozen=True)
class Origin:
    """Origin of a concept: the class it was proposed for (None: any), the source, what kind of thing it is, and
    the sentence that says so."""

    class_name: str | None
    source: str
    kind: str
    sentence: str


@dataclass(frozen=True)
class Proposal:
    """A concept and everything that speaks for it."""

    concept: str
    origins: tuple[Origin, ...]

    @property
    def tied(self) -> bool:
        """Whether anything ties it to a class or a person wrote it; if not, it only fits the domain of the classes."""
        return any(origin.class_name is not None or origin.source == "hand" for origin in self.origins)


@dataclass(frozen=True)
class Proposals:
    """Proposed concepts, those left out because they leak the label, and the classes that no source knows."""

    items: tuple[Proposal, ...]
    leaks: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        return [item.concept for item in self.items]

    @property
    def share_tied(self) -> float:
        """The share of concepts that are tied to a class; the others are generic. 0.0 of no concepts."""
        return sum(item.tied for item in self.items) / max(len(self.items), 1)

    def reasons(self, classes: Sequence[str]) -> np.ndarray:
        """Strength (n, C), from 0 to 1, of the reason for which each concept may be said of each class: 1 where a
        source ties it to the class or a person wrote it, `FITTING` where it only fits the domain."""
        column = {name: number for number, name in enumerate(classes)}
        reasons = np.full((len(self.items), len(classes)), FITTING)
        for row, item in enumerate(self.items):
            for origin in item.origins:
                if origin.source == "hand":
                    reasons[row] = 1.0
                elif origin.class_name in column:
                    reasons[row, column[origin.class_name]] = 1.0
        return reasons

    def write(self, path: Path) -> Path:
        """Write the list, and beside it a JSON file with the origin of every concept; that file's path."""
        beside = origins_path(path)
        write_text(path, _text(self.names))
        concepts = [asdict(item) for item in self.items]
        content = {"format": 1, "concepts": concepts, "leaks": list(self.leaks), "unknown_classes": list(self.unknown)}
        write_json(beside, content)
        return beside


def _text(names: Sequence[str]) -> str:
    """A list as its file has it."""
    return "".join(map(concept_line, names))


def origins_path(path: Path) -> Path:
    """The file beside a list that says where its concepts come from."""
    return path.with_name(_origins_name(path.name))


def _origins_name(name: str) -> str:
    return name.removesuffix(".txt") + ".origins.json"


def read_origins(path: Path) -> dict[str, tuple[Origin, ...]]:
    """Origins of each concept of a proposed list, by concept; empty for a list written by hand."""
    beside = origins_path(path)
    if not beside.is_file():
        return {}
    try:
        content: Any = json.loads(read_regular(beside))
        return {item["concept"]: tuple(Origin(**origin) for origin in item["origins"]) for item in content["concepts"]}
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{beside} is not what `ccr concepts propose` wrote: remove it or propose again") from error


def written_by_hand(path: AnyPath) -> bool:
    """Is there a list whose text is not the one that `Proposals.write` left, to judge by the origins beside it?"""
    if not path.is_file():
        return False
    try:
        content: Any = json.loads(read_regular(path.with_name(_origins_name(path.name))))
        names = [str(item["concept"]) for item in content["concepts"]]
    except (OSError, CCRError, ValueError, KeyError, TypeError):
        return True
    return read_regular(path) != _text(names).encode()


def together(sources: Iterable[Iterable[Proposal]], *, leaking: Iterable[str], unknown: Sequence[str]) -> Proposals:
    """Proposals of all sources, each concept once (whatever its articles and number) with all its origins; texts in
    `leaking` are left out.

    A concept leaks when it is one of these texts, or one of them with words around it, in whatever number: "apple",
    "picture of an apple", "two apples".
    """
    origins: dict[str, list[Origin]] = {}
    spelling: dict[str, str] = {}
    for proposal in (item for source in sources for item in source):
        key = concept_key(proposal.concept)
        if 0 < len(proposal.concept) <= LONGEST_CONCEPT:
            spelling.setdefault(key, proposal.concept)
            known = origins.setdefault(key, [])
            known += [origin for origin in proposal.origins if origin not in known]
    texts = LabelTexts(leaking)
    leaks = {key: spelling[key] for key in origins if texts.are_in(spelling[key])}
    kept = [Proposal(spelling[key], tuple(known)) for key, known in origins.items() if key not in leaks]
    return Proposals(tuple(kept), tuple(leaks.values()), tuple(unknown))


class LabelTexts:
    """Texts that give a label away, whether their words are singular or plural."""

    def __init__(self, texts: Iterable[str]) -> None:
        words = {tuple(words_of(text)) for text in texts} - {()}
        self._spellings = {spelling for text in words for spelling in spellings(text)}
        self._longest = max(map(len, words), default=0)

    def are_in(self, concept: str) -> bool:
        """Whether any words in a row of the concept are one of these texts; those that are colours too only if they
        stand alone: "orange skin" is no orange."""
        words = words_of(concept)
        runs = (
            tuple(words[start:stop])
            for start in range(len(words))
            for stop in range(start + 1, min(len(words), start + self._longest) + 1)
        )
        colours = {(word,) for word in COLOUR_NAMES} if len(words) > 1 else set()
        return any(run not in colours and not spellings(run).isdisjoint(self._spellings) for run in runs)


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
    """Concepts proposed from WordNet, the sense chosen for each class, and the classes it does not know."""

    proposals: list[Proposal]
    senses: dict[str, Synset]
    unknown: list[str]


def wordnet_proposals(
    classes: Sequence[str],
    wordnet: WordNet,
    *,
    embed: EmbedTexts | None = None,
    photos: Mapping[str, np.ndarray] | None = None,
    tell: OnProgress = no_progress,
) -> FromWordNet:
    """Propose concepts for each class from WordNet, as far as a photo can show them.

    Parameters
    ----------
    classes : the classes' names; compound ones resolve by their parts.
    embed : texts to unit rows, by which the sense of a name is chosen. None: the most frequent sense.
    photos : (d,), mean of each class's photos measured from the mean of all; see `choose_senses`.
    """
    different = list(dict.fromkeys(classes))
    looked_up = [item for item in (look_up(name, wordnet) for name in different) if item is not None]
    named = ClassContext(looked_up, wordnet).known()
    senses = choose_senses(named, ClassContext(named, wordnet), embed, photos=photos, tell=tell)
    known, proposals = {item.name: item for item in named}, []
    common = common_kinds(list(senses.values()), wordnet)
    for number, name in enumerate(different):
        tell(number, len(different), "reading WordNet")
        glossed = name_features(name, wordnet)
        if name in known:
            glossed = features(known[name], senses[name], wordnet, common=common)
        proposals += [_proposal(name, feature) for feature in glossed]
    return FromWordNet(proposals, senses, [name for name in different if name not in senses])


def common_kinds(senses: Sequence[Synset], wordnet: WordNet) -> list[Synset]:
    """The kinds that all of several senses belong to; none of fewer than `LEAST_SHARING`."""
    if len(senses) < LEAST_SHARING:
        return []
    above = [{kind.place for kind in wordnet.above(sense)} for sense in senses]
    return [kind for kind in wordnet.above(senses[0]) if kind.place in set.intersection(*above)]


def reasoned_proposals(
    classes: Sequence[str],
    wordnet: WordNet | None,
    *,
    embed: EmbedTexts | None = None,
    photos: Mapping[str, np.ndarray] | None = None,
    grey: bool = False,
    sources: Sequence[str] = ("wordnet", "generic"),
    answered: Sequence[Proposal] = (),
    tell: OnProgress = no_progress,
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
    answered : proposals of a language model.
    """
    known = FromWordNet([], {}, list(classes))
    if wordnet is not None:
        known = wordnet_proposals(classes, wordnet, embed=embed, photos=photos, tell=tell)
    domains = fitting_domains(classes, known.senses, wordnet, embed) if "generic" in sources else {}
    parts = [known.proposals if "wordnet" in sources else [], answered, generic_proposals(domains)]
    if grey:
        parts = [[item for item in part if not names_colour(item.concept, wordnet)] for part in parts]
    unknown = known.unknown if "wordnet" in sources else []
    return together(parts, leaking=label_texts(classes, known.senses, wordnet), unknown=unknown)


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


#: Sources of proposals, whose yes is made anew whenever concepts are proposed again.
PROPOSING = ("wordnet", "llm")


def known_path(path: Path) -> Path:
    """The table beside a list of concepts: LIST-knowledge.csv."""
    return path.with_name(path.name.removesuffix(".txt") + "-knowledge.csv")


def proposed_knowledge(proposals: Iterable[Proposal]) -> Knowledge:
    """Yes for every class that a concept was proposed for, from where it came: WordNet or a language model. Concepts
    that fit any photo are known of no class."""
    return Knowledge.of(
        Answer(origin.class_name, item.concept, "yes", origin.source)
        for item in proposals
        for origin in item.origins
        if origin.class_name is not None
    )


def write_proposed(proposals: Iterable[Proposal], path: Path) -> Knowledge:
    """Write the table of proposals beside their list, at `path`; that table.

    Answers that an earlier table has and that proposals do not give stay, and count: those of people and files, and
    every no or unknown, because proposals only say yes, so that a person must have corrected the cell.
    """
    table = proposed_knowledge(proposals)
    if path.is_file():
        kept = [answer for answer in Knowledge.read(path) if answer.source not in PROPOSING or answer.answer != "yes"]
        table = Knowledge.merge(table, Knowledge.of(kept))
    table.write(path)
    return table


def wordnet_knowledge(classes: Sequence[str], concepts: Sequence[str], proposals: Iterable[Proposal]) -> Knowledge:
    """Yes where what WordNet says of a class names a concept of the list: the same words in singular or plural, without
    articles, or a longer phrase that has them in a row ("long slender bill" names a slender bill). Looser matches were
    tried and are mostly wrong (on CUB 23 % right instead of 62 %). WordNet never says what a class has not, so there is
    no "no"."""
    phrases: dict[str, set[str]] = {name: set() for name in classes}
    for item in proposals:
        for origin in item.origins:
            if origin.class_name in phrases:
                phrases[origin.class_name] |= _runs(item.concept)
    spelled = {concept: spellings(_words(concept)) for concept in concepts}
    return Knowledge.of(
        Answer(name, concept, "yes", "wordnet")
        for name, known in phrases.items()
        for concept in concepts
        if not known.isdisjoint(spelled[concept])
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in words_of(text) if word not in ARTICLES)


def _runs(text: str) -> set[str]:
    """All words in a row of a text that have more than one word, and the whole of it, in singular and plural."""
    words = _words(text)
    runs: set[str] = set()
    for start in range(len(words)):
        for stop in range(start + 1, len(words) + 1):
            if stop - start > 1 or stop - start == len(words):
                runs |= spellings(words[start:stop])
    return runs


def generic_proposals(domains: Mapping[str, str]) -> list[Proposal]:
    """The concepts of these domains, each with its kind and the reason why the domain fits (`fitting_domains`)."""
    known = read_domains()
    return [
        Proposal(text, (Origin(None, "generic", kind, reason),))
        for name, reason in domains.items()
        for kind, text in known[name].concepts
    ]
