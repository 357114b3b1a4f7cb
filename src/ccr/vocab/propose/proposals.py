"""Proposals: concepts with where each came from, put together, cleared of class names, written beside the list."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ccr.errors import CCRError, FormatError
from ccr.io.files import read_regular, write_json, write_text
from ccr.io.remote import AnyPath
from ccr.vocab.propose.plurals import spellings, words_of
from ccr.vocab.read import LONGEST_CONCEPT, concept_line

#: The weight of a concept for a class of which it is not said to be true, only possible.
FITTING = 0.5
ARTICLES = {"a", "an", "the"}
#: Things that are colours as well.
COLOUR_NAMES = {"orange", "violet", "rose", "olive", "lilac", "lavender", "peach", "salmon", "cherry", "lime", "lemon"}


@dataclass(frozen=True)
class Origin:
    """Where a concept came from: the class it was proposed for (None: any), the source, what kind of thing it is, and
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
    """What was proposed, what was left out because it would give the label away, and which classes nobody knows."""

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
        """How strong the reason is for which each concept may be said of each class (n, C), from 0 to 1: 1 where a
        source ties it to the class or a person wrote it, `FITTING` where it only fits the domain."""
        column = {name: number for number, name in enumerate(classes)}
        found = np.full((len(self.items), len(classes)), FITTING)
        for row, item in enumerate(self.items):
            for origin in item.origins:
                if origin.source == "hand":
                    found[row] = 1.0
                elif origin.class_name in column:
                    found[row, column[origin.class_name]] = 1.0
        return found

    def by_class(self) -> dict[str, list[str]]:
        """Concepts proposed for each class."""
        found: dict[str, list[str]] = {}
        for item in self.items:
            for name in dict.fromkeys(origin.class_name for origin in item.origins if origin.class_name is not None):
                found.setdefault(name, []).append(item.concept)
        return found

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
    """Of every concept of a proposed list, where it came from; empty for a list that was written by hand."""
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


def concept_key(concept: str) -> str:
    """The same text for concepts that differ by case, articles or number alone: "a feather" and "feathers"."""
    words = tuple(word for word in words_of(concept) if word not in ARTICLES)
    return min(spellings(words), key=lambda text: (len(text), text)) if words else concept.casefold()


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
