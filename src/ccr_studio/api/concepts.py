"""Concepts: in a list, on their pages, found by words; and edits by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query
from pydantic import BaseModel, Field, FiniteFloat

from ccr.edit import grounded
from ccr.errors import CCRError
from ccr.explain.drift import Neighbour
from ccr.explain.terms import plain
from ccr.geometry import unit_rows
from ccr.vocab.check import Problem
from ccr.vocab.wordnet import concept_key
from ccr_studio.api.bench import SessionState, state_of
from ccr_studio.api.common import Called, Name, PhotoTile, Row, VersionedAnswer, tiles
from ccr_studio.encoder import Words, checked_text
from ccr_studio.seen import SeenModel
from ccr_studio.service.answers import Strict
from ccr_studio.service.app import REFUSALS, ParsedAside
from ccr_studio.work.corrections import Corrections
from ccr_studio.work.edits import Lesson, lesson_of
from ccr_studio.work.session import StudioState
from ccr_studio.work.workbench import Workbench

#: Photos of a strip, classes in the list of weights, concepts that are named beside words.
PHOTOS, CLASSES, NEAREST = 12, 40, 5


class ConceptLine(BaseModel):
    """A concept in a list."""

    name: str
    photos: int
    share: float
    fidelity: float | None
    class_: str = Field(alias="class", serialization_alias="class")
    weight: float
    classes: int
    pinned: bool


class ConceptList(VersionedAnswer):
    """Every concept of the model in a line."""

    concepts: list[ConceptLine]
    left_out: list[str] = Field(description="Concepts of the list that the model gave no weight.")


class ClassWeight(BaseModel):
    """A concept in a class: its weight, the share of the class's photos that show it, what it adds on average."""

    class_: str = Field(alias="class", serialization_alias="class")
    weight: float
    share: float
    carries: float


class MarkedPhotos(BaseModel):
    """The photos of which people said that they show a concept, or lack it."""

    shows: list[int]
    lacks: list[int]


class ConceptPage(VersionedAnswer):
    """A concept: the photos that show it, and its weights."""

    name: str
    photos: int
    share: float
    pinned: bool
    lesson: Lesson = Field(description="The photos by which it was taught.")
    answers: MarkedPhotos
    most: list[PhotoTile]
    borderline: list[PhotoTile]
    weights: list[ClassWeight]


class DriftedPhotos(BaseModel):
    """Photos that a concept gained or lost against its own words."""

    count: int
    photos: list[PhotoTile]


class Drift(VersionedAnswer):
    """Whether a concept still sees what its words see."""

    name: str
    fidelity: float | None
    flags: list[str]
    gained: DriftedPhotos
    lost: DriftedPhotos
    neighbours: list[Neighbour]


class FoundPhotos(VersionedAnswer):
    """Photos that show what the words say, most first."""

    words: str
    grounded: bool = Field(description="Knowledge of the classes says what the words look like, not they alone.")
    photos: list[PhotoTile]
    nearest: list[Neighbour] = Field(description="Concepts of the model that mean nearly the same.")
    known: bool = Field(description="Whether the model has a concept of this name already.")
    problems: list[Problem] = Field(description="What is wrong with the words, as `ccr concepts check` says it.")
    left_out: list[str] = Field(description="Concepts of the list with these words that the model left out.")


class NewEdit(Strict):
    """One edit by hand."""

    action: Literal["suppress", "scale", "rename", "pin", "set_weight", "zero_weight"]
    concept: Name
    to: Name | None = Field(default=None, description="rename")
    factor: FiniteFloat | None = Field(default=None, ge=-100, le=100, description="scale")
    class_: Name | None = Field(default=None, alias="class", description="set_weight, zero_weight")
    value: FiniteFloat | None = Field(default=None, ge=-1e6, le=1e6, description="set_weight")


class NewConcept(Strict):
    """A concept by words."""

    name: Name
    text: Name | None = Field(default=None, description="What is put to the encoder; by default the name.")


class NewLesson(Strict):
    """A concept by photos that show it and photos that do not."""

    name: Name
    shows: list[Row] = Field(min_length=1, max_length=500)
    lacks: list[Row] = Field(min_length=1, max_length=500)


#: Key of a concept of a list, cached from one search to the next.
_key = lru_cache(maxsize=1 << 16)(concept_key)

#: The arguments that each action is called with.
ARGUMENTS: dict[str, Callable[[NewEdit], dict[str, Any]]] = {
    "suppress": lambda edit: {},
    "pin": lambda edit: {},
    "rename": lambda edit: {"to": _given(edit.to, "to")},
    "scale": lambda edit: {"factor": _given(edit.factor, "factor")},
    "set_weight": lambda edit: {"name": _given(edit.class_, "class"), "value": _given(edit.value, "value")},
    "zero_weight": lambda edit: {"name": _given(edit.class_, "class")},
}


def concepts_router(bench: Workbench) -> APIRouter:
    """Looking at concepts, and changing them."""
    router = APIRouter(tags=["concepts"], responses=REFUSALS, route_class=ParsedAside)

    @router.get("/concepts", operation_id="list_concepts")
    def concepts() -> ConceptList:
        """Every concept of the model in a line."""
        seen, state, _ = bench.snapshot()
        return concept_list(seen, state)

    @router.get("/concept", operation_id="concept")
    def concept(name: Called) -> ConceptPage:
        """A concept: the photos that show it, and its weights."""
        seen, state, _ = bench.snapshot()
        return concept_page(seen, state, name, bench.corrections)

    @router.get("/concept/drift", operation_id="concept_drift")
    def drift(name: Called) -> Drift:
        """Whether a concept still sees what its words see: fidelity, neighbours, photos gained and lost."""
        return concept_drift(bench.now(), name)

    @router.get("/search", operation_id="search_words")
    def search_words(words: Called, limit: Annotated[int, Query(ge=1, le=500)] = 60) -> FoundPhotos:
        """Photos that show what the words say, and what is wrong with the words."""
        seen, state, _ = bench.snapshot()
        return search(seen, state, bench.words, words, limit)

    @router.post("/edits", operation_id="edit")
    def edit(body: NewEdit) -> SessionState:
        """Change the model by hand; the step can be undone."""
        bench.edit(body.action, {"concept": body.concept, **ARGUMENTS[body.action](body)})
        return state_of(bench)

    @router.post("/concepts", operation_id="add_concept")
    def add(body: NewConcept) -> SessionState:
        """Add a concept by its words; it says nothing until the model is refitted."""
        bench.add(body.name, body.text)
        return state_of(bench)

    @router.post("/lessons", operation_id="teach_concept")
    def teach(body: NewLesson) -> SessionState:
        """Teach a concept by photos that show it and photos that do not; its name draws it, the less the more there
        are, if the store's encoder is there."""
        bench.teach(body.name, body.shows, body.lacks)
        return state_of(bench)

    return router


def concept_list(seen: SeenModel, state: StudioState) -> ConceptList:
    """Every concept of the model in a line, and those that it left out."""
    model, shown = seen.model, seen.photos.open
    counts = np.diff(seen.codes[shown].tocsc().indptr)
    strongest = np.abs(model.head.coef).argmax(axis=0)
    fidelity = seen.fidelity()
    total = max(int(shown.sum()), 1)
    lines = [
        ConceptLine(
            **{"class": seen.classes[int(strongest[column])]},
            name=name,
            photos=int(counts[column]),
            share=int(counts[column]) / total,
            fidelity=plain(float(fidelity[column])),
            weight=float(model.head.coef[strongest[column], column]),
            classes=int(np.count_nonzero(model.head.coef[:, column])),
            pinned=name in state.pinned,
        )
        for column, name in enumerate(model.names)
    ]
    return ConceptList(version=seen.version, concepts=lines, left_out=_left_out(state))


def concept_page(seen: SeenModel, state: StudioState, name: str, said: Corrections) -> ConceptPage:
    """The photos that show a concept, its weights, and the lesson that taught it."""
    if not name.strip():
        raise CCRError("which concept? give its name")
    model, column = seen.model, seen.model.row(name)
    shown = seen.photos.open
    active = seen.by_concept[:, [column]]
    rows, codes = active.indices, active.data
    keep = shown[rows] & (codes > 0)
    rows, codes = rows[keep], codes[keep]
    answers = said.about(model.names[column])
    most, least = np.argsort(-codes, kind="stable")[:PHOTOS], np.argsort(codes, kind="stable")[:PHOTOS]
    return ConceptPage(
        version=seen.version,
        name=model.names[column],
        photos=len(rows),
        share=len(rows) / max(int(shown.sum()), 1),
        pinned=model.names[column] in state.pinned,
        lesson=lesson_of(model, model.names[column]),
        answers=MarkedPhotos(
            shows=[row for row, answer in answers.items() if answer == "yes"],
            lacks=[row for row, answer in answers.items() if answer == "no"],
        ),
        most=tiles(seen, rows[most], codes[most]),
        borderline=tiles(seen, rows[least], codes[least]),
        weights=_weights(seen, column),
    )


def concept_drift(seen: SeenModel, name: str) -> Drift:
    """Fidelity, neighbours, and the photos gained and lost against the concept's own words."""
    wanted = seen.model.names[seen.model.row(name)]
    found = next(one for one in seen.audit().concepts if one.concept == wanted)
    rows = np.flatnonzero(seen.photos.open)

    def moved(count: int | None, images: Any) -> DriftedPhotos:
        places, codes = [int(rows[image.row]) for image in images], [image.code for image in images]
        return DriftedPhotos(count=count or 0, photos=tiles(seen, places, codes))

    return Drift(
        version=seen.version,
        name=wanted,
        fidelity=plain(found.fidelity),
        flags=list(found.flags),
        gained=moved(found.gained, found.gained_images),
        lost=moved(found.lost, found.lost_images),
        neighbours=list(found.nearest_after),
    )


def search(seen: SeenModel, state: StudioState, words: Words, text: str, limit: int) -> FoundPhotos:
    """The photos that show most of what the words say, the concepts that say nearly the same, and whether the words
    make a concept."""
    text = checked_text(text)
    texts = seen.model.space.own_texts(words.embed(text)[None])
    own = grounded(seen.model, text, texts)[0]
    shown = np.flatnonzero(seen.photos.open)
    scores = seen.scores(own)[shown]
    count = min(limit, len(shown))
    best = np.argpartition(-scores, count - 1)[:count]
    best = best[np.argsort(-scores[best], kind="stable")]
    key = _key(text)
    same = [name for name in seen.model.names if _key(name) == key]
    return FoundPhotos(
        version=seen.version,
        words=text,
        grounded=not np.allclose(own, texts[0], atol=1e-5),
        photos=tiles(seen, shown[best], scores[best]),
        nearest=_nearest(seen, own),
        known=text in seen.model.names,
        problems=[] if text in same else words.problems(text, classes=seen.classes, beside=same),
        left_out=[name for name in _left_out(state) if f" {key} " in f" {_key(name)} "][:NEAREST],
    )


def _left_out(state: StudioState) -> list[str]:
    """Concepts of the list that the model gave no weight, and that nobody removed or took back in."""
    there = {*state.removed, *state.model.names}
    return [name for name in state.model.provenance.left_out if name not in there]


def _nearest(seen: SeenModel, own: np.ndarray) -> list[Neighbour]:
    cosines = unit_rows(np.asarray(seen.model.concepts.embeddings, np.float64)) @ own
    order = np.argsort(-cosines, kind="stable")[:NEAREST]
    return [Neighbour(seen.model.names[i], float(cosines[i])) for i in order]


def _weights(seen: SeenModel, column: int) -> list[ClassWeight]:
    """The classes it speaks for and against: its weight, and what it adds on the class's own photos."""
    view, coef = seen.view(), seen.model.head.coef[:, column]
    order = [i for i in np.argsort(-np.abs(coef), kind="stable") if coef[i] != 0][:CLASSES]
    images = np.maximum(view.images, 1)
    return [
        ClassWeight(
            **{"class": seen.classes[i]},
            weight=float(coef[i]),
            share=float(view.active[i, column] / images[i]),
            carries=float(coef[i] * view.totals[i, column] / images[i]),
        )
        for i in order
    ]


def _given(value: Any, name: str) -> Any:
    if value is None:
        raise CCRError(f"this edit needs {name!r}: give it")
    return value
