"""Refits in the background: one job at a time, stopped at once when asked to, and the process that works on it.

The process reads jobs as lines of JSON and answers with lines of JSON. It keeps pages quick while it works, and ends
with the studio.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TextIO

import numpy as np

from ccr import kernels
from ccr.coding import Coder, HardThreshold, ThresholdRule
from ccr.data.store import EmbeddingStore
from ccr.edit import EditSession
from ccr.errors import CCRError, CCRWarning, FormatError
from ccr.io.files import map_array, read_object, write_bytes, write_json
from ccr.io.format import stored_concepts
from ccr.io.provenance import whole_list
from ccr.knowledge import Answer, Knowledge
from ccr.metrics import finite
from ccr.model import ConceptModel
from ccr.refine import Epoch
from ccr.review import out_of_fold
from ccr.review.rounds import FEWEST_IMAGES
from ccr.utils.processes import isolated_python
from ccr.utils.texts import timestamp
from ccr_studio.cache import Computation, npy, read_order
from ccr_studio.photos import Photos
from ccr_studio.seen import SeenModel
from ccr_studio.work.corrections import Corrections
from ccr_studio.work.session import StudioState

RefitKind = Literal["full", "head"]
JobState = Literal["running", "done", "failed", "cancelled"]
REFIT_PROGRAM = "from ccr_studio.work.refits import refit; refit()"


@dataclass
class Job:
    """A refit: `curve` has one line for each epoch of `epochs`; `version` is the step that it became.

    `adopting`: its model is being made the current one, too late to stop it.
    """

    id: int
    kind: RefitKind
    settings: dict[str, Any]
    state: JobState = "running"
    curve: list[dict[str, Any]] = field(default_factory=list)
    epochs: int = 0
    message: str = ""
    version: str | None = None
    adopting: bool = False
    started: float = field(default_factory=time.monotonic)
    ended: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds that it took, or takes already."""
        return (time.monotonic() if self.ended is None else self.ended) - self.started

    def end(self, state: JobState, message: str = "") -> None:
        """Note how it ended."""
        self.state, self.message, self.ended = state, message, time.monotonic()


class Refits:
    """The worker process, started ahead of time, and the job that it works on."""

    def __init__(self, photos: Photos, folder: Path) -> None:
        self.photos, self.folder = photos, folder
        self.job: Job | None = None
        self._lock = threading.RLock()
        self._worker: subprocess.Popen[str] | None = None
        self._ready = threading.Event()
        self._done: Callable[[Job, ConceptModel], str] | None = None
        self._count = 0

    @property
    def running(self) -> bool:
        return self.job is not None and self.job.state == "running"

    def start(self) -> None:
        """Start the worker, so that it is there when it is needed."""
        with self._lock:
            if self._worker is not None and self._worker.poll() is None:
                return
            self._ready.clear()
            self._worker = subprocess.Popen(
                isolated_python(REFIT_PROGRAM),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
                start_new_session=True,  # Ctrl-C is for the studio, which then ends it
            )
            threading.Thread(target=self._listen, args=(self._worker,), daemon=True).start()

    def submit(
        self,
        kind: RefitKind,
        state: StudioState,
        model: Path,
        settings: dict[str, Any],
        done: Callable[[Job, ConceptModel], str],
        *,
        opened: Path | None = None,
        knowledge: Knowledge | None = None,
        said: Corrections | None = None,
    ) -> Job:
        """Begin a refit of what a step left; `done` makes a step of its model and gives that step's version.

        `opened` is the folder of a step that is fitted again as it is, too, into `folder / "honest"`; `said` has what
        people say of single photos.
        """
        if len(self.photos.training) < 2:
            raise CCRError("a refit needs labelled photos to train on: embed a data set with labels")
        with self._lock:
            if self.running:
                raise CCRError("a refit is running: wait for it, or stop it first")
            self.start()
            self._count += 1
            job = Job(self._count, kind, settings)
            self._write_inputs(state, knowledge, said)
            order: dict[str, Any] = {"id": job.id, "kind": kind, "model": str(model), "folder": str(self.folder)}
            order |= {"store": str(self.photos.store.path.resolve()), "settings": settings}
            order["opened"] = None if opened is None else str(opened)
            self.job, self._done = job, done
            self._send(order)
            return job

    def cancel(self) -> None:
        """Stop the running refit; nothing changes. One that is done but for its step is not stopped any more."""
        with self._lock:
            if not self.running or self.job is None:
                raise CCRError("no refit is running")
            if self.job.adopting:
                raise CCRError("the refit has just finished, so it cannot be stopped: undo it")
            self.job.end("cancelled", "stopped; the model is as it was")
            self._stop()
            self.start()

    def close(self) -> None:
        """End the worker, whatever it does."""
        with self._lock:
            if self.running and self.job is not None:
                self.job.end("cancelled", "the studio was closed")
            self._stop()
            if self._count:
                shutil.rmtree(self.folder, ignore_errors=True)

    def _stop(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
            worker.wait()
            for stream in (worker.stdin, worker.stdout):
                if stream is not None:
                    stream.close()

    def _send(self, order: dict[str, Any]) -> None:
        worker = self._worker
        if worker is None or worker.stdin is None:
            raise CCRError("the process that refits is not there: start the studio again")
        try:
            worker.stdin.write(json.dumps(order) + "\n")
            worker.stdin.flush()
        except OSError as error:
            raise CCRError(f"the process that refits does not answer ({error.strerror}): try again") from error

    def _listen(self, worker: subprocess.Popen[str]) -> None:
        stream = worker.stdout
        if stream is None:
            return
        try:
            for line in stream:
                self._hear(json.loads(line))
        except ValueError:  # closed while it was read
            return
        with self._lock:
            if self._worker is worker and self.running and self.job is not None:
                self.job.end("failed", "the process that refits ended unexpectedly: try again")

    def _hear(self, message: dict[str, Any]) -> None:
        if message.get("ready"):
            self._ready.set()
            return
        with self._lock:
            job = self.job
            if job is None or message.get("job") != job.id or job.state != "running":
                return
            job.adopting = "done" in message
        if "epoch" in message:
            job.curve.append(message["epoch"])
            job.epochs = int(message["of"])
        elif "error" in message:
            job.end("failed", str(message["error"]))
        else:
            self._finish(job, str(message.get("note", "")))

    def _finish(self, job: Job, note: str) -> None:
        try:
            model = ConceptModel.load(self.folder / "model")
            if self._done is not None:
                job.version = self._done(job, model)
        except (CCRError, OSError) as error:
            job.end("failed", str(error))
            return
        if job.state == "running":
            job.end("done", note)

    def _write_inputs(self, state: StudioState, knowledge: Knowledge | None, said: Corrections | None) -> None:
        for left in ("model", "honest"):
            shutil.rmtree(self.folder / left, ignore_errors=True)
        for left in ("knowledge.csv", "photos.csv"):
            with suppress(FileNotFoundError, NotADirectoryError):  # no folder to write to is said by the writers below
                (self.folder / left).unlink()
        about = None if said is None else said.knowledge()
        if about is not None:
            about.write(self.folder / "photos.csv")
        labels = {} if said is None else {str(row): label for row, label in said.labels.items()}
        write_json(self.folder / "labels.json", labels)
        if knowledge is not None and len(knowledge):
            knowledge.write(self.folder / "knowledge.csv")
        for name, rows in (("train", self.photos.training), ("validation", self.photos.validation)):
            write_bytes(self.folder / f"{name}.npy", npy(np.asarray(rows, np.int64)))
        write_bytes(self.folder / "list.npy", npy(np.asarray(state.texts.embeddings, np.float32)))
        notes = {"names": list(state.texts.names), "pinned": list(state.pinned), "told": knowledge is not None}
        write_json(self.folder / "list.json", {**notes, "claims": [list(claim) for claim in state.claims]})


#: Up to this many bytes of training images are held in memory.
IN_MEMORY = 2 << 30
#: Said of a model whose prediction sets did not survive its refit.
UNCALIBRATED = "the model is not calibrated any more, so it says nothing of when not to answer: use calibrated(X, y)"


def refit() -> None:
    """Work until whoever asks is gone."""
    warnings.simplefilter("ignore", CCRWarning)
    out, sys.stdout = sys.stdout, sys.stderr  # nothing but answers goes to the one who asked
    jobs: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read, args=(jobs,), daemon=True).start()
    kernels.warm_up(lambda line: None, elsewhere=True)
    _say(out, {"ready": True})
    while True:
        job = json.loads(jobs.get())
        try:
            _say(out, {"job": job["id"], "done": True, "note": _work(job, out)})
        except CCRError as error:
            _say(out, {"job": job["id"], "error": str(error)})
        except Exception as error:
            _say(out, {"job": job["id"], "error": f"the refit failed ({type(error).__name__}: {error})"})


def _read(jobs: queue.Queue[str]) -> None:
    for line in sys.stdin:
        jobs.put(line)
    os._exit(0)  # the studio is gone: nobody wants the result


def _say(out: TextIO, message: dict[str, Any]) -> None:
    out.write(json.dumps(message) + "\n")
    out.flush()


def _work(job: dict[str, Any], out: TextIO) -> str:
    """Refit, and leave the model in the job's folder; what people should know of it."""
    model, folder = ConceptModel.load(job["model"]), Path(job["folder"])
    parts = {name: _part(job["store"], folder, name, model.classes) for name in ("train", "validation")}

    def tell(epoch: Epoch, epochs: int) -> None:
        values = {key: finite(value) for key, value in asdict(epoch).items()}
        _say(out, {"job": job["id"], "epoch": values, "of": epochs})

    fitted = (
        _fit(model, job["settings"], folder, parts, tell) if job["kind"] == "full" else _head(model, parts["train"])
    )
    fitted.save(folder / "model")
    if job.get("opened"):  # what the model as it was opened is worth on photos that it was not trained on
        opened = Path(job["opened"])
        base = _fit(ConceptModel.load(opened / "model"), {}, opened, parts, lambda epoch, epochs: None)
        base.save(folder / "honest")
    wanted = model.calibration is not None or model.provenance.settings.get("coverage") is not None
    return UNCALIBRATED if wanted and fitted.calibration is None else ""


def _part(store: str, folder: Path, name: str, classes: np.ndarray) -> tuple[Any, np.ndarray]:
    """Embeddings and labels of the rows that a file names; `classes` are the model's."""
    numbers = np.array(map_array(folder / f"{name}.npy", "be numbers of rows", "refit again"))
    chosen = EmbeddingStore.open(store).select(rows=numbers)
    labels, corrected = chosen.y, read_object(folder / "labels.json", "be corrected labels", "refit again")
    if corrected:
        labels = np.array(
            [corrected.get(str(row), label) for row, label in zip(numbers.tolist(), labels.tolist(), strict=True)]
        )
    # Answers about photos know them by the store's paths.
    small = chosen.shape[0] * chosen.shape[1] * 4 <= IN_MEMORY and not (folder / "photos.csv").is_file()
    return (np.asarray(chosen, np.float32) if small else chosen), _own(labels, classes)


def _own(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The labels of a store, which are texts, as the model's classes, which may be numbers; texts where one is new."""
    known = {str(name): number for number, name in enumerate(classes.tolist())}
    numbers = np.array([known.get(label, -1) for label in labels.tolist()], np.int64)
    return labels if (numbers < 0).any() else classes[numbers]


def _head(model: ConceptModel, train: tuple[Any, np.ndarray]) -> ConceptModel:
    return EditSession(model).refit(*train).model()


def _fit(
    model: ConceptModel, wishes: dict[str, Any], folder: Path, parts: dict[str, tuple[Any, np.ndarray]], tell: Any
) -> ConceptModel:
    """Fit everything anew, from the list in `folder` on; claims that were answered "no" get no weight."""
    from ccr.classifier import ConceptClassifier  # brings scikit-learn, which only this process waits for

    notes = read_object(folder / "list.json", "be a list of concepts", "refit again")
    texts = stored_concepts(notes["names"], np.array(map_array(folder / "list.npy", "be embeddings", "refit again")))
    settings = {**model.provenance.settings, **_asked(model, wishes)}
    table = folder / "knowledge.csv"
    known = None if notes.get("told") else model.provenance.knowledge  # nothing is left where all was taken back
    known = Knowledge.read(table) if table.is_file() else known
    knowledge = _with_claims(known, notes.get("claims", []), texts.names)
    about = folder / "photos.csv"
    if about.is_file():
        answers = Knowledge.read(about)
        knowledge = answers if knowledge is None else knowledge.merge(answers)
    if known is None:
        settings |= {"claims": "open", "min_transfer": None}
    estimator = ConceptClassifier(texts, knowledge=knowledge, **settings)
    validation = parts["validation"] if len(parts["validation"][1]) else None
    fitted = estimator.fit(*parts["train"], validation=validation, callback=tell).model_
    made, pinned = model.provenance, [name for name in notes["pinned"] if name in fitted.names]
    origin = replace(fitted.provenance, encoder=made.encoder, encoder_fingerprint=made.encoder_fingerprint)
    # Probabilities rest on answers; those that only forbid weights would make every concept improbable.
    said = knowledge is not None and any(one.answer == "yes" for one in knowledge)
    shown = fitted.shown if said else None
    fitted = replace(fitted, provenance=origin, shown=shown)
    if not pinned:
        return fitted
    session = EditSession(fitted)
    for name in pinned:
        session.pin(name)
    refitted = session.refit(*parts["train"]).model()
    if fitted.calibration is not None and validation is not None:
        # By the head that answers now, on photos that neither fit was trained on.
        with suppress(CCRError):  # too few of them, which the job then says
            refitted = refitted.calibrated(*validation, coverage=fitted.calibration.coverage)
    return replace(refitted, provenance=replace(refitted.provenance, edits=()))


def _with_claims(knowledge: Knowledge | None, claims: list[list[str]], names: Sequence[str]) -> Knowledge | None:
    """Knowledge merged with the answers given in the studio about concepts of the list, which take precedence."""
    given = [
        Answer(label, concept, "no" if said == "no" else "unknown", "person", at=timestamp())
        for concept, label, said in claims
        if concept in names
    ]
    if not given:
        return knowledge
    return Knowledge.of(given) if knowledge is None else knowledge.merge(Knowledge.of(given))


def _asked(model: ConceptModel, wishes: dict[str, Any]) -> dict[str, Any]:
    """Settings that were asked for, as the classifier takes them."""
    settings: dict[str, Any] = {
        name: wishes[name] for name in ("weights_per_class", "random_state", "claims") if name in wishes
    }
    if wishes.get("weights_per_class") == "all":
        settings["weights_per_class"] = None
    if "fidelity" in wishes:
        settings |= {"fidelity": wishes["fidelity"], "radius": None, "center": "data"}
    if "length" in wishes:
        settings["coder"] = _coder_of(model, wishes["length"])
    return settings


def _coder_of(model: ConceptModel, length: float) -> Coder:
    """The model's own coder at another length."""
    from sklearn.base import clone

    rule, coder = model.rule, model.provenance.settings.get("coder")
    if coder is not None and not isinstance(coder, HardThreshold):
        own: Coder = clone(coder).set_params(length=round(length))
        return own
    sign: Any = "both" if isinstance(rule, ThresholdRule) and not rule.positive else "positive"
    return HardThreshold(length=length, sign=sign)


# Out-of-fold predictions: what refits say of photos that they have not seen, computed in a process of its own.
#: Five refits of more photos than this take too long to be made unasked.
MOST_PHOTOS = 20_000
FOLD_PROGRAM = "from ccr_studio.work.refits import fold; fold()"
#: none: there are none, and none can be computed; possible: they are computed once somebody asks.
FoldState = Literal["none", "possible", "computing", "ready"]


@dataclass(frozen=True, eq=False)
class Held:
    """Predictions of the photos `rows` by refits that have not seen them: class numbers and their probability."""

    rows: np.ndarray
    predicted: np.ndarray
    confidence: np.ndarray


class Folds:
    """The out-of-fold predictions of the last model that was asked about; kept in `folder`, by what they depend on.

    A studio that only shows (`compute` False) has them where they were computed before.
    """

    def __init__(self, folder: Path, *, compute: bool = True) -> None:
        self._folder, self._compute = folder, compute
        self._lock = threading.Lock()
        self._found: tuple[str, Held] | None = None
        self._process: Computation | None = None
        self._computing, self._failed = "", ""

    def state(self, seen: SeenModel) -> FoldState:
        """Whether they are there, or on their way."""
        if self.of(seen, begin=False) is not None:
            return "ready"
        if self._computing == seen.fit_digest:
            return "computing"
        return "possible" if self._compute and _fits(seen) and self._failed != seen.fit_digest else "none"

    def of(self, seen: SeenModel, *, begin: bool = True) -> Held | None:
        """The predictions by refits with the model's settings; None while they are being computed, or cannot be.
        Asking begins them."""
        if not _fits(seen):
            return None
        key, rows = seen.fit_digest, seen.rows("shown")
        with self._lock:
            if self._found is not None and self._found[0] == key:
                return self._found[1]
            kept = self._read(key, rows, len(seen.classes))
            if kept is not None:
                self._found = (key, kept)
                return kept
            if begin and self._compute and key not in (self._computing, self._failed):
                self._begin(key, seen, rows)
        return None

    def close(self) -> None:
        """Stop computing."""
        with self._lock:
            self._stop()

    def _stop(self) -> None:
        process, self._process, self._computing = self._process, None, ""
        if process is not None:
            process.stop()

    def _begin(self, key: str, seen: SeenModel, rows: np.ndarray) -> None:
        self._stop()
        place = self._folder / f"job-{key}"
        seen.model.save(place / "model")
        write_bytes(place / "rows.npy", npy(rows))
        write_bytes(place / "labels.npy", npy(seen.truth[rows].astype(np.int64)))
        order = {"store": str(seen.photos.store.path.resolve()), "folder": str(place), "file": str(self._file(key))}
        self._process, self._computing = Computation(FOLD_PROGRAM, order), key
        threading.Thread(target=self._wait, args=(self._process, key), daemon=True).start()

    def _wait(self, process: Computation, key: str) -> None:
        process.wait()
        with self._lock:
            if self._process is process:
                self._process, self._computing = None, ""
                self._failed = "" if self._file(key).is_file() else key

    def _file(self, key: str) -> Path:
        return self._folder / f"{key}.npy"

    def _read(self, key: str, rows: np.ndarray, classes: int) -> Held | None:
        try:
            found = np.array(map_array(self._file(key), "be out-of-fold predictions", "delete it"))
        except FormatError:
            return None
        if found.shape != (2, len(rows)) or found.dtype.kind != "f":
            return None
        if not ((found >= 0).all() and (found[0] < classes).all() and (found[1] <= 1).all()):  # also NaN
            return None
        return Held(rows, found[0].astype(np.int32), found[1].astype(np.float32))


def _fits(seen: SeenModel) -> bool:
    """Whether refits can be made, and do not take too long."""
    return FEWEST_IMAGES <= len(seen.rows("shown")) <= MOST_PHOTOS and whole_list(seen.model.provenance) is not None


def fold() -> None:
    """Read one order, and write the predictions (2, m) that it asks for: class numbers, and their probability."""
    order = read_order()
    folder = Path(order["folder"])
    model = ConceptModel.load(folder / "model")
    rows, labels = (
        np.array(map_array(folder / f"{name}.npy", "be numbers", "try again")) for name in ("rows", "labels")
    )
    found = out_of_fold(model, EmbeddingStore.open(order["store"]).select(rows=rows), model.classes[labels])
    numbers = found.probabilities.argmax(axis=1)
    sure = np.take_along_axis(found.probabilities, numbers[:, None], axis=1)[:, 0]
    write_bytes(Path(order["file"]), npy(np.stack([numbers.astype(np.float64), sure])))
