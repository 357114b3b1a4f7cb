"""The generic list: concepts by domain (birds, rooms, surface damage), and the domains that a set of classes is of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from ccr.geometry import unit_rows
from ccr.vocab.lists import random_words
from ccr.vocab.wordnet import ANIMAL, Synset, WordNet, concept_key, words_of

FILE = Path(__file__).with_name("generic_concepts.txt")
#: The domain of classes of which nothing is known.
ANYTHING = "anything"
#: Domains so wide that two classes of one of them have little in common.
BROAD = frozenset({ANYTHING, "objects", "animals", "plants", "materials", "people"})
#: Domains of animals and people, of what grows, and of things so large that photos of small things do not show them.
LIVING = frozenset(
    {
        *("animals", "mammals", "dogs", "cats", "hoofed animals", "animals with paws", "birds", "fish", "people"),
        *("insects and spiders", "reptiles and amphibians"),
    }
)
GROWING = frozenset({"plants", "flowers", "trees", "mushrooms", "plant diseases", "fruit and vegetables"})
LARGE = frozenset({"rooms", "buildings", "landscapes", "streets", "road vehicles", "trains", "boats", "aircraft"})
#: Domains whose kinds WordNet has among those of another one: a birthmark is a blemish, a kettle an implement.
WIDER = {"skin lesions": "surface damage", "tableware": "tools"}
#: Adjectives of what only animals wear.
ANIMAL_COATS = frozenset({"furry", "feathered", "feathery"})
#: Domains whose photos show little but the thing itself.
CLOSE_UP = frozenset(
    {
        *("plant diseases", "fruit and vegetables", "dishes", "drinks", "skin lesions", "surface damage", "materials"),
        *("waste", "packaging", "fabrics", "shoes", "tools", "jewellery", "rocks and minerals", "tableware"),
    }
)
#: Where more than this share of the classes is of one domain, one class alone makes no other: a pothole brings no lakes
#: to cracks, a marble no rocks to toys.
MOST = 1 / 2
#: Where such a share is, others need `LEAST_SHARE`: french fries among dishes are no vegetables; and broad domains need
#: it, too: leather among fabrics does not make them materials. Where half are objects, all narrow domains need
#: `LEAST_SHARE`: a stapler makes no machines of pencils and rulers.
AGREED, LEAST_SHARE = 2 / 3, 0.2
#: Names (half of them where they are few), and the share of all, that must agree on a domain where WordNet has one for
#: less than half of them: by two of six, defects of circuits were landscapes.
LEAST_NAMES, LEAST_NAMED = 3, 0.4
#: Senses of a word of a name that may say what domain a class is of.
WORD_SENSES = 5
#: The class names must be nearer to a domain than this many standard deviations of other words, and so much nearer than
#: to the next domain, and each name must have it among so many nearest ones. Rare words are near to others that are
#: rare: by a margin of 0.3 alone, blood cells (0.9) and dishes (0.7) were mushrooms.
LEAST_RELATED, LEAST_MARGIN, NEAREST = 1.0, 1.0, 3
#: Words that have nothing to do with the classes, and concepts of a domain that stand for it.
CONTROL_WORDS, EXAMPLES = 200, 12


@dataclass(frozen=True)
class Domain:
    """A domain of photos: the nouns of WordNet that its classes are kinds of, and its concepts as (kind, text)."""

    name: str
    nouns: tuple[str, ...]
    concepts: tuple[tuple[str, str], ...]


@lru_cache(maxsize=1)
def read_domains() -> dict[str, Domain]:
    """The domains of the generic list by name, in its order."""
    nouns: dict[str, tuple[str, ...]] = {}
    concepts: dict[str, list[tuple[str, str]]] = {}
    kind, names = "", list[str]()
    for line in FILE.read_text(encoding="utf-8").splitlines():
        head, _, rest = line[2:].partition(":")
        listed = [part.strip() for part in rest.split(",") if part.strip()]
        if line.startswith("= "):
            nouns[head], concepts[head] = tuple(listed), []
        elif nouns and line.startswith("# "):
            kind, names = head, listed
        elif nouns and line:
            for name in names:
                concepts[name].append((kind, line))
    return {name: Domain(name, nouns[name], tuple(concepts[name])) for name in nouns}


def domains_of(sense: Synset, wordnet: WordNet) -> frozenset[str]:
    """The domains that a sense belongs to, by the kinds above it."""
    found = _domains_at(sense.pos, sense.place, wordnet)
    # Only what has no domain of its own is just an object.
    wider = {"objects"} if found - BROAD else set()
    return frozenset(found - wider - {WIDER[domain] for domain in found & WIDER.keys()})


@lru_cache(maxsize=100_000)
def _domains_at(pos: str, place: int, wordnet: WordNet) -> frozenset[str]:
    sense, nouns = wordnet.synset(pos, place), _domain_nouns()
    return frozenset(
        domain
        for kind in (sense, *wordnet.above(sense))
        for lemma in kind.lemmas[:3]  # a car is called machine, too
        for domain in (*nouns.get(lemma, ()), *nouns.get(f"{lemma}@{kind.file}", ()))
    )


@lru_cache(maxsize=1)
def _domain_nouns() -> dict[str, list[str]]:
    nouns: dict[str, list[str]] = {}
    for domain in read_domains().values():
        for noun in domain.nouns:
            nouns.setdefault(noun, []).append(domain.name)
    return nouns


def fitting_domains(
    classes: Sequence[str],
    senses: Mapping[str, Synset],
    wordnet: WordNet | None,
    embed: Callable[[Sequence[str]], np.ndarray] | None = None,
) -> dict[str, str]:
    """The domains that classes are of, each with the reason; "anything" where that cannot be told of most of them.

    Parameters
    ----------
    classes : the classes' names.
    senses : by class name, the sense that WordNet has for it; classes that it does not know are not there.
    wordnet : None: only the sentence model is asked.
    embed : texts to unit rows; compares the names of classes that WordNet does not know with the domains.
    """
    of_class = {} if wordnet is None else {name: domains_of(sense, wordnet) for name, sense in senses.items()}
    placed = {name: domains for name, domains in of_class.items() if domains}
    if 2 * len(placed) >= len(classes):
        things = [
            name
            for name, sense in senses.items()
            if wordnet is not None and "objects" in _domains_at(sense.pos, sense.place, wordnet)
        ]
        if 2 * len(things) < len(classes):
            return _shared(placed, len(classes), "WordNet", least=1)
        # A bench and a phone booth are objects first: alone among them, they bring no furniture and no rooms.
        fits = _shared(placed, len(classes), "WordNet", least=1, alone=False)
        narrow = {name for name, found in placed.items() if found & fits.keys() - BROAD}
        if len(narrow) >= AGREED * len(classes):
            return fits
        return {"objects": f"fits objects: {_listed(things)} (WordNet)", **fits}
    needed = max(min(LEAST_NAMES, len(classes) / 2), LEAST_NAMED * len(classes))
    fits = _shared(placed, len(classes), "WordNet", least=needed)
    if wordnet is not None:
        open_ones = [name for name in classes if name not in placed]
        votes = {**placed, **{name: _by_words(name, wordnet) for name in open_ones}}
        counts = Counter(domain for domains in votes.values() for domain in domains - BROAD)
        first, count = max(counts.items(), key=lambda item: item[1], default=("", 0))
        if count >= needed:
            meant = {name: {first} for name, domains in votes.items() if first in domains}
            return fits | _shared(meant, len(classes), "words of the names", least=1)
    related = None if embed is None else _related(classes, embed)
    if related is not None:
        return {**fits, related: f"fits {related}: the names are related to it (sentence model)"}
    return {**fits, ANYTHING: "may fit any photo: what most classes are is not known"}


def _shared(
    of_class: Mapping[str, Iterable[str]], total: int, source: str, *, least: float, alone: bool = True
) -> dict[str, str]:
    """The domains of at least so many of these classes, each with the classes that speak for it; where most of `total`
    classes are of one domain, or none may stand `alone`, others need a share of their own."""
    named: dict[str, list[str]] = {}
    for name, domains in of_class.items():
        for domain in domains:
            named.setdefault(domain, []).append(name)
    most = max((len(names) for domain, names in named.items() if domain not in BROAD), default=0)
    agreed = most >= AGREED * total
    needed = max(least, 2 if most > MOST * total else 0, LEAST_SHARE * total if agreed or not alone else 0)
    broad = max(needed, AGREED * total if agreed else 0)
    order = [name for name in read_domains() if len(named.get(name, ())) >= (broad if name in BROAD else needed)]
    return {domain: f"fits {domain}: {_listed(named[domain])} ({source})" for domain in order}


def implausible(concept: str, domains: Iterable[str], wordnet: WordNet) -> str | None:
    """Reason why a concept can hardly be said of classes of these domains; None where nothing speaks against it.

    Only clear cases: the generic list has it as a part of other living things alone; it names an animal or a part that
    only animals have, and the classes are none; or the classes are photographed close up, and it names a part or the
    surroundings of other things, or something large. Of classes whose domain is not known nothing is implausible.
    """
    fits, words = set(domains), words_of(concept)
    if not fits or ANYTHING in fits or not words:
        return None
    classes, last = ", ".join(sorted(fits - BROAD) or sorted(fits)), words[-1]
    coat = ANIMAL_COATS & set(words)
    if coat and not fits & (LIVING | {"fabrics", "clothes", "toys"}):
        return f"{min(coat)!r} is said of animals; these classes are {classes}"
    if last in _words_of_domains(frozenset(fits)):
        return None
    own = _listed_domains().get(concept_key(concept), frozenset())
    if own and not own & fits and (fits <= CLOSE_UP or own <= LIVING or (own <= GROWING and not fits & LIVING)):
        return f"it is said of {_listed(sorted(own))}; these classes are {classes}"
    senses = [sense for sense in wordnet.senses(wordnet.base(last) or "")[:2] if sense.visible]
    # WordNet files what people have, too, under bodies: hands may be on any photo.
    if senses and not fits & LIVING and all(sense.file == ANIMAL for sense in senses):
        return f"{last!r} is an animal or a part of one; these classes are {classes}"
    if senses and fits <= CLOSE_UP and domains_of(senses[0], wordnet) & LARGE:
        return f"photos of {classes} do not show {last!r}"
    return None


@lru_cache(maxsize=1)
def _listed_domains() -> dict[str, frozenset[str]]:
    """The domains that the generic list has a part or surroundings for, whatever the articles and the number."""
    listed: dict[str, set[str]] = {}
    for domain in read_domains().values():
        for kind, text in domain.concepts:
            if kind in ("part", "surroundings"):
                listed.setdefault(concept_key(text), set()).add(domain.name)
    return {key: frozenset(names) for key, names in listed.items()}


@lru_cache(maxsize=64)
def _words_of_domains(names: frozenset[str]) -> frozenset[str]:
    """All words, as they stand and in the singular, of the concepts of these domains."""
    texts = [text for name in names for _, text in read_domains()[name].concepts]
    return frozenset(form for text in texts for word in words_of(text) for form in (word, concept_key(word)))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _by_words(name: str, wordnet: WordNet) -> set[str]:
    """The narrow domains that any word of a name may belong to: "crazing" comes from craze, a fine crack."""
    nouns = {base for word in words_of(name) for base in wordnet.bases(word) if len(word) > 2}
    senses = (sense for noun in nouns for sense in wordnet.senses(noun)[:WORD_SENSES])
    return {domain for sense in senses for domain in domains_of(sense, wordnet)} - BROAD


def _related(names: Sequence[str], embed: Callable[[Sequence[str]], np.ndarray]) -> str | None:
    """The domain that these names are nearest to, if they are clearly nearer to it than other words are."""
    domains = [domain for domain in read_domains().values() if domain.name != ANYTHING]
    texts = [[domain.name, *(noun.split("@")[0] for noun in domain.nouns)] for domain in domains]
    examples = [[text for _, text in domain.concepts if text in _own(domain.name)][:EXAMPLES] for domain in domains]
    words = random_words(CONTROL_WORDS, seed=0, exclude=names)
    flat = [text for group in (*texts, *examples) for text in group]
    rows = embed([*names, *words, *flat])
    named, control, rest = np.split(rows, [len(names), len(names) + len(words)])
    means, start = [], 0
    for group in (*texts, *examples):
        part = rest[start : start + len(group)]
        means.append(part.mean(axis=0) if len(part) else np.zeros(rows.shape[1]))
        start += len(group)
    centres = np.array(means[: len(domains)]) + np.array(means[len(domains) :])
    directions = unit_rows(centres - centres.mean(axis=0))
    middle = control.mean(axis=0)
    usual = unit_rows(control - middle) @ directions.T
    each = (unit_rows(named - middle) @ directions.T - usual.mean(axis=0)) / usual.std(axis=0)
    near = each.mean(axis=0)
    second, first = np.argsort(near)[-2:]
    sure = near[first] >= LEAST_RELATED and near[first] - near[second] >= LEAST_MARGIN
    agreed = ((each > each[:, [first]]).sum(axis=1) < NEAREST).all()
    return domains[first].name if sure and agreed else None


@lru_cache(maxsize=64)
def _own(name: str) -> frozenset[str]:
    """The concepts of a domain that at most one other has."""
    counts = Counter(text for domain in read_domains().values() for text in {text for _, text in domain.concepts})
    return frozenset(text for _, text in read_domains()[name].concepts if counts[text] <= 2)
