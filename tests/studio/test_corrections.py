"""What people say of single photos: answers about concepts, labels, photos left out; and out-of-fold predictions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from ccr.data.store import EmbeddingStore
from ccr.errors import FormatError
from ccr.knowledge import Knowledge
from ccr.model import ConceptModel
from ccr.review import out_of_fold
from ccr_studio.work.corrections import Corrections
from ccr_studio.work.workbench import Workbench
from tests.studio.helpers import client_of, finish, make_bench


def say(client: TestClient, row: int, kind: str, answer: str, **more: str) -> dict[str, Any]:
    answered = client.post(f"/api/photos/{row}/correct", json={"kind": kind, "answer": answer, "by": "ann", **more})
    assert answered.status_code == 200, answered.text
    return answered.json()


def of_split(bench: Workbench, name: str) -> int:
    return int(bench.photos.of_split(name)[0])


def test_an_answer_about_a_photo_is_kept_taken_back_and_learned_from(client: TestClient, bench: Workbench) -> None:
    row = of_split(bench, "train")
    concept, other = (term["concept"] for term in client.get(f"/api/photos/{row}").json()["contributions"][:2])
    say(client, row, "concept", "no", concept=concept)
    say(client, row, "concept", "yes", concept=other)
    page = say(client, row, "concept", "no", concept=other)  # the later one counts
    assert page["answers"] == {concept: "no", other: "no"}
    page = say(client, row, "concept", "", concept=other)
    assert page["answers"] == {concept: "no"}
    assert client.get("/api/concept", params={"name": concept}).json()["answers"] == {"shows": [], "lacks": [row]}
    assert Corrections(bench.corrections.path).of(row) == {("concept", concept): "no"}  # as another process reads it
    client.post("/api/refit", json={"kind": "full"})
    finish(bench)
    known = bench.now().model.provenance.knowledge
    assert known is not None
    answer = known.find("", concept, photo=str(bench.photos.store.paths[row]))
    assert answer is not None
    assert (answer.answer, answer.source, answer.by) == ("no", "person", "ann")


def test_a_corrected_label_counts_at_once_and_in_the_next_fit(client: TestClient, bench: Workbench) -> None:
    row = of_split(bench, "train")
    before = client.get(f"/api/photos/{row}").json()
    right = next(name for name in bench.now().classes if name != before["truth"])
    page = say(client, row, "label", right)
    assert (page["truth"], page["corrected"]) == (right, right)
    wall = client.get("/api/photos", params={"around": row, "limit": 3}).json()["photos"]
    assert next(one for one in wall if one["row"] == row)["truth"] == right
    assert client.get("/api/class", params={"name": right}).json()["photos"] == 22  # of train and val, and this one
    client.post("/api/refit", json={"kind": "full"})
    finish(bench)
    assert bench.refits.job is not None
    assert bench.refits.job.state == "done"
    labels = (bench.refits.folder / "labels.json").read_text()
    assert str(row) in labels
    assert right in labels
    assert bench.photos.store.labels[row] == before["truth"]  # the store stays as it is
    assert say(client, row, "label", "")["truth"] == before["truth"]
    assert client.post(f"/api/photos/{row}/correct", json={"kind": "label", "answer": "pear"}).status_code == 422


def test_a_photo_left_out_is_neither_trained_nor_measured_on(client: TestClient, bench: Workbench) -> None:
    training, validation = len(bench.photos.training), len(bench.photos.validation)
    say(client, of_split(bench, "train"), "leave out", "yes")
    page = say(client, of_split(bench, "val"), "leave out", "yes")
    assert page["left_out"]
    assert page["truth"] is None
    state = client.get("/api/state").json()
    assert (state["training"], state["validation"]) == (training - 1, validation - 1)
    assert client.get("/api/mistakes", params={"scope": "shown"}).json()["n"] == training + validation - 2
    client.post("/api/refit", json={"kind": "full"})
    finish(bench)
    assert len(np.load(bench.refits.folder / "train.npy")) == training - 1
    say(client, of_split(bench, "val"), "leave out", "")
    assert len(bench.photos.validation) == validation


def test_test_photos_teach_nothing(client: TestClient, bench: Workbench) -> None:
    row = of_split(bench, "test")
    assert not client.get(f"/api/photos/{row}").json()["corrects"]
    for kind, answer in (("label", "plum"), ("leave out", "yes"), ("concept", "no")):
        refused = client.post(
            f"/api/photos/{row}/correct",
            json={"kind": kind, "answer": answer, "concept": bench.now().model.names[0] if kind == "concept" else ""},
        )
        assert refused.status_code == 422
        assert "test photo" in refused.json()["error"]


def test_corrections_leave_as_a_table_and_outlive_undo_and_a_new_start(
    client: TestClient, bench: Workbench, store: EmbeddingStore, tmp_path: Path
) -> None:
    row = of_split(bench, "train")
    concept = bench.now().model.names[0]
    bench.edit("pin", {"concept": concept})
    say(client, row, "concept", "yes", concept=concept)
    say(client, row, "label", "plum")
    bench.undo()
    table = client.get("/api/exports/corrections.csv").text.splitlines()
    assert table[0] == "photo,row,kind,concept,answer,by,at"
    assert [line.split(",")[2:6] for line in table[1:]] == [
        ["concept", concept, "yes", "ann"],
        ["label", "", "plum", "ann"],
    ]
    reader = make_bench(store, None, tmp_path, read_only=True)
    assert reader.now().classes[reader.now().truth[row]] == "plum"
    theirs = client_of(reader)
    assert theirs.post(f"/api/photos/{row}/correct", json={"kind": "leave out", "answer": "yes"}).status_code == 403
    say(client, row, "label", "lime")
    assert reader.now().classes[reader.now().truth[row]] == "lime"  # it follows the writer
    reader.close()


def test_reviewers_answer_about_photos_and_do_not_change_labels(
    bench: Workbench, store: EmbeddingStore, tmp_path: Path
) -> None:
    bench.edit("pin", {"concept": bench.now().model.names[0]})
    reviewer = make_bench(store, None, tmp_path, read_only=True, decides=True)
    theirs = client_of(reviewer)
    row, concept = of_split(bench, "train"), bench.now().model.names[0]
    assert say(theirs, row, "concept", "no", concept=concept)["answers"] == {concept: "no"}
    bench.now()
    assert bench.corrections.of(row) == {("concept", concept): "no"}
    assert theirs.post(f"/api/photos/{row}/correct", json={"kind": "label", "answer": "plum"}).status_code == 403
    reviewer.close()


def test_a_killed_writer_loses_nothing_that_it_confirmed(tmp_path: Path) -> None:
    path = tmp_path / "photos.jsonl"
    program = (
        "import sys; from pathlib import Path; from ccr_studio.work.corrections import Corrections\n"
        f"log = Corrections(Path({str(path)!r}))\n"
        "for row in range(100000):\n"
        "    log.add(row, str(row), 'leave out', 'yes', by='ann'); print(row, flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(20):
        process.stdout.readline()
    time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    confirmed = 20 + len(process.stdout.read().splitlines())
    process.wait()
    with path.open("ab") as stream:
        stream.write(b'{"row": 7, "pho')  # a line that a crash cut off
    log = Corrections(path)
    assert confirmed <= len(log.all()) <= confirmed + 1
    log.add(3, "3", "label", "plum")
    assert Corrections(path).labels == {3: "plum"}
    with path.open("ab") as stream:
        stream.write(b'{"row": -1}\n')
    with pytest.raises(FormatError, match="line"):
        Corrections(path)


def test_predictions_out_of_fold_are_those_of_the_library(
    store: EmbeddingStore, model: ConceptModel, tmp_path: Path
) -> None:
    bench = make_bench(store, model, tmp_path, folds=True)
    client = client_of(bench)
    assert client.get("/api/state").json()["folds"] == "possible"  # nothing is computed unasked
    assert client.get("/api/mistakes", params={"scope": "shown", "held": True}).status_code == 200
    for _ in range(1200):
        if (state := client.get("/api/state").json())["folds"] != "computing":
            break
        time.sleep(0.1)
    assert state["folds"] == "ready"
    seen = bench.now()
    rows = seen.rows("shown")
    known = out_of_fold(seen.model, store.select(rows=rows))
    assert (state["held_accuracy"], state["held_photos"]) == (known.accuracy, len(rows))
    matrix = client.get("/api/mistakes", params={"scope": "shown", "held": True}).json()
    assert matrix["right"] == int(known.right.sum())
    wall = client.get("/api/photos", params={"held": True, "right": "wrong", "limit": 500}).json()
    assert [one["row"] for one in wall["photos"]] == rows[~known.right].tolist()
    chosen = client.post("/api/selections", json={"rows": rows.tolist()}).json()["id"]
    found = client.get(f"/api/selections/{chosen}", params={"held": True}).json()
    assert found["right"] == int(known.right.sum())  # as on the wall below it
    page = client.get(f"/api/photos/{rows[0]}").json()
    assert page["held"]["prediction"] == known.predictions[0]
    own = client.get("/api/mistakes", params={"scope": "shown"}).json()
    assert own["right"] == int(seen.right[rows].sum())  # unless it is asked for, the model's own predictions
    bench.close()
    again = make_bench(store, None, tmp_path)  # kept on disk
    assert again.folds.state(again.now()) == "ready"
    again.close()


def test_knowledge_about_photos_is_none_where_nobody_said_anything(tmp_path: Path) -> None:
    log = Corrections(tmp_path / "photos.jsonl")
    assert log.knowledge() is None
    log.add(4, "a/4.png", "concept", "yes", concept="red", by="ann")
    known = log.knowledge()
    assert isinstance(known, Knowledge)
    assert known.photos == ("a/4.png",)
