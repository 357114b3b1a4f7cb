"""Edits of a model in the studio, each a function from one state to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ccr.concepts import Concepts
from ccr.edit import EditSession
from ccr.errors import CCRError
from ccr.explain.terms import plain
from ccr.knowledge.grounding import learn_direction
from ccr.model import ConceptModel
from ccr_studio.photos import Photos
from ccr_studio.work.session import StudioState, with_entry

Embed = Callable[[str], np.ndarray]


class Edited(NamedTuple):
    """The state after an edit, and its entry in the log."""

    state: StudioState
    entry: dict[str, Any]


def simple_edit(state: StudioState, action: str, arguments: Mapping[str, Any]) -> Edited:
    """An edit that `EditSession` knows: suppress, scale, rename, pin, set_weight, zero_weight."""
    session = EditSession(state.model)
    getattr(session, action)(**arguments)
    entry = session.log[-1].to_dict()
    return Edited(_followed(replace(state, model=session.model()), entry), entry)


def comes_back(state: StudioState, name: str, text: str | None) -> bool:
    """Is this a concept of the list that the model left out, by its own words?"""
    return text in (None, name) and name in state.texts.names and name not in state.model.names


def add_words(state: StudioState, name: str, text: str | None, embed: Embed) -> Edited:
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
    return Edited(replace(state, model=with_entry(model, state.model, entry), texts=texts, removed=kept), entry)


@dataclass(frozen=True)
class Lesson:
    """The photos that taught a concept, and the leave-one-out error: the share of them on the wrong side."""

    shows: tuple[int, ...]
    lacks: tuple[int, ...]
    error: float | None


def lesson_of(model: ConceptModel, name: str) -> Lesson:
    """The lesson that a concept learned last, under the name it has now; of none, one without photos."""
    found: dict[str, Lesson] = {}
    for entry in model.provenance.edits:
        if entry["action"] == "teach":
            given = (entry.get(side) for side in ("shows", "lacks"))  # of older versions: their number alone
            shows, lacks = (tuple(side) if isinstance(side, Sequence) else () for side in given)
            found[entry["name"]] = Lesson(shows, lacks, entry.get("error"))
        elif entry["action"] == "rename" and entry["concept"] in found:
            found[entry["to"]] = found.pop(entry["concept"])
        elif entry["action"] == "suppress":
            found.pop(entry["concept"], None)
    return found.get(name, Lesson((), (), None))


def teach(
    state: StudioState, name: str, shows: Sequence[int], lacks: Sequence[int], photos: Photos, text: np.ndarray | None
) -> Edited:
    """A concept out of photos that show it and photos that do not; one of that name is learned anew, its weights stay.

    `text` draws it toward its words, the more the fewer the photos. The photos of its last lesson count again, unless
    they are given the other way round now.
    """
    name = name.strip()
    shows, lacks = list(dict.fromkeys(shows)), list(dict.fromkeys(lacks))  # a photo counts once
    both = sorted(set(shows) & set(lacks))
    if both:
        raise CCRError(f"a photo cannot both show {name!r} and lack it, got photo {both[0]}: take one mark away")
    before = lesson_of(state.model, name)
    shows, lacks = (
        list(dict.fromkeys([*(row for row in earlier if row not in other), *now]))
        for earlier, now, other in ((before.shows, shows, lacks), (before.lacks, lacks, shows))
    )
    rows = [np.asarray(photos.store[[photos.check_row(row) for row in marked]]) for marked in (shows, lacks)]
    among = _without(state.texts, name)
    # As `Concepts.from_examples` measures texts: from the mean of the list that the concept joins.
    own = None if text is None else text / np.linalg.norm(text) - among.embeddings.mean(axis=0)
    moments = photos.moments
    learned = learn_direction(*rows, text=own, mean=moments.mean, covariance=moments.covariance)
    placed = among.with_direction(name, learned.direction)
    model, row = _replaced(state, name, placed.embeddings[-1]), placed.embeddings[-1]
    entry = {"action": "teach", "name": name, "shows": shows, "lacks": lacks, "error": learned.error}
    model, texts = with_entry(model, state.model, entry), _joined(among, name, row)
    return Edited(replace(state, model=model, texts=texts, removed=_other(state.removed, name)), entry)


def _replaced(state: StudioState, name: str, row: np.ndarray) -> Any:
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


def _followed(state: StudioState, entry: Mapping[str, Any]) -> StudioState:
    """The whole list and the decisions after an edit of the model."""
    action, texts = entry["action"], state.texts
    if action == "rename" and entry["concept"] in texts.names:
        names = [entry["to"] if name == entry["concept"] else name for name in texts.names]
        pinned = tuple(entry["to"] if name == entry["concept"] else name for name in state.pinned)
        removed = _other(state.removed, entry["to"])
        claims = tuple((entry["to"] if one == entry["concept"] else one, a, b) for one, a, b in state.claims)
        texts = Concepts(_unique(names), texts.embeddings)
        return replace(state, texts=texts, pinned=pinned, removed=removed, claims=claims)
    if action in ("zero_weight", "set_weight"):
        return replace(state, claims=_decided(state, entry))
    if action == "suppress":
        gone = entry["concept"]
        return replace(
            state, texts=_without(texts, gone), pinned=_other(state.pinned, gone), removed=(*state.removed, gone)
        )
    if action == "pin":
        return replace(state, pinned=tuple(dict.fromkeys([*state.pinned, entry["concept"]])))
    return state


def _decided(state: StudioState, entry: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
    """The claims after a weight was set by hand: zero forbids it in every refit, another value permits it again."""
    pair = (str(entry["concept"]), str(entry["class"]))
    others = tuple(claim for claim in state.claims if claim[:2] != pair)
    if entry["action"] == "zero_weight" or not entry["value"]:
        return (*others, (*pair, "no"))
    return (*others, (*pair, "unknown")) if len(others) < len(state.claims) else state.claims


def _other(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    """The names that are not this one."""
    return tuple(one for one in names if one != name)


def _unique(names: list[str]) -> list[str]:
    """Check that names are unique: no concept may take the name of another one, even one that the model left out."""
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
