"""What a person does to a model in the studio: each edit a function from one state to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ccr.core.concepts import Concepts
from ccr.core.examples import learn_direction
from ccr.core.explain.terms import plain
from ccr.errors import CCRError
from ccr.models.edit import EditSession
from ccr.models.edit.changes import texts_of
from ccr_studio.photos import Photos
from ccr_studio.session import State, with_entry

Embed = Callable[[str], np.ndarray]


class Edited(NamedTuple):
    """The state after an edit, and its entry in the log."""

    state: State
    entry: dict[str, Any]


def simple_edit(state: State, action: str, arguments: Mapping[str, Any]) -> Edited:
    """An edit that `EditSession` knows: suppress, scale, rename, pin, set_weight, zero_weight, merge."""
    session = EditSession(state.model)
    getattr(session, action)(**arguments)
    entry = session.log[-1].to_dict()
    return Edited(_followed(replace(state, model=session.model()), entry), entry)


def comes_back(state: State, name: str, text: str | None) -> bool:
    """Is this a concept of the list that the model left out, by its own words?"""
    return text in (None, name) and name in state.texts.names and name not in state.model.names


def add_words(state: State, name: str, text: str | None, embed: Embed) -> Edited:
    """One more concept, by words (None: its name); it says nothing until the model is refitted."""
    name, texts = name.strip(), state.texts
    if comes_back(state, name, text):
        row = texts.embeddings[texts.index(name)]
    else:
        row = embed(text or name)
        texts = _joined(_without(texts, name), name, row)
    model = EditSession(state.model).add(name, row).model()
    entry = {"action": "add", "name": name, "text": text or name}
    kept = _other(state.removed, name)
    return Edited(State(with_entry(model, state.model, entry), texts, state.pinned, kept), entry)


def teach(
    state: State, name: str, shows: Sequence[int], lacks: Sequence[int], photos: Photos, text: np.ndarray | None
) -> Edited:
    """A concept out of photos that show it and photos that do not; one of that name is learned anew, its weights stay.

    `text` draws it toward its words, the more the fewer the photos.
    """
    name = name.strip()
    shows, lacks = list(dict.fromkeys(shows)), list(dict.fromkeys(lacks))  # a photo counts once
    both = sorted(set(shows) & set(lacks))
    if both:
        raise CCRError(f"a photo cannot both show {name!r} and lack it, got photo {both[0]}: take one mark away")
    rows = [np.asarray(photos.store[[photos.check_row(row) for row in marked]]) for marked in (shows, lacks)]
    among = _without(state.texts, name)
    # As `Concepts.from_examples` measures texts: from the mean of the list that the concept joins.
    own = None if text is None else text / np.linalg.norm(text) - among.embeddings.mean(axis=0)
    moments = photos.moments
    learned = learn_direction(*rows, text=own, mean=moments.mean, covariance=moments.covariance)
    placed = among.with_direction(name, learned.direction)
    model, row = _replaced(state, name, placed.embeddings[-1]), placed.embeddings[-1]
    entry = {"action": "teach", "name": name, "shows": len(shows), "lacks": len(lacks), "error": learned.error}
    kept = _other(state.removed, name)
    return Edited(State(with_entry(model, state.model, entry), _joined(among, name, row), state.pinned, kept), entry)


def _replaced(state: State, name: str, row: np.ndarray) -> Any:
    """The model with a concept of this name where its photos put it."""
    session, weights = EditSession(state.model), {}
    if name in state.model.names:
        column = state.model.head.coef[:, state.model.row(name)]
        weights = {label: float(w) for label, w in zip(state.model.classes.tolist(), column, strict=True) if w}
        held = f"{name} (before)"
        session.rename(name, held).add(name, row, weights=weights).suppress(held)
    else:
        session.add(name, row)
    return session.model()


def _followed(state: State, entry: Mapping[str, Any]) -> State:
    """The whole list and the decisions after an edit of the model."""
    action, texts = entry["action"], state.texts
    if action == "rename" and entry["concept"] in texts.names:
        names = [entry["to"] if name == entry["concept"] else name for name in texts.names]
        pinned = tuple(entry["to"] if name == entry["concept"] else name for name in state.pinned)
        removed = _other(state.removed, entry["to"])
        return replace(state, texts=Concepts(_unique(names), texts.embeddings), pinned=pinned, removed=removed)
    if action == "suppress":
        gone = entry["concept"]
        return replace(
            state, texts=_without(texts, gone), pinned=_other(state.pinned, gone), removed=(*state.removed, gone)
        )
    if action == "merge":
        merged = texts_of(state.model)
        name = entry.get("name") or entry["first"]
        left = _without(_without(_without(texts, entry["first"]), entry["second"]), name)
        joined = _joined(left, name, merged.embeddings[merged.index(name)])
        pinned = _other(_other(state.pinned, entry["first"]), entry["second"])
        return replace(state, texts=joined, pinned=pinned, removed=_other(state.removed, name))
    if action == "pin":
        return replace(state, pinned=tuple(dict.fromkeys([*state.pinned, entry["concept"]])))
    return state


def _other(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    """The names that are not this one."""
    return tuple(one for one in names if one != name)


def _unique(names: list[str]) -> list[str]:
    """Of a name that a concept had which the model left out, the renamed one keeps it."""
    if len(set(names)) != len(names):
        raise CCRError("another concept of the list has that name already: choose another name")
    return names


def _without(texts: Concepts, name: str) -> Concepts:
    rows = [row for row, known in enumerate(texts.names) if known != name]
    if not rows:
        raise CCRError(f"{name!r} is the only concept: add others first")
    return texts if len(rows) == len(texts) else texts.subset(rows)


def _joined(texts: Concepts, name: str, row: Any) -> Concepts:
    return Concepts(
        [*texts.names, name], np.concatenate([texts.embeddings, np.asarray(row, np.float32).reshape(1, -1)])
    )


def plain_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry of the log in types that JSON has."""
    return {str(key): plain(value) for key, value in entry.items()}
