"""Workbench: a store, the model as it is now, and everything that was done to it; what all pages are made from."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ccr.data.store import EmbeddingStore
from ccr.errors import CCRError, WriteError
from ccr.io.files import ASIDE
from ccr.io.format import is_model_folder
from ccr.model import ConceptModel
from ccr.review import Decisions, Review, sign
from ccr.review.decisions import Policy
from ccr_studio.cache import Recent
from ccr_studio.encoder import Places, Uploads, Words
from ccr_studio.filters import Selections
from ccr_studio.layout import Layout
from ccr_studio.photos import Photos, Thumbnails
from ccr_studio.seen import PlacedPhotos, SeenModel
from ccr_studio.work import edits
from ccr_studio.work.corrections import LOG as CORRECTIONS
from ccr_studio.work.corrections import Corrections, Kind, photo_name
from ccr_studio.work.refits import Folds, Job, RefitKind, Refits
from ccr_studio.work.session import HONEST, SESSION, Step, StudioSession, StudioState, with_entry

#: Models whose columns are kept: the current one, those around it, and what it is compared with.
KEPT_SEEN = 4
#: The log of decisions in a session's folder, where no other is given: it belongs to no step, so undo leaves it alone.
DECISIONS = "decisions.jsonl"
#: Names of saved models.
NAME = re.compile(r"[\w][\w .-]{0,79}")


class ReadOnly(CCRError):
    """The studio only shows."""


class NameTaken(CCRError):
    """A model of that name is there already."""


class OtherStep(CCRError):
    """Another step was taken than the one that was meant."""


class SavedModel(NamedTuple):
    """The step whose model was saved, and the place."""

    version: str
    path: Path


class Workbench:
    """One person's work on one model. Reading takes `now()` once and never mixes two models; changes take turns.

    Parameters
    ----------
    store : the photos.
    base : the model to begin with; None where the session in `folder` exists already.
    folder : of the session: it is on disk after every step.
    models : the folder in which models are saved, and others found to compare with.
    load_encoder : gives the store's encoder.
    read_only : refuse every change.
    decides : answers of reviewers are taken all the same: they belong to no step.
    policy : how many reviewers must agree on a claim.
    log : the log of reviewers' decisions; None is one in `folder`.
    fitted_here : the base was fitted by `serving.first_model`.
    """

    def __init__(
        self,
        store: EmbeddingStore,
        base: ConceptModel | None,
        *,
        folder: Path,
        models: Path,
        load_encoder: Callable[[], Any],
        title: str = "",
        read_only: bool = False,
        fitted_here: bool = False,
        decides: bool = False,
        policy: Policy = "one",
        log: Path | None = None,
    ) -> None:
        self.log = folder / DECISIONS if log is None else log
        self.decisions, self.decides, self.policy = Decisions(self.log), decides or not read_only, policy
        self.title, self.models, self.read_only, self.folder = title or store.path.name, models, read_only, folder
        self.photos = Photos(store)
        self.session, self.state = StudioSession.open(folder, base, fitted_here=fitted_here, read_only=read_only)
        self.corrections = Corrections(folder / CORRECTIONS, store.paths)
        self._uncorrected, self.revision = self.photos, 0
        self.photos = self.photos.corrected(self.corrections.labels, self.corrections.left_out)
        self._placed = PlacedPhotos(self.photos)
        self._seen: Recent[str, SeenModel] = Recent(KEPT_SEEN)
        self._written: dict[str, int] = {}  # when saved models that were seen were written
        self._followed = _written_at(folder / SESSION)
        self._changing, self._looking = threading.RLock(), threading.Lock()
        self.state.model.images(store)  # photos of another encoder are refused here
        self._now: SeenModel | None = None  # until the first change
        self._opening = ThreadPoolExecutor(1).submit(self._see, self.state.model, self._version())
        self.words = Words(load_encoder)
        self.uploads = Uploads(self.words)
        self.places = Places(self.photos, self.words, self.uploads)
        self.thumbnails = Thumbnails(store, folder, keep=not read_only)
        self.layout = Layout(self.photos, folder.parent, keep=not read_only)
        self.selections = Selections(self.photos, None if read_only else folder / "selections")
        self.refits = Refits(self.photos, folder / "refit")
        self.folds = Folds(folder / "folds", compute=not read_only)
        self._held: tuple[SeenModel, SeenModel] | None = None
        self.lock: ExitStack | None = None  # held while this studio may write the session

    def start(self) -> None:
        """Load in the background what will be needed soon."""
        self.words.start()
        if not self.read_only:
            self.refits.start()

    def close(self) -> None:
        """End what was started."""
        self.refits.close()
        self.folds.close()
        self.layout.close()
        if self.lock is not None:
            self.lock.close()

    def now(self) -> SeenModel:
        """The model as it is now, on all photos. The first one is made in the background, while the pages are."""
        self._follow()
        if self.corrections.refresh():
            self._correct()
        current = self._now
        return self._opening.result() if current is None else current

    def shown(self, *, held: bool, begin: bool = True) -> SeenModel:
        """The model as it is now; `held`: with the predictions, where they are there, of refits that have not seen the
        photo instead of its own, for photos that refits train or are measured on. Asking begins them."""
        seen = self.now()
        found = self.folds.of(seen, begin=begin) if held else None
        if found is None:
            return seen
        known = self._held
        if known is None or known[0] is not seen:
            known = self._held = (seen, seen.predicting(found.rows, found.predicted, found.confidence))
        return known[1]

    def correct(self, row: int, kind: Kind, answer: str, *, concept: str = "", by: str = "") -> SeenModel:
        """Note what somebody says of a photo; labels and photos left out count at once, answers from a refit on."""
        self.check_may_decide()
        if kind != "concept":
            self.check_writable()
        row, seen = self.photos.check_row(row), self.now()
        if row in self._uncorrected.test and answer:
            raise CCRError("this is a test photo: a model that learned from it could not be tested on it any more")
        if kind == "label" and answer:
            seen.number(answer)
        if kind == "concept":
            concept = seen.model.names[seen.model.row(concept)]
        name = photo_name(self.photos.store.paths, row)
        self.corrections.add(row, name, kind, answer, concept=concept, by=by)
        self._correct()
        return self.now()

    def _correct(self) -> None:
        """Take up labels and photos left out that are others now."""
        with self._changing:
            self.revision += 1
            labels, left_out = self.corrections.labels, self.corrections.left_out
            made = self._uncorrected.corrected(labels, left_out)
            if np.array_equal(made.labelled, self.photos.labelled) and made.labels_equal(self.photos):
                return
            now = self._opening.result() if self._now is None else self._now
            self.photos = self._placed.photos = self.refits.photos = made
            self._seen.clear()
            self._now = self._see(now.model, now.version, like=now)

    def snapshot(self) -> tuple[SeenModel, StudioState, StudioSession]:
        """Consistent snapshot of the model as seen, its state and its session, taken under the lock."""
        with self._changing:
            return self.now(), self.state, self.session

    def _follow(self) -> None:
        """Take up the steps of another studio, which writes the session that this one only shows."""
        if not self.read_only:
            return
        written = _written_at(self.folder / SESSION)
        with self._changing:
            if written in (0, self._followed):
                return
            try:
                session, state = StudioSession.open(self.folder, None, read_only=True)
                seen = self._see(state.model, str(session.current.id))
            except (CCRError, OSError):
                return  # a step is being taken just now: the next question finds it
            self.session, self.state, self._now, self._followed = session, state, seen, written

    def at(self, version: str) -> SeenModel:
        """An earlier step's model, or a saved one (`saved:NAME`), on all photos."""
        if version.startswith("saved:"):
            return self._saved(version)
        if version == HONEST and self._honest.is_dir():
            return self._seen.get(version) or self._see(ConceptModel.load(self._honest), version)
        known = self._seen.get(version)
        if known is not None:
            return known
        return self._see(self.session.state(self.session.find(version)).model, version)

    def _saved(self, version: str) -> SeenModel:
        """A saved model on all photos, seen anew if another one was put in its place."""
        path = self.saved_path(version[6:])
        written = _written_at(path / "config.json")
        if self._written.get(version) != written:
            with self._looking:
                self._seen.forget(version)
                self._written[version] = written
        known = self._seen.get(version)
        return known if known is not None else self._see(ConceptModel.load(path), version)

    def base(self) -> SeenModel:
        """The model as it was opened."""
        return self.at(str(self.session.steps[0].id))

    def honest(self) -> SeenModel | None:
        """The opened model fitted again on the training photos alone, if it is from outside and that was done."""
        opened = str(self.session.steps[0].id)
        return self.at(HONEST) if self.session.flattered(opened) and self._honest.is_dir() else None

    @property
    def _honest(self) -> Path:
        return self.folder / HONEST

    def edit(self, action: str, arguments: Mapping[str, Any]) -> SeenModel:
        """Do one edit; it is on disk when this returns."""
        return self._change(lambda state: edits.simple_edit(state, action, arguments))

    def add(self, name: str, text: str | None = None) -> SeenModel:
        """Add a concept by its words."""
        self.check_writable()
        name, text = name.strip(), text or None
        if not edits.comes_back(self.state, name, text):
            self.words.embed(text or name)  # before others have to wait for this change
        return self._change(lambda state: edits.add_words(state, name, text, self.words.embed))

    def teach(self, name: str, shows: list[int], lacks: list[int]) -> SeenModel:
        """Teach a concept by photos, and by its name if the encoder is there."""
        self._check_free()  # before words are embedded, and kept on disk
        text = self.words.embed(name) if self.words.available else None
        return self._change(lambda state: edits.teach(state, name, shows, lacks, self.photos, text))

    def undo(self, by: int = -1, *, expected: str | None = None) -> SeenModel:
        """One step back, or forth; `expected` is the version that must be the current one."""
        with self._changing:
            self._check_free()
            if expected is not None and expected != self._version():
                raise OtherStep("another step was taken meanwhile, and nothing was undone: look at it first")
            step = self.session.beside(by)
            state = self.session.state(step)  # one that cannot be read is not moved to
            seen = self._see(state.model, str(step.id))
            self.session.move(by)
            self.state, self._now = state, seen
            return seen

    def review(self, model: ConceptModel) -> Review:
        """The review of a model, with what reviewers have decided by now."""
        self.decisions.refresh()
        return Review(model, self.decisions, policy=self.policy)

    def refit(self, kind: RefitKind, settings: dict[str, Any]) -> Job:
        """Begin a refit in the background: of the head alone, or from the concepts' texts on, with what reviewers
        decided."""
        self._check_free()
        knowledge = None
        if kind == "full":
            self._whole_list(self.state)  # embedded before others have to wait for it
            knowledge = self.review(self.now().model).knowledge()
        with self._changing:
            self._check_free()
            if kind == "full":
                self.state = self._whole_list(self.state)
            model, first = self.session.place(self.session.current) / "model", self.session.steps[0]
            wanted = kind == "full" and self.session.flattered(str(first.id)) and not self._honest.is_dir()
            opened = self.session.place(first) if wanted else None
            submit = partial(self.refits.submit, opened=opened, knowledge=knowledge, said=self.corrections)
            return submit(kind, self.state, model, settings, self._adopt)

    def save(self, name: str) -> SavedModel:
        """Save the model as it is now under a new name: of several who take one name at once, one gets it."""
        self.check_writable()
        path, seen = self.saved_path(name), self.now()
        aside = path.with_name(f"{ASIDE}{secrets.token_hex(8)}")
        try:
            _check_free_name(path)
            seen.model.save(aside)
            # In one step, and not onto a folder with something in it: another process may have come first.
            os.rename(aside, path)
        except OSError as error:
            _check_free_name(path)
            raise WriteError(
                error.errno, f"{path} cannot be written ({error.strerror}): choose another name"
            ) from error
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        return SavedModel(seen.version, path)

    def saved(self) -> list[str]:
        """Names of the models that lie where models are saved."""
        try:
            folders = sorted(path for path in self.models.iterdir() if path.is_dir())
        except OSError:
            return []
        return [path.name for path in folders if NAME.fullmatch(path.name) and is_model_folder(path)]

    def saved_path(self, name: str) -> Path:
        """Place of a model of this name; names that could lead elsewhere are refused."""
        if not NAME.fullmatch(name) or name.endswith("."):
            raise CCRError(f"a model's name has letters, digits, spaces, dots and dashes, at most 80, got {name!r}")
        return self.models / name

    def look_at_test(self, what: str) -> int:
        """Count a look at the test photos."""
        if self.read_only:
            return self.session.looks
        with self._changing:
            return self.session.look_at_test(what)

    def check_writable(self) -> None:
        if self.read_only:
            raise ReadOnly("this studio was started with --read-only: it shows and changes nothing")

    def check_may_decide(self) -> None:
        """Refuse reviewers' answers where this studio may only be looked at."""
        if not self.decides:
            raise ReadOnly("this studio was started with --read-only: start it with --review to answer claims")

    def sign(self, by: str) -> SeenModel:
        """Sign the model as it is now; an error where a claim is not confirmed."""

        def signed(state: StudioState) -> edits.Edited:
            model = sign(state.model, self.decisions, by=by, policy=self.policy)
            return edits.Edited(replace(state, model=model), {"action": "sign", "name": by})

        return self._change(signed)

    def _check_free(self) -> None:
        self.check_writable()
        if self.refits.running:
            raise CCRError("a refit is running: wait for it, or stop it first")

    def _change(self, change: Callable[[StudioState], edits.Edited]) -> SeenModel:
        with self._changing:
            self._check_free()
            state, entry = change(self.state)
            return self._take(state, entry)

    def _take(self, state: StudioState, entry: Mapping[str, Any]) -> SeenModel:
        """Make a state the current one: seen first, so that one that cannot be used is no step; then on disk."""
        version = str(self.session.next)
        seen = self._see(state.model, version, like=self.now())
        try:
            self.session.add(state, edits.plain_entry(entry))
        except BaseException:
            self._seen.forget(version)  # the number will be another step's
            raise
        self.state, self._now = state, seen
        return seen

    def _adopt(self, job: Job, model: ConceptModel) -> str:
        """Make a refit's model the current one."""
        with self._changing:
            if job.state != "running":
                raise CCRError("it was stopped")
            if job.kind == "full":
                kept = {key: value for key, value in job.settings.items() if value is not None}
                entry: dict[str, Any] = {"action": "fit", "images": len(self.photos.training), **kept}
                model = with_entry(model, self.state.model, entry)
                made = self.refits.folder / HONEST
                if made.is_dir() and not self._honest.exists():
                    os.rename(made, self._honest)
            else:
                entry = dict(model.provenance.edits[-1])
            return self._take(replace(self.state, model=model), entry).version

    def _whole_list(self, state: StudioState) -> StudioState:
        """State with the concepts that a model of an older version left out, if the encoder can embed them again."""
        left = [name for name in state.model.provenance.left_out if name not in {*state.texts.names, *state.removed}]
        if not left or not self.words.available:
            return state
        rows = self.words.embed_all(left)
        texts = type(state.texts)([*state.texts.names, *left], np.concatenate([state.texts.embeddings, rows]))
        return replace(state, texts=texts)

    def _see(self, model: ConceptModel, version: str, *, like: SeenModel | None = None) -> SeenModel:
        known = self._seen.get(version)
        if known is not None:
            return known
        return self._seen.put(version, SeenModel(model, version, self._placed, like=like))

    def _version(self) -> str:
        return str(self.session.current.id)


def _written_at(path: Path) -> int:
    """Time at which a file was written, in nanoseconds; 0 where there is none."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _check_free_name(path: Path) -> None:
    if os.path.lexists(path):
        raise NameTaken(f"{path} exists already: choose another name")


def step_words(step: Step) -> str:
    """A step in a few words, for a menu."""
    edit = step.edit
    named = edit.get("concept") or edit.get("name") or edit.get("first") or ""
    words = {
        "open": "as it was opened",
        "fit": f"refitted on {edit.get('images')} photos",
        "refit": f"head refitted on {edit.get('images')} photos",
        "rename": f"{named} renamed {edit.get('to')}",
        "scale": f"{named} scaled by {edit.get('factor')}",
        "teach": f"{named} taught by {_count(edit.get('shows'))} + {_count(edit.get('lacks'))} photos",
        "set_weight": f"{named} weighs {edit.get('value')} for {edit.get('class')}",
        "zero_weight": f"{named} is never a reason for {edit.get('class')}",
        "sign": f"signed by {named}",
        "suppress": f"{named} suppressed",
        "add": f"{named} added",
        "pin": f"{named} pinned to its words",
    }
    return words.get(str(edit["action"]), f"{named}: {edit['action']}")


def _count(photos: Any) -> int:
    """How many photos an entry of the log names; older ones kept the number alone."""
    return photos if isinstance(photos, int) else len(photos or ())
