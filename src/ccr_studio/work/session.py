"""StudioSession: the steps of one person's work on a model, on disk after every one of them."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ccr.concepts import Concepts
from ccr.errors import CCRError, FormatError, WriteError
from ccr.io.files import (
    check_writable,
    format_errors,
    map_array,
    read_object,
    remove_leftovers,
    write_bytes,
    write_json,
)
from ccr.io.format import is_edit, stored_concepts
from ccr.io.provenance import whole_list
from ccr.model import ConceptModel
from ccr.utils.texts import timestamp
from ccr_studio.cache import npy

FORMAT, FORMAT_VERSION = "ccr-studio-session", 1
SESSION = "session.json"
#: The version, and the folder, of the opened model fitted again on the training photos alone.
HONEST = "honest"
#: Steps that can be undone; older ones stay in the models' logs.
MOST_STEPS = 60
REMEDY = "move the folder away to begin a new session"


@dataclass(frozen=True, eq=False)
class StudioState:
    """Result of a step: the model, the full concept list that a refit starts from, and decisions about concepts.

    `texts` holds the list's text embeddings, also of concepts that the model left out; `pinned` and `removed`
    are names. `claims` are (concept, class, answer): "no" forbids the weight in every refit, "unknown" permits it
    again.
    """

    model: ConceptModel
    texts: Concepts
    pinned: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    claims: tuple[tuple[str, str, str], ...] = ()

    @classmethod
    def of(cls, model: ConceptModel) -> StudioState:
        """The state of a model that nobody worked on yet."""
        texts = whole_list(model.provenance)
        if texts is None:
            raise CCRError(
                "the model does not know its concepts' text embeddings, so it cannot be edited: fit it again"
            )
        return cls(model, texts)


@dataclass(frozen=True)
class Step:
    """One step: what was done, when, and under which number its state is kept."""

    id: int
    edit: Mapping[str, Any]
    at: str


@dataclass
class StudioSession:
    """Steps in the order they were taken; `position` is the current one. The first is the model as it was opened."""

    folder: Path
    steps: list[Step]
    position: int
    next: int
    looks: int = 0
    looked: list[str] = field(default_factory=list)
    held: StudioState | None = None  # of a session that is only shown, and not on disk

    @classmethod
    def open(
        cls, folder: Path, base: ConceptModel | None, *, fitted_here: bool = False, read_only: bool = False
    ) -> tuple[StudioSession, StudioState]:
        """The session in a folder, where it was left; a new one on `base` where there is none.

        `fitted_here`: on the photos that the studio trains on, so that it does not know the validation photos.
        `read_only`: another studio may be writing there, and this one need not be allowed to.
        """
        if not read_only:
            check_writable(folder)
        if (folder / SESSION).is_file():
            session = cls._read(folder)
            if not read_only:
                remove_leftovers(folder)
            return session, session.state()
        if base is None:
            raise CCRError(f"{folder} holds no session yet: give a model to begin with")
        state, edit = StudioState.of(base), {"action": "open", "fitted_here": fitted_here}
        if read_only:
            return cls(folder, [Step(0, edit, timestamp())], 0, 1, held=state), state
        session = cls(folder, [], -1, 0)
        session.add(state, edit)
        return session, state

    @property
    def current(self) -> Step:
        return self.steps[self.position]

    @property
    def can_undo(self) -> bool:
        return self.position > 0

    @property
    def can_redo(self) -> bool:
        return self.position < len(self.steps) - 1

    def flattered(self, version: str | None = None) -> bool:
        """Whether a step's model, by default the current one, may have been trained on the validation photos: true of
        one from outside until it is refitted here. Models that are no step of the session are from outside."""
        ids = [str(step.id) for step in self.steps]
        if version == HONEST:
            return False
        if version is not None and version not in ids:
            return True
        taken = self.steps[: (self.position if version is None else ids.index(version)) + 1]
        return not any(step.edit.get("fitted_here") or step.edit["action"] == "fit" for step in taken)

    def add(self, state: StudioState, edit: Mapping[str, Any]) -> Step:
        """Keep a new state after the current one; what was undone is gone."""
        step = Step(self.next, dict(edit), timestamp())
        self._write_state(step, state)
        steps, dropped = [*self.steps[: self.position + 1], step], self.steps[self.position + 1 :]
        while len(steps) > MOST_STEPS:
            dropped.append(steps.pop(1))  # the first is the model as it was opened
        self._keep(replace(self, steps=steps, position=len(steps) - 1, next=self.next + 1))
        for gone in dropped:
            shutil.rmtree(self.place(gone), ignore_errors=True)
        return step

    def beside(self, by: int) -> Step:
        """The step before the current one (-1) or after it (1)."""
        if not 0 <= self.position + by < len(self.steps):
            raise CCRError("there is nothing to undo" if by < 0 else "there is nothing to redo")
        return self.steps[self.position + by]

    def move(self, by: int) -> Step:
        """One step back (-1) or forth (1)."""
        self.beside(by)
        self._keep(replace(self, position=self.position + by))
        return self.current

    def state(self, step: Step | None = None) -> StudioState:
        """Load the state that a step left, by default the current step."""
        if self.held is not None:
            return self.held
        step = self.current if step is None else step
        place = self.place(step)
        model = ConceptModel.load(place / "model")
        notes = read_object(place / "list.json", "be the list of a step", REMEDY)
        rows = map_array(place / "list.npy", "be the embeddings of a step", REMEDY)
        with format_errors(place, "hold a step of a session", REMEDY):
            names = [str(name) for name in notes["names"]]
            if rows.shape != (len(names), model.dimension):  # before they are read
                raise ValueError(f"{len(names)} concepts have embeddings of shape {rows.shape}")
            texts = stored_concepts(names, np.array(rows))
            claims = tuple((str(a), str(b), str(c)) for a, b, c in notes.get("claims", ()))
            pinned, removed = (tuple(map(str, notes[name])) for name in ("pinned", "removed"))
            return StudioState(model, texts, pinned, removed, claims)

    def find(self, version: str) -> Step:
        """The step that answers name by this version."""
        for step in self.steps:
            if str(step.id) == version:
                return step
        raise CCRError(f"the session has no step {version!r}: it has {', '.join(str(step.id) for step in self.steps)}")

    def look_at_test(self, what: str) -> int:
        """Count a look at the test images; the same look at the same model counts once."""
        if what not in self.looked:
            self._keep(replace(self, looked=[*self.looked, what], looks=self.looks + 1))
        return self.looks

    def _write_state(self, step: Step, state: StudioState) -> None:
        place = self.place(step)
        state.model.save(place / "model")
        write_bytes(place / "list.npy", npy(np.asarray(state.texts.embeddings, np.float32)))
        kept = {"names": list(state.texts.names), "pinned": list(state.pinned), "removed": list(state.removed)}
        write_json(place / "list.json", {**kept, "claims": [list(claim) for claim in state.claims]})

    def place(self, step: Step) -> Path:
        """The folder of a step's state."""
        return self.folder / "steps" / f"{step.id:05d}"

    def _keep(self, changed: StudioSession) -> None:
        """Become what is written: if that fails, the session is still what stands on disk."""
        try:
            write_json(self.folder / SESSION, changed._content())
        except WriteError:
            if not changed._stands():  # it is in place already where only its folder could not be synced
                raise
        self.__dict__.update(vars(changed))

    def _stands(self) -> bool:
        """Whether the file on disk says what this session is."""
        try:
            found = read_object(self.folder / SESSION, "be the JSON of a session", REMEDY)
        except FormatError:
            return False
        return found == json.loads(json.dumps(self._content()))

    def _content(self) -> dict[str, Any]:
        steps = [{"id": step.id, "edit": dict(step.edit), "at": step.at} for step in self.steps]
        content = {"format": FORMAT, "format_version": FORMAT_VERSION, "steps": steps, "position": self.position}
        return {**content, "next": self.next, "looks": self.looks, "looked": self.looked}

    @classmethod
    def _read(cls, folder: Path) -> StudioSession:
        path = folder / SESSION
        content = read_object(path, "be the JSON of a session", REMEDY)
        if content.get("format") != FORMAT or content.get("format_version") != FORMAT_VERSION:
            raise FormatError(f"{path} is of another program or version: {REMEDY}")
        with format_errors(path, "be a session", REMEDY):
            steps = [Step(int(one["id"]), dict(one["edit"]), str(one["at"])) for one in content["steps"]]
            position, following = int(content["position"]), int(content["next"])
            if not 0 <= position < len(steps) or following <= max(step.id for step in steps):
                raise ValueError("its position is not among its steps")
            if not all(is_edit(step.edit) for step in steps):
                raise ValueError("its steps are not a list of actions")
            return cls(folder, steps, position, following, int(content["looks"]), list(map(str, content["looked"])))


def check_links(folder: Path) -> None:
    """An error for links in a session that is to be written: one from elsewhere would choose what is written over."""
    for place in (folder, folder / "steps"):
        for entry in place.iterdir() if place.is_dir() else ():
            if entry.is_symlink():
                raise FormatError(f"{entry} is a link, and a session is written where it lies: {REMEDY}")


def with_entry(model: ConceptModel, before: ConceptModel, entry: Mapping[str, Any]) -> ConceptModel:
    """The model with its edits those of the one before and this one more."""
    return replace(model, provenance=replace(model.provenance, edits=(*before.provenance.edits, dict(entry))))


def session_folder(parent: Path, *parts: str) -> Path:
    """A folder of its own for what is worked on: each store and model has its own session."""
    digest = hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:12]
    return parent / digest
