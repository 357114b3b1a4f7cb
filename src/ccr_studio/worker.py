"""The process that refits: it reads jobs as lines of JSON and answers with lines of JSON.

A process of its own, so that pages stay quick while it works, it can be stopped at once, and it ends with the studio.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from sklearn.base import clone

from ccr import kernels
from ccr.classifier import ConceptClassifier
from ccr.coding import Coder, HardThreshold, ThresholdRule
from ccr.data.store import EmbeddingStore
from ccr.edit import EditSession
from ccr.errors import CCRError, CCRWarning
from ccr.io.files import map_array, read_object
from ccr.io.format import stored_concepts
from ccr.knowledge import Answer, Knowledge
from ccr.metrics import finite
from ccr.model import ConceptModel
from ccr.refine import Epoch

#: Up to this many bytes of training images are held in memory.
IN_MEMORY = 2 << 30
#: Said of a model whose prediction sets did not survive its refit.
UNCALIBRATED = "the model is not calibrated any more, so it says nothing of when not to answer: use calibrated(X, y)"


def main() -> None:
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
    parts = {name: _part(job["store"], folder / f"{name}.npy", model.classes) for name in ("train", "validation")}

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


def _part(store: str, rows: Path, classes: np.ndarray) -> tuple[Any, np.ndarray]:
    """Embeddings and labels of the rows that a file names; `classes` are the model's."""
    numbers = np.array(map_array(rows, "be numbers of rows", "refit again"))
    chosen = EmbeddingStore.open(store).select(rows=numbers)
    small = chosen.shape[0] * chosen.shape[1] * 4 <= IN_MEMORY
    return (np.asarray(chosen, np.float32) if small else chosen), _own(chosen.y, classes)


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
    notes = read_object(folder / "list.json", "be a list of concepts", "refit again")
    texts = stored_concepts(notes["names"], np.array(map_array(folder / "list.npy", "be embeddings", "refit again")))
    settings = {**model.provenance.settings, **_asked(model, wishes)}
    table = folder / "knowledge.csv"
    known = Knowledge.read(table) if table.is_file() else model.provenance.knowledge
    knowledge = _with_claims(known, notes.get("claims", []), texts.names)
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
    """What is known, and what was answered in the studio about concepts of the list, which counts most."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    given = [
        Answer(label, concept, "no" if said == "no" else "unknown", "person", at=now)
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
    rule, coder = model.rule, model.provenance.settings.get("coder")
    if coder is not None and not isinstance(coder, HardThreshold):
        own: Coder = clone(coder).set_params(length=round(length))
        return own
    sign: Any = "both" if isinstance(rule, ThresholdRule) and not rule.positive else "positive"
    return HardThreshold(length=length, sign=sign)


if __name__ == "__main__":
    main()
