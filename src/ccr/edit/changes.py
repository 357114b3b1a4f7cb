"""Edits of a fitted model, as functions from one model to the next; no argument is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ccr.coding import ThresholdRule
from ccr.concepts import Concepts, stored_concepts
from ccr.errors import CCRError
from ccr.explain.terms import position
from ccr.geometry import unit_rows
from ccr.grounding import UNKNOWN_SHARE, evidence, ground
from ccr.heads import LinearHead
from ccr.io.provenance import without
from ccr.model import ConceptModel
from ccr.utils.arrays import as_array


def texts_of(model: ConceptModel) -> Concepts:
    """The model's concepts before centring and dispersion."""
    if model.provenance.texts is None:
        raise CCRError("the model does not know its concepts' text embeddings, so it cannot be edited: fit it again")
    return model.provenance.texts


def suppress(model: ConceptModel, concept: str) -> ConceptModel:
    """Remove a concept: it is neither scored nor shown any more."""
    row = model.row(concept)
    return _keep(model, [other for other in range(len(model.concepts)) if other != row])


def scale(model: ConceptModel, concept: str, factor: float) -> ConceptModel:
    """Multiply all weights of a concept by `factor`."""
    row, coef = model.row(concept), model.head.coef.copy()
    with np.errstate(over="ignore"):
        coef[:, row] *= factor
    for weight in coef[:, row]:
        _check_weight(weight, model)
    return _with_coef(model, coef)


def rename(model: ConceptModel, concept: str, to: str) -> ConceptModel:
    """Rename a concept."""
    if str(to).strip() in model.provenance.left_out:
        raise CCRError(
            f"{to!r} is a concept that the fit left out, and it would be lost: choose another name, or add it back"
        )
    names, row, new = list(model.names), model.row(concept), str(to).strip()
    old, names[row] = names[row], to
    origin = model.provenance
    measured = None if origin.transfer is None else {new if n == old else n: v for n, v in origin.transfer.items()}
    known = None if origin.knowledge is None else origin.knowledge.renamed(old, new)
    return _rebuilt(replace(model, provenance=replace(origin, transfer=measured, knowledge=known)), names)


def pin(model: ConceptModel, concept: str) -> ConceptModel:
    """The concept back where refinement started."""
    row, refined = model.row(concept), model.concepts.embeddings.copy()
    refined[row] = model.initial.embeddings[row]
    return _rebuilt(model, model.names, refined=refined)


def set_weight(model: ConceptModel, concept: str, name: Any, value: float) -> ConceptModel:
    """The weight of the concept for the class `name`."""
    _check_weight(value, model)
    row, number = model.row(concept), position(model.classes.tolist(), name)
    coef = model.head.coef.copy()
    coef[number, row] = value
    return _with_coef(model, coef)


def add(model: ConceptModel, name: str, embedding: Any, weights: Mapping[Any, float]) -> ConceptModel:
    """Add a concept at its text `embedding` (d,) in the model's space or, if the model's knowledge has answers about
    it, where these ground it; weights not given are 0."""
    text = _checked_embedding(embedding, model.dimension)
    start = grounded(model, name, model.space.texts(text))
    classes = model.classes.tolist()
    column = np.zeros((len(classes), 1), model.head.coef.dtype)
    for label, weight in weights.items():
        _check_weight(weight, model)
        column[position(classes, label)] = weight
    more = _with_coef(model, np.hstack([model.head.coef, column]))
    if isinstance(model.rule, ThresholdRule):
        more = replace(more, rule=model.rule.with_one_more())
    if model.shown is not None:
        more = replace(more, shown=model.shown.with_one_more())
    return _rebuilt(
        more,
        [*model.names, name],
        initial=np.vstack([model.initial.embeddings, start]),
        refined=np.vstack([model.concepts.embeddings, start]),
        texts=np.vstack([texts_of(model).embeddings, text]),
    )


def grounded(model: ConceptModel, name: str, text: np.ndarray) -> np.ndarray:
    """The concept of this text (1, d), grounded by the model's knowledge, if there is any."""
    known, groups = model.provenance.knowledge, model.provenance.groups
    if known is None or groups is None:
        return text
    answers = known.aligned(model.classes.tolist(), [name.strip()])
    return ground(text, evidence(answers, groups, unknown=UNKNOWN_SHARE)).astype(np.float32)


def merge(model: ConceptModel, first: str, second: str, name: str | None) -> ConceptModel:
    """Two concepts as one, halfway between them, in the first one's row.

    The merged code is (s1 + s2) / |d1 + d2|, so weights (w1 + w2) |d1 + d2| / 2 leave logits as they are where both
    concepts have the same code.
    """
    one, two = model.row(first), model.row(second)
    if one == two:
        raise CCRError(f"merging needs two different concepts, got {first!r} twice")
    dictionaries = {
        "initial": model.initial.embeddings,
        "refined": model.concepts.embeddings,
        "texts": texts_of(model).embeddings,
    }
    rows = {key: _halfway(rows, one, two, (first, second)) for key, rows in dictionaries.items()}
    apart = float(np.linalg.norm(dictionaries["refined"][one].astype(np.float64) + dictionaries["refined"][two]))
    coef = model.head.coef.copy()
    coef[:, one] = (coef[:, one] + coef[:, two]) * (apart / 2)
    names = list(model.names)
    names[one] = names[one] if name is None else name
    names[two] = _unused_name(names)  # gone in a moment; the new name may be the second one's
    merged = _rebuilt(_with_coef(model, coef), names, **rows)
    return _keep(merged, [row for row in range(len(names)) if row != two])


def with_head(model: ConceptModel, head: LinearHead) -> ConceptModel:
    """Another head on the same concepts."""
    kinds = model.head.coef.dtype, model.head.intercept.dtype
    return replace(model, head=LinearHead(head.coef.astype(kinds[0]), head.intercept.astype(kinds[1])))


def _with_coef(model: ConceptModel, coef: np.ndarray) -> ConceptModel:
    return replace(model, head=LinearHead(coef, model.head.intercept))


def _keep(model: ConceptModel, rows: list[int]) -> ConceptModel:
    """The concepts of these rows alone."""
    if len(rows) < model.rule.fewest_concepts:
        raise CCRError(
            f"the model needs at least {model.rule.fewest_concepts} concepts for its codes, and only {len(rows)} would "
            "be left: add others first"
        )
    fewer = _with_coef(model, np.ascontiguousarray(model.head.coef[:, rows]))
    if isinstance(model.rule, ThresholdRule):
        fewer = replace(fewer, rule=model.rule.of(np.array(rows, np.int64)))
    if model.shown is not None:
        fewer = replace(fewer, shown=model.shown.of(rows))
    return _rebuilt(
        fewer,
        [model.names[row] for row in rows],
        initial=model.initial.embeddings[rows],
        refined=model.concepts.embeddings[rows],
        texts=texts_of(model).embeddings[rows],
    )


def _rebuilt(
    model: ConceptModel,
    names: Sequence[str],
    *,
    initial: np.ndarray | None = None,
    refined: np.ndarray | None = None,
    texts: np.ndarray | None = None,
) -> ConceptModel:
    """These names, and these rows where they are given; rows that stay keep every bit, and their fidelity."""
    before = texts_of(model).embeddings if texts is None else texts
    named = stored_concepts(names, before)
    origin = replace(without(model.provenance, set(named.names)), texts=named)
    if not (initial is None and refined is None and texts is None):
        origin = replace(origin, fidelity=None)
    return replace(
        model,
        initial=stored_concepts(names, model.initial.embeddings if initial is None else initial),
        concepts=stored_concepts(names, model.concepts.embeddings if refined is None else refined),
        provenance=origin,
    )


def _halfway(rows: np.ndarray, one: int, two: int, names: tuple[str, str]) -> np.ndarray:
    total = rows[one].astype(np.float64) + rows[two]
    if np.linalg.norm(total) < 1e-3:
        raise CCRError(
            f"{names[0]!r} and {names[1]!r} are opposites, with nothing halfway between: suppress one instead"
        )
    changed = rows.copy()
    changed[one] = unit_rows(total[None, :])[0]
    return changed


def _unused_name(names: list[str]) -> str:
    name = "merged"
    while name in names:
        name += "_"
    return name


def _checked_embedding(embedding: Any, dimension: int) -> np.ndarray:
    row = as_array(embedding)
    if row.size != dimension or row.ndim > 2:
        raise CCRError(
            f"a concept's embedding must have the model's {dimension} dimensions, got shape {row.shape}: embed it with "
            "the model's encoder"
        )
    return Concepts(["new"], row.reshape(1, -1)).embeddings


def _check_weight(value: float, model: ConceptModel) -> None:
    """A weight must be finite as the head keeps it, in 32 bits mostly."""
    most = float(np.finfo(model.head.coef.dtype).max)
    if not abs(float(value)) <= most:  # NaN, too
        raise CCRError(f"a weight must be a finite number, at most {most:.3g}, got {value}")
