"""What each edit does to a fitted model: functions from one state to the next, no argument changed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ccr.core.coding import ThresholdRule
from ccr.core.concepts import Concepts
from ccr.core.explain.terms import position
from ccr.core.geometry import unit_rows
from ccr.errors import CCRError
from ccr.models.fitted import Fitted, stored_concepts


@dataclass(frozen=True, eq=False)
class State:
    """A fitted model while it is edited.

    `texts` are the concepts before centring and dispersion, the estimator's `concepts`.
    """

    fitted: Fitted
    texts: Concepts


def suppress(state: State, concept: str) -> State:
    """Without the concept: it is neither scored nor shown any more."""
    row = state.fitted.refined.index(concept)
    return _keep(state, [other for other in range(len(state.texts)) if other != row])


def scale(state: State, concept: str, factor: float) -> State:
    """All weights of the concept times `factor`."""
    _check_finite("factor", factor)
    row, coef = state.fitted.refined.index(concept), state.fitted.coef.copy()
    coef[:, row] *= factor
    return _with_head(state, coef)


def rename(state: State, concept: str, to: str) -> State:
    """The same concept under another name."""
    names = list(state.texts.names)
    names[state.fitted.refined.index(concept)] = to
    return _rebuilt(state, names)


def pin(state: State, concept: str) -> State:
    """The concept back at the place where refinement started."""
    row, refined = state.fitted.refined.index(concept), state.fitted.refined.embeddings.copy()
    refined[row] = state.fitted.initial.embeddings[row]
    return _rebuilt(state, state.texts.names, refined=refined)


def set_weight(state: State, concept: str, name: Any, value: float) -> State:
    """The weight of the concept for the class `name`."""
    _check_finite("weight", value)
    row, number = state.fitted.refined.index(concept), position(state.fitted.classes.tolist(), name)
    coef = state.fitted.coef.copy()
    coef[number, row] = value
    return _with_head(state, coef)


def add(state: State, name: str, embedding: Any, weights: Mapping[Any, float]) -> State:
    """One more concept, at the place of its text `embedding` (d,) in the model's space; weights not given are 0."""
    text = _checked_embedding(embedding, state.texts.dimension)
    placed = state.fitted.space.place(text)
    classes = state.fitted.classes.tolist()
    column = np.zeros((len(classes), 1), state.fitted.coef.dtype)
    for label, weight in weights.items():
        _check_finite("weight", weight)
        column[position(classes, label)] = weight
    fitted = replace(state.fitted, coef=np.hstack([state.fitted.coef, column]))
    return _rebuilt(
        replace(state, fitted=fitted),
        [*state.texts.names, name],
        initial=np.vstack([fitted.initial.embeddings, placed]),
        refined=np.vstack([fitted.refined.embeddings, placed]),
        texts=np.vstack([state.texts.embeddings, text]),
    )


def merge(state: State, first: str, second: str, name: str | None) -> State:
    """Two concepts as one, halfway between them, in the first one's row.

    The merged code is (s1 + s2) / |d1 + d2|, so weights (w1 + w2) |d1 + d2| / 2 leave logits as they are where both
    concepts have the same code.
    """
    one, two = state.fitted.refined.index(first), state.fitted.refined.index(second)
    if one == two:
        raise CCRError(f"merging needs two different concepts, got {first!r} twice")
    dictionaries = {
        "initial": state.fitted.initial.embeddings,
        "refined": state.fitted.refined.embeddings,
        "texts": state.texts.embeddings,
    }
    rows = {key: _halfway(rows, one, two, (first, second)) for key, rows in dictionaries.items()}
    apart = float(np.linalg.norm(dictionaries["refined"][one].astype(np.float64) + dictionaries["refined"][two]))
    coef = state.fitted.coef.copy()
    coef[:, one] = (coef[:, one] + coef[:, two]) * (apart / 2)
    names = list(state.texts.names)
    names[one] = names[one] if name is None else name
    names[two] = _spare(names)  # gone in a moment; the new name may be the second one's
    merged = _rebuilt(_with_head(state, coef), names, **rows)
    return _keep(merged, [row for row in range(len(names)) if row != two])


def with_head(state: State, coef: np.ndarray, intercept: np.ndarray) -> State:
    """Another head on the same concepts."""
    kind = state.fitted.coef.dtype, state.fitted.intercept.dtype
    fitted = replace(state.fitted, coef=coef.astype(kind[0]), intercept=intercept.astype(kind[1]))
    return replace(state, fitted=fitted)


def _with_head(state: State, coef: np.ndarray) -> State:
    return replace(state, fitted=replace(state.fitted, coef=coef))


def _keep(state: State, rows: list[int]) -> State:
    """The concepts of these rows alone."""
    fitted = state.fitted
    length = getattr(fitted.rule, "length", None)
    needed = 1 if isinstance(fitted.rule, ThresholdRule) or length is None else int(length)
    if len(rows) < needed:
        raise CCRError(
            f"the model needs at least {needed} concepts for its codes, and only {len(rows)} would be left: "
            "add others first"
        )
    smaller = replace(fitted, coef=np.ascontiguousarray(fitted.coef[:, rows]))
    return _rebuilt(
        replace(state, fitted=smaller),
        [state.texts.names[row] for row in rows],
        initial=fitted.initial.embeddings[rows],
        refined=fitted.refined.embeddings[rows],
        texts=state.texts.embeddings[rows],
    )


def _rebuilt(
    state: State,
    names: Any,
    *,
    initial: np.ndarray | None = None,
    refined: np.ndarray | None = None,
    texts: np.ndarray | None = None,
) -> State:
    """These names, and these rows where they are given; rows that stay keep every bit."""
    fitted = replace(
        state.fitted,
        initial=stored_concepts(names, state.fitted.initial.embeddings if initial is None else initial),
        refined=stored_concepts(names, state.fitted.refined.embeddings if refined is None else refined),
    )
    return replace(
        state, fitted=fitted, texts=stored_concepts(names, state.texts.embeddings if texts is None else texts)
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


def _spare(names: list[str]) -> str:
    spare = "merged"
    while spare in names:
        spare += "_"
    return spare


def _checked_embedding(embedding: Any, dimension: int) -> np.ndarray:
    row = np.asarray(embedding.detach().cpu() if hasattr(embedding, "detach") else embedding)
    if row.size != dimension or row.ndim > 2:
        raise CCRError(
            f"a concept's embedding must have the model's {dimension} dimensions, got shape {row.shape}: embed it with "
            "the model's encoder"
        )
    return Concepts(["new"], row.reshape(1, -1)).embeddings


def _check_finite(what: str, value: float) -> None:
    if not math.isfinite(value):
        raise CCRError(f"a {what} must be a finite number, got {value}")
