"""`ccr predict` and `ccr export`, as a user types them; a run killed at any moment and resumed gives the same file."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
import pandas
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from ccr.classifier import ConceptClassifier
from ccr.data.datasets import open_photos
from ccr.data.store import EmbeddingStore
from ccr.encoders import load_encoder
from ccr.errors import CCRError
from ccr.photos.run import Prediction, predict_photos, predict_samples, progress_folder, write_table
from tests.cli.conftest import COLOURS, as_json, exit_code, named, run
from tests.hostile.dying import dies_at

CCR = [sys.executable, "-c", "from ccr.cli import main; main()"]


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


def test_predictions_are_those_of_the_model(model: Path, workspace: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.csv"
    found = as_json(
        "predict", model, workspace / "photos", "--out", out, "--explain", 3, "--workers", 0, *named(workspace)
    )
    assert (found["photos"], found["predicted"]) == (43, 42)
    assert [item["path"] for item in found["unreadable"]] == [str(workspace / "photos" / "red fruit" / "broken.jpg")]
    assert sum(found["classes"].values()) == 42
    loaded, encoder = ConceptClassifier.load(model), load_encoder(f"hf:{workspace / 'clip'}")
    for row in [row for row in rows_of(out) if not row["error"]][::7]:
        x = encoder.embed_images([Image.open(row["path"])])[0]
        why = loaded.explain(x)
        order = np.argsort(-why.logits)
        assert (row["prediction"], row["runner_up"]) == (why.prediction, why.classes[order[1]])
        assert float(row["probability"]) == pytest.approx(why.probability, rel=1e-3)
        assert float(row["contribution_1"]) == pytest.approx(why.contributions[0].contribution, rel=1e-3)
        said = sum(float(row[f"contribution_{number}"] or 0) for number in (1, 2, 3))
        assert float(row["bias"]) + said + float(row["others"]) == pytest.approx(float(row["logit"]), abs=1e-9)
    (bad,) = (row for row in rows_of(out) if row["error"])
    assert (bad["prediction"], bad["probability"]) == ("", "")
    assert not progress_folder(out).exists()


def test_all_forms_of_photos_and_files_agree(model: Path, workspace: Path, tmp_path: Path) -> None:
    photos = sorted((workspace / "photos" / "red fruit").glob("*.png"))
    manifest = workspace / "photos" / "some.csv"
    manifest.write_text("path\n" + "\n".join(f"red fruit/{path.name}" for path in photos), encoding="utf-8")
    forms = {
        "files": photos,
        "pattern": [workspace / "photos" / "red fruit" / "*.png"],
        "manifest": [manifest],
        "stream": ["-"],
    }
    texts = {}
    for name, given in forms.items():
        typed = ["predict", model, *given, "--out", tmp_path / f"{name}.csv", "--workers", 0, *named(workspace)]
        done = run(*typed, lines="\n".join(map(str, photos)) if name == "stream" else None)
        assert done.exit_code == 0, done.output
        texts[name] = (tmp_path / f"{name}.csv").read_bytes()
    manifest.unlink()
    assert len(set(texts.values())) == 1
    for ending in (".parquet", ".jsonl"):
        as_json("predict", model, *photos, "--out", tmp_path / f"p{ending}", "--workers", 0, *named(workspace))
    table = pandas.read_csv(tmp_path / "files.csv")
    assert pq.read_table(tmp_path / "p.parquet").to_pandas().astype(table.dtypes).equals(table)
    lines_of = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["prediction"] for line in lines_of] == table["prediction"].tolist()
    assert lines_of[0]["concepts"][0]["concept"] == table["concept_1"][0]


def test_a_store_is_predicted_without_its_encoder(model: Path, workspace: Path, tmp_path: Path) -> None:
    store = EmbeddingStore.open(workspace / "store")
    found = as_json("predict", model, workspace / "store", "--out", tmp_path / "all.csv", "--explain", 0)
    rows = rows_of(tmp_path / "all.csv")
    assert [row["prediction"] for row in rows] == ConceptClassifier.load(model).predict(store).tolist()
    assert [row["path"] for row in rows] == store.paths.tolist()
    assert "concept_1" not in rows[0]
    assert found["predicted"] == len(store)
    part = as_json("predict", model, workspace / "store", "--out", tmp_path / "t.csv", "--split", "test")
    assert part["photos"] == len(store.select("test"))


def test_what_cannot_be_done_is_refused(
    model: Path, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    photo, out = workspace / "photos" / "red fruit" / "3.png", ["--out", tmp_path / "p.csv"]
    for arguments, why in (
        ([photo, "--out", tmp_path / "p.xlsx"], "ends in .csv, .parquet, .jsonl"),
        ([workspace / "photos" / "*.gif", *out], "no image matches the pattern"),
        ([workspace / "store", photo, *out], "a store must be the only source"),
        ([tmp_path, *out], "there are no images"),
    ):
        assert exit_code(["predict", model, *arguments], monkeypatch) == 1
        assert why in " ".join(capsys.readouterr().err.split())
    assert exit_code(["predict", model, photo, *out, "--split", "test"], monkeypatch) == 2
    assert list(tmp_path.iterdir()) == []
    missing = as_json("predict", model, photo, tmp_path / "gone.png", *out, "--workers", 0, *named(workspace))
    assert missing["unreadable"][0]["reason"] == "there is no such file"


def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(model: Path, workspace: Path, tmp_path: Path) -> None:
    """By SIGKILL, as soon as a chunk is there."""
    typed = ["predict", str(model), str(workspace / "photos"), "--batch-size", "1", "--workers", "1", *named(workspace)]
    clean, killed = tmp_path / "clean.csv", tmp_path / "killed.csv"
    as_json(*typed, "--out", clean)
    # With as many threads as the tests have: on some CPUs torch's products depend on that in the last digit.
    threads = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    process = subprocess.Popen([*CCR, *typed, "--out", str(killed)], stdout=subprocess.DEVNULL, env=threads)
    while process.poll() is None and not list(progress_folder(killed).glob("chunk_*.json")):
        time.sleep(0.005)
    assert process.poll() is None, "it was killed while it ran"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not killed.exists()
    kept = len(list(progress_folder(killed).glob("chunk_*.json")))
    last = as_json(*typed, "--out", killed)
    assert last["resumed"] == 2 * kept > 0
    assert killed.read_bytes() == clean.read_bytes()


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".jsonl"])
def test_a_stopped_run_goes_on_in_every_form(ending: str, model: Path, workspace: Path, tmp_path: Path) -> None:
    loaded = ConceptClassifier.load(model).model_
    samples, encoder = open_photos([workspace / "photos"]), load_encoder(f"hf:{workspace / 'clip'}")
    clean, stopped = tmp_path / f"clean{ending}", tmp_path / f"stopped{ending}"

    def stop(limit: int, done: int, total: int, what: str) -> None:
        if done >= limit:
            raise KeyboardInterrupt

    predict_photos(loaded, samples, encoder, clean, workers=0, batch_size=3)
    for limit in (5, 13, 30):
        with pytest.raises(KeyboardInterrupt):
            predict_photos(loaded, samples, encoder, stopped, workers=0, batch_size=3, tell=partial(stop, limit))
        assert not stopped.exists()
    assert predict_photos(loaded, samples, encoder, stopped, workers=0, batch_size=3).resumed == 30
    assert stopped.read_bytes() == clean.read_bytes()


def test_dying_at_any_write_leaves_a_run_that_goes_on(model: Path, workspace: Path, tmp_path: Path) -> None:
    loaded = ConceptClassifier.load(model).model_
    samples, encoder = open_photos([workspace / "photos"])[:5], load_encoder(f"hf:{workspace / 'clip'}")

    def work(out: Path) -> None:
        predict_photos(loaded, samples, encoder, out, workers=0, batch_size=1)

    work(tmp_path / "clean.jsonl")
    for call in range(4, 60, 9):
        out = tmp_path / f"{call}.jsonl"
        died = dies_at(call, lambda out=out: work(out))
        assert not died or not out.exists() or out.read_bytes() == (tmp_path / "clean.jsonl").read_bytes()
        work(out)
        assert out.read_bytes() == (tmp_path / "clean.jsonl").read_bytes()
        assert not progress_folder(out).exists()


def test_another_run_in_the_same_place_is_refused(model: Path, workspace: Path, tmp_path: Path) -> None:
    loaded = ConceptClassifier.load(model).model_
    samples, encoder = open_photos([workspace / "photos"])[:5], load_encoder(f"hf:{workspace / 'clip'}")
    out = tmp_path / "p.csv"

    def stop(done: int, total: int, what: str) -> None:
        if done >= 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predict_photos(loaded, samples, encoder, out, workers=0, batch_size=1, tell=stop)
    for changed in ({"explain": 2}, {"batch_size": 2}):
        with pytest.raises(CCRError, match=r"another (number of concepts|batch size).*delete the folder"):
            predict_photos(loaded, samples, encoder, out, **{"workers": 0, "batch_size": 1, **changed})
    with pytest.raises(CCRError, match="another list of photos"):
        predict_photos(loaded, samples[::-1], encoder, out, workers=0, batch_size=1)
    (progress_folder(out) / "chunk_0.json").write_bytes(b"damaged")
    assert predict_photos(loaded, samples, encoder, out, workers=0, batch_size=1).resumed == 0
    whole = predict_samples(loaded, encoder, samples[:2], list(_decoded(samples[:2])), explain=5, batch_size=1)
    assert rows_of(out)[0]["prediction"] == str(whole[0].prediction), "a chunk by itself says the same"


def _decoded(samples: object) -> object:
    from ccr.data.store.workers import Decoders, Limits

    with Decoders(0, crop=None, limits=Limits(10**8, 10**8)) as decoders:
        yield from decoders.decode(samples)


def test_photos_in_python(model: Path, workspace: Path, tmp_path: Path) -> None:
    loaded, photos = ConceptClassifier.load(model), sorted((workspace / "photos" / "red fruit").glob("*.*"))
    found = loaded.predict_images(photos, explain=2, encoder=named(workspace)[1])
    as_json("predict", model, *photos, "--out", tmp_path / "p.csv", "--explain", 2, "--workers", 0, *named(workspace))
    table = pandas.read_csv(tmp_path / "p.csv")
    frame = found.to_frame("pandas")
    assert list(frame.columns) == list(table.columns)
    assert frame["prediction"].fillna("").tolist() == table["prediction"].fillna("").tolist()
    assert repr(found) == f"Predictions({len(photos)} photos, 1 unreadable)"
    given = pandas.DataFrame({"path": [str(path) for path in photos[:3]]})
    assert loaded.predict_images(given, encoder=load_encoder(f"hf:{workspace / 'clip'}"))[0].path == str(photos[0])
    assert found.to_frame("polars").shape == frame.shape
    good = next(path for path in photos if path.suffix == ".png")
    why = loaded.explain_image(good, encoder=named(workspace)[1])
    assert why.prediction in COLOURS
    assert why.thumbnail.startswith("data:image/jpeg;base64,")
    assert why.to_dict() == loaded.explain_image(Image.open(good), encoder=named(workspace)[1]).to_dict()
    assert len(loaded.explain_images([good, good], encoder=named(workspace)[1])) == 2
    with pytest.raises(CCRError, match="cannot be read as an image"):
        loaded.explain_image(workspace / "photos" / "red fruit" / "broken.jpg", encoder=named(workspace)[1])
    with pytest.raises(CCRError, match="give the encoder with the same weights"):
        loaded.explain_image(good, encoder="bundled")


def test_photos_in_memory_are_read_as_files_are(model: Path, workspace: Path, tmp_path: Path) -> None:
    """Turned as their EXIF says, within the same limits; pixels of an array are taken, too."""
    loaded, encoder = ConceptClassifier.load(model), load_encoder(f"hf:{workspace / 'clip'}")
    pixels = np.zeros((60, 90, 3), np.uint8)
    pixels[:30] = 200, 30, 30
    turned, exif = tmp_path / "turned.png", Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(turned, exif=exif)
    from_file = loaded.explain_image(turned, encoder=encoder).to_dict()
    assert loaded.explain_image(Image.open(turned), encoder=encoder).to_dict() == from_file
    upright = np.ascontiguousarray(np.rot90(pixels, -1))
    both = loaded.explain_images([upright, turned], encoder=encoder)  # a batch is rounded otherwise than one image
    assert [found.logit for found in both] == pytest.approx([from_file["logit"]] * 2, rel=1e-5)
    assert loaded.explain_image(pixels, encoder=encoder).to_dict() != from_file
    for bad, why in (
        (Image.new("RGB", (0, 4)), "must have pixels, got one of 0 x 4"),
        (Image.new("RGBA", (4, 0)), "must have pixels"),
        (Image.new("RGB", (2001, 2)), "times as long as wide"),
        (np.zeros((4, 4, 3)), "must be uint8"),
        (torch.zeros(3, 4, 4), "got Tensor"),
        (None, "got NoneType"),
    ):
        with pytest.raises(CCRError, match=why) as caught:
            loaded.explain_image(bad, encoder=encoder)
        assert len(str(caught.value)) < 250, "pixels are not printed"


@pytest.mark.parametrize("explain", [-1, 2.5, True, "3", None])
def test_the_number_of_concepts_is_checked(explain: object, model: Path, workspace: Path, tmp_path: Path) -> None:
    loaded, photo = ConceptClassifier.load(model).model_, workspace / "photos" / "red fruit" / "3.png"
    with pytest.raises(CCRError, match="explain must be a whole number from 0"):
        loaded.predict_images(photo, explain=explain, encoder=named(workspace)[1])
    encoder = load_encoder(f"hf:{workspace / 'clip'}")
    with pytest.raises(CCRError, match="explain must be a whole number from 0"):
        predict_photos(loaded, open_photos([str(photo)]), encoder, tmp_path / "p.csv", explain=explain)


def test_a_table_has_no_more_columns_than_concepts(model: Path, workspace: Path, tmp_path: Path) -> None:
    loaded = ConceptClassifier.load(model)
    as_json("predict", model, workspace / "store", "--out", tmp_path / "p.csv", "--explain", 300_000)
    assert sum(name.startswith("concept_") for name in rows_of(tmp_path / "p.csv")[0]) == len(loaded.concepts_)
    photo = workspace / "photos" / "red fruit" / "3.png"
    found = loaded.predict_images(photo, explain=300_000, encoder=named(workspace)[1])
    assert found.explained == len(loaded.concepts_)


def test_export_writes_a_file_that_runs(model: Path, workspace: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.onnx"
    found = as_json("export", model, "--out", out)
    assert found["bytes"] == out.stat().st_size
    store = EmbeddingStore.open(workspace / "store")
    X = np.asarray(store[:], np.float32)
    labels = onnxruntime.InferenceSession(str(out)).run(["label"], {"embeddings": X})[0]
    assert labels.tolist() == ConceptClassifier.load(model).predict(X).tolist()
    assert "MB: embeddings of" in " ".join(run("export", model, "--out", out).stdout.split())


def test_export_refuses(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["export", model, "--out", tmp_path / "m.pt"], monkeypatch) == 1
    assert exit_code(["export", model, "--out", tmp_path / "m.onnx", "--with-encoder"], monkeypatch) == 1
    assert "only the bundled image tower" in " ".join(capsys.readouterr().err.split())
    shutil.rmtree(tmp_path / "none", ignore_errors=True)
    assert list(tmp_path.iterdir()) == []


def test_the_largest_whole_numbers_are_written(tmp_path: Path) -> None:
    classes = np.array([3, 2**64 - 1], np.uint64)
    items = [Prediction("a.png", 2**64 - 1, 0.7, 3, 0.3), Prediction("b.png", error="damaged")]
    with (tmp_path / "p.parquet").open("wb") as stream:
        write_table(stream, ".parquet", items, explained=0, classes=classes)
    assert pq.read_table(tmp_path / "p.parquet")["prediction"].to_pylist() == [2**64 - 1, None]
