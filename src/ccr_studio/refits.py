"""Refits in the background: one job at a time, its curve as it grows, stopped at once when asked to."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ccr.errors import CCRError
from ccr.io.files import write_bytes, write_json
from ccr.knowledge import Knowledge
from ccr.model import ConceptModel
from ccr.utils.processes import isolated_python
from ccr_studio.arrays import npy
from ccr_studio.photos import Photos
from ccr_studio.session import State

Kind = Literal["full", "head"]
JobState = Literal["running", "done", "failed", "cancelled"]
PROGRAM = "from ccr_studio.worker import main; main()"


@dataclass
class Job:
    """A refit: `curve` has one line for each epoch of `epochs`; `version` is the step that it became.

    `adopting`: its model is being made the current one, too late to stop it.
    """

    id: int
    kind: Kind
    settings: dict[str, Any]
    state: JobState = "running"
    curve: list[dict[str, Any]] = field(default_factory=list)
    epochs: int = 0
    message: str = ""
    version: str | None = None
    adopting: bool = False
    started: float = field(default_factory=time.monotonic)
    seconds: float | None = None

    def end(self, state: JobState, message: str = "") -> None:
        self.state, self.message = state, message
        self.seconds = time.monotonic() - self.started


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
                isolated_python(PROGRAM),
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
        kind: Kind,
        state: State,
        model: Path,
        settings: dict[str, Any],
        done: Callable[[Job, ConceptModel], str],
        *,
        opened: Path | None = None,
        knowledge: Knowledge | None = None,
    ) -> Job:
        """Begin a refit of what a step left; `done` makes a step of its model and gives that step's version.

        `opened` is the folder of a step that is fitted again as it is, too, into `folder / "honest"`.
        """
        if len(self.photos.training) < 2:
            raise CCRError("a refit needs labelled photos to train on: embed a data set with labels")
        with self._lock:
            if self.running:
                raise CCRError("a refit is running: wait for it, or stop it first")
            self.start()
            self._count += 1
            job = Job(self._count, kind, settings)
            self._write_inputs(state, knowledge)
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

    def _write_inputs(self, state: State, knowledge: Knowledge | None) -> None:
        for left in ("model", "honest"):
            shutil.rmtree(self.folder / left, ignore_errors=True)
        with suppress(FileNotFoundError, NotADirectoryError):  # no folder to write to is said by the writers below
            (self.folder / "knowledge.csv").unlink()
        if knowledge is not None and len(knowledge):
            knowledge.write(self.folder / "knowledge.csv")
        for name, rows in (("train", self.photos.training), ("validation", self.photos.validation)):
            write_bytes(self.folder / f"{name}.npy", npy(np.asarray(rows, np.int64)))
        write_bytes(self.folder / "list.npy", npy(np.asarray(state.texts.embeddings, np.float32)))
        notes = {"names": list(state.texts.names), "pinned": list(state.pinned)}
        write_json(self.folder / "list.json", {**notes, "claims": [list(claim) for claim in state.claims]})
