"""`ccr compare` and `ccr reproduce` as a user types them."""

from __future__ import annotations

import csv
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ccr_lab.experiments import frontier
from ccr_lab.experiments.methods import METHODS
from ccr_lab.published.cifar import CIFAR10_CLASSES
from tests.cli.conftest import as_json, exit_code, run
from tests.lab.published_files import BATCHES, write_cifar10, write_lines, write_records


def test_the_names_in_the_help_are_the_methods() -> None:
    from ccr_lab.commands.compare import NAMES  # `ccr.cli` imports it, and has to come first

    assert tuple(method.name for method in METHODS) == NAMES


def test_compare_writes_tables_and_figures_and_does_nothing_twice(workspace: Path, tmp_path: Path) -> None:
    options = ("--concepts", workspace / "concepts.txt", "--length", 4, "--seeds", 2, "--epochs", 3, "--out", tmp_path)
    methods = "ccr,baseline,ip-omp,label-free,splice,probe,zero-shot"
    found: Any = as_json("compare", workspace / "store", *options, "--methods", methods)
    # The tiny encoder knows no real word: all random words are one to it. The others stand.
    assert {failure["method"] for failure in found["failures"]} == {"random-words"}
    assert [row["method"] for row in found["methods"]] == [*methods.split(","), "random-vectors"]
    (gap,) = found["meaning_gaps"]
    assert gap["gap"] == pytest.approx(found["methods"][0]["accuracy"] - found["methods"][-1]["accuracy"])
    assert gap["interval"][0] <= gap["gap"] <= gap["interval"][1]
    assert set(found["files"]) == {"results.json", "results.csv", "results.md", "accuracies.png", "cut.png"}
    for name in found["files"]:
        assert (tmp_path / name).stat().st_size > 0
        if name.endswith(".png"):
            Image.open(tmp_path / name).verify()
    with (tmp_path / "results.csv").open() as lines:
        assert [float(line["accuracy"]) for line in csv.DictReader(lines)] == [
            row["accuracy"] for row in found["methods"]
        ]
    kept = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()}
    assert len(kept) == 8 * 2
    done: Any = run("compare", workspace / "store", *options, "--methods", methods)
    assert done.exit_code == 0
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()} == kept
    assert "random vectors" in done.stdout
    assert "Meaning gap of CCR" in done.stdout
    assert "…" not in done.stdout  # in 80 columns
    low, high = found["methods"][0]["interval"]
    assert f"{100 * low:.1f}-{100 * high:.1f}" in done.stdout
    assert str(tmp_path) in done.stdout.replace("\n", "")


def test_compare_refuses(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["compare", workspace / "store", "--concepts", workspace / "concepts.txt", "--out", tmp_path / "out"]
    assert exit_code([*common, "--methods", "lasso"], monkeypatch) == 1
    assert "no method 'lasso'" in capsys.readouterr().err
    assert exit_code([*common, "--fidelity", 0.9, "--radius", 0.1], monkeypatch) == 2
    assert "give a fidelity or a radius" in " ".join(capsys.readouterr().err.split())
    assert exit_code([*common, "--min-probability", 0.4], monkeypatch) == 2
    assert "give --knowledge FILE" in " ".join(capsys.readouterr().err.split())
    assert exit_code([*common, "--length", 99], monkeypatch) == 1
    assert "number of concepts" in capsys.readouterr().err
    assert not (tmp_path / "out" / "results.json").exists()


@pytest.fixture(scope="module")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve images per batch; the class is a shade of grey."""
    folder = tmp_path_factory.mktemp("cifar")
    rng = np.random.default_rng(0)
    for name in (*BATCHES, "test_batch.bin"):
        labels = np.arange(12) % 10
        pixels = np.clip(25 * labels[:, None, None, None] + rng.integers(0, 30, (12, 32, 32, 3)), 0, 255)
        write_records(folder / name, pixels.astype(np.uint8), labels[:, None])
    write_lines(folder / "batches.meta.txt", CIFAR10_CLASSES)
    return folder


def test_reproduce_on_a_folder_as_published(
    workspace: Path, cifar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cifar / "concepts.txt").write_text((workspace / "concepts.txt").read_text(encoding="utf-8"), encoding="utf-8")
    options = ("--data", cifar, "--encoder", f"hf:{workspace / 'clip'}", "--seeds", 1, "--epochs", 2, "--workers", 0)
    found: Any = as_json("reproduce", "cifar10", *options, "--out", tmp_path)
    assert (found["training_images"], found["test_images"]) == (60, 12)
    assert [run["name"] for run in found["trained"]] == [
        "CCR, released",
        "baseline, released",
        "CCR, ours",
        "baseline, ours",
    ]
    assert [item["k"] for item in found["ip_omp"]] == [5, 10]
    assert found["reported"]["length"] == 11.09
    for name in found["files"]:
        assert (tmp_path / name).is_file()
    monkeypatch.setattr(
        frontier, "FrontierGrid", partial(frontier.FrontierGrid, fidelities=(1.0,), weights=(1,), rival_lengths=())
    )
    again: Any = run("reproduce", "cifar10", "--data", tmp_path / "store", *options[2:], "--concepts",
                     workspace / "concepts.txt", "--out", tmp_path, "--frontier")  # fmt: skip
    assert again.exit_code == 0, again.output
    assert "as reported" in again.stdout
    assert "CLIP-IP-OMP" in again.stdout
    assert {"fidelity.png", "in_play.png", "frontier.json"} <= {path.name for path in tmp_path.iterdir()}
    facts = json.loads((tmp_path / "reproduce.json").read_text())
    assert facts["trained"] == found["trained"]


def test_reproduce_refuses(
    workspace: Path, cifar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["reproduce", "mnist", "--data", cifar], monkeypatch) == 2
    assert "places365" in capsys.readouterr().err
    bare, out = tmp_path / "bare", tmp_path / "out"
    write_cifar10(bare)
    options = ["--data", bare, "--encoder", f"hf:{workspace / 'clip'}", "--workers", 0, "--out", out]
    assert exit_code(["reproduce", "cifar10", *options], monkeypatch) == 1
    assert "--concepts FILE" in capsys.readouterr().err
    assert exit_code(["reproduce", "cub", *options], monkeypatch) == 1
    assert "images.txt" in capsys.readouterr().err
