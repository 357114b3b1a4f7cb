"""Routes of concepts and of edits by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query

from ccr.errors import CCRError
from ccr_studio import concepts
from ccr_studio.api.schemas import concepts as schemas
from ccr_studio.api.schemas.bench import State
from ccr_studio.api.state import state_of
from ccr_studio.search import search
from ccr_studio.service.routes import REFUSALS, ParsedAside
from ccr_studio.workbench import Workbench

Name = Annotated[str, Query(min_length=1, max_length=200)]
#: What each action is called with.
ARGUMENTS: dict[str, Callable[[schemas.Edit], dict[str, Any]]] = {
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
    def concept_list() -> schemas.ConceptList:
        """Every concept of the model in a line."""
        seen, state, _ = bench.snapshot()
        lines: Any = concepts.concept_list(seen, state)
        left = [name for name in state.model.provenance.left_out if name not in state.removed]
        return schemas.ConceptList(version=seen.version, concepts=lines, left_out=left)

    @router.get("/concept", operation_id="concept")
    def concept(name: Name) -> schemas.Concept:
        """A concept: the photos that show it, and its weights."""
        seen, state, _ = bench.snapshot()
        name = concepts.check_concept(seen, name)
        return schemas.Concept(version=seen.version, **concepts.concept_page(seen, state, name))

    @router.get("/concept/drift", operation_id="concept_drift")
    def drift(name: Name) -> schemas.Drift:
        """Whether a concept still sees what its words see: fidelity, neighbours, photos gained and lost."""
        seen = bench.now()
        return schemas.Drift(version=seen.version, **concepts.concept_drift(seen, name))

    @router.get("/search", operation_id="search_words")
    def search_words(words: Name, limit: Annotated[int, Query(ge=1, le=500)] = 60) -> schemas.Search:
        """Photos that show what the words say."""
        seen = bench.now()
        return schemas.Search(version=seen.version, **search(seen, bench.words, words, limit))

    @router.post("/edits", operation_id="edit")
    def edit(body: schemas.Edit) -> State:
        """Change the model by hand; the step can be undone."""
        if body.action == "merge":
            bench.edit("merge", {"first": body.concept, "second": _given(body.to, "to")})
        else:
            bench.edit(body.action, {"concept": body.concept, **ARGUMENTS[body.action](body)})
        return state_of(bench)

    @router.post("/concepts", operation_id="add_concept")
    def add(body: schemas.NewConcept) -> State:
        """Add a concept by its words; it says nothing until the model is refitted."""
        bench.add(body.name, body.text)
        return state_of(bench)

    @router.post("/lessons", operation_id="teach_concept")
    def teach(body: schemas.Lesson) -> State:
        """Teach a concept by photos that show it and photos that do not."""
        bench.teach(body.name, body.shows, body.lacks, by_name=body.by_name)
        return state_of(bench)

    return router


def _given(value: Any, name: str) -> Any:
    if value is None:
        raise CCRError(f"this edit needs {name!r}: give it")
    return value
