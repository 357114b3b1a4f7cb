"""What people type: numbers that are none and names that are nearly right get a sentence; many classes stay short."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import ccr
from ccr import ConceptClassifier, Concepts
from ccr.calibration import Calibration, SetQuality
from ccr.cli.common import keeps
from ccr.cli.common_photo import show_sets
from ccr.cli.edit import read_pair
from ccr.data.store import EmbeddingStore
from ccr.errors import CCRError
from ccr.metrics import Interval
from ccr_lab.experiments.methods import methods_named
from ccr_lab.experiments.sweep import parse_axis
from tests.cli.conftest import as_json, exit_code, run
from tests.conftest import Data
from tests.data.helpers import write_image, write_store


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--seed", "-1", "greater than or equal to 0"),
        ("--seed", "one", "--seed"),
        ("--radius", "nan", "radius must be in [0, 2], got nan"),
        ("--fidelity", "high", "--fidelity"),
        ("--length", "nan", "length must be between 1 and"),
        ("--threshold", "inf", "threshold must be a number >= 0, got inf"),
        ("--device", "meta", "device must be"),
        ("--epochs", "0", "greater than or equal to 1"),
    ],
)
def test_numbers_that_are_none(
    workspace: Path,
    tmp_path: Path,
    option: str,
    value: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    arguments = ["fit", workspace / "store", "--concepts", workspace / "concepts.txt", "--out", tmp_path / "model"]
    arguments += ["--encoder", f"hf:{workspace / 'clip'}", option, value]
    assert exit_code(arguments, monkeypatch) in (1, 2)
    assert said in " ".join(capfd.readouterr().err.replace("│", " ").split())
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["explain", "MODEL", "no.jpg", "--way", "nonsense"], "give --where, too"),
        (["audit", "MODEL", "--split", "test"], "give the store, too"),
        (["edit", "MODEL", "--log", "--split", "test"], "give --store, too"),
        (["embed", "photos", "--out", "s", "--encoder", "bundled", "--device", "cuda"], "runs on the CPU"),
        (["concepts", "learn", " ", "--store", "s", "--shows", "a", "--lacks", "b", "--out", "c"], "needs a name"),
        (["concepts", "choose", "c.txt", "--out", "d.txt"], "give the store"),
        (["concepts", "check", "c.txt", "one", "--store", "two"], "give a store once"),
        (["explain", "MODEL", "no.jpg", "--box", "0,0,2,1"], "--box is four fractions"),
        (["figures", "s", "--concepts", "c", "--out", "o", "--no-paper", "--no-frontier"], "nothing to draw"),
        (["figures", "s", "--concepts", "c", "--out", "o", "--radius", "5"], "radius must be in"),
        (["figures", "s", "--concepts", "c", "--out", "o", "--dispersion", "foo"], "dispersion is none"),
        (["fit", "s", "--out", "o", "--cpus", "4"], "give --ray, too"),
    ],
)
def test_options_without_effect_are_refused_before_any_work(
    typed: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_image(tmp_path / "photos" / "pear" / "1.png", 1)
    write_image(tmp_path / "photos" / "apple" / "1.png", 2)
    assert exit_code(typed, monkeypatch) in (1, 2)
    assert said in " ".join(capfd.readouterr().err.replace("│", " ").split())


def test_names_that_are_nearly_right(digits: Data) -> None:
    model = ConceptClassifier(digits.concepts, max_iter=2, random_state=0).fit(digits.X, digits.y)
    wrong = {
        "'stroke 7'": lambda: digits.concepts.index("Stroke  7"),
        "'digit 3'": lambda: model.explain(digits.X[0]).contrast("digit3"),
        "'stroke 2'": lambda: model.explain(digits.X[0]).intervene({"stroke_2": 0.0}),
        "'label-free'": lambda: methods_named(["labelfree"]),
        "'radius'": lambda: parse_axis("radios=0,0.1"),
        "'stroke 1'": lambda: read_pair("--merge", "strok 1+stroke 2", "+", digits.concepts.names, None),
    }
    for meant, call in wrong.items():
        with pytest.raises(CCRError, match=rf"did you mean {meant}\?"):
            call()
    with pytest.raises(CCRError, match="no concept is called 'zebra'; there are 40"):
        digits.concepts.index("zebra")


def test_eighty_classes_fit_a_screen(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y, centers = np.repeat(np.arange(80), 6), rng.normal(size=(80, 16))
    X = centers[y] + rng.normal(size=(len(y), 16))
    concepts = Concepts([f"concept {row}" for row in range(40)], rng.normal(size=(40, 16)))
    write_store(tmp_path / "store", X, [f"class {number:02}" for number in y])
    store = EmbeddingStore.open(tmp_path / "store")
    ConceptClassifier(concepts, max_iter=5, random_state=0).fit(store).save(tmp_path / "model")
    arguments = ["evaluate", tmp_path / "model", tmp_path / "store"]
    printed = [run(*arguments, *more).stdout for more in ([], ["--all"])]
    few, every = (text.split("Mistaken most often")[0] for text in printed)
    assert len(re.findall(r"class \d\d", few)) == 10
    assert len(re.findall(r"class \d\d", every)) == 80
    worst = sorted(as_json(*arguments)["per_class"].values())[9]
    assert all(float(share) <= 100 * worst + 0.1 for share in re.findall(r"class \d\d.*?([\d.]+)%", few))
    arguments = ["edit", tmp_path / "model", "--out", tmp_path / "edited", "--suppress", "concept 1"]
    few, every = (run(*arguments, "--store", tmp_path / "store", *more).stdout for more in ([], ["--all"]))
    assert len(re.findall(r"class \d\d", few)) <= 10
    assert len(re.findall(r"class \d\d", every)) == 80


def test_the_version_is_said() -> None:
    assert run("--version").stdout.strip() == f"ccr {ccr.__version__}"


def test_what_is_read_is_not_written_over(
    model: Path, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    photo, table, words = tmp_path / "photo.png", tmp_path / "photos.csv", tmp_path / "words.html"
    shutil.copy(next((workspace / "photos").rglob("1.png")), photo)
    table.write_text("path\nphoto.png\n", encoding="utf-8")
    shutil.copy(workspace / "concepts.txt", words)
    before = {path: path.read_bytes() for path in (photo, table, words)}
    for command in (
        ["explain", model, photo, "--out", photo],
        ["predict", model, table, "--out", tmp_path / "." / "photos.csv"],
        ["concepts", "check", words, "--out", words],
        ["concepts", "choose", words, workspace / "store", "--out", words],
    ):
        assert exit_code(command, monkeypatch) == 1
        assert "must be another file than what is read" in " ".join(capfd.readouterr().err.split())
    assert {path: path.read_bytes() for path in before} == before
    assert exit_code(["concepts", "check", words, "--out", tmp_path / "list.txt"], monkeypatch) == 1
    assert "must end in .html" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("predict MODEL STORE --out p.csv --encoder bundled", "a store has embeddings"),
        ("edit MODEL --out e --rename round=ball --encoder bundled", "give --add, too"),
        ("edit MODEL --out e --rename round=ball --all", "give --store, too"),
        ("concepts check WORDS --encoder bundled", "give a store, too"),
        ("push MODEL me/fruit --out pushed --private", "with --out nothing is pushed"),
        ("push MODEL me/fruit --out pushed --revision next", "--revision next is about a hub"),
    ],
)
def test_options_without_an_effect_are_refused(
    model: Path, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str], command: str, why: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    named = {"MODEL": model, "STORE": workspace / "store", "WORDS": workspace / "concepts.txt"}
    assert exit_code([named.get(word, word) for word in command.split()], monkeypatch) == 2
    assert why in " ".join(capfd.readouterr().err.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


def test_sets_that_answer_nothing_are_told_without_a_share(capsys: pytest.CaptureFixture[str]) -> None:
    calibration = Calibration(1.0, 0.96, 0.1, 18, np.zeros(3))
    show_sets(SetQuality(40, 0.96, 1.0, Interval(0.9, 1.0), 5.0, 0.0, float("nan")), calibration)
    told = " ".join(capsys.readouterr().out.split())
    assert "No image is answered by exactly one class: all are left to people." in told
    assert "nan" not in told
    assert "they were calibrated on 18 other images; temperature 1.00 (left at 1: too few mistakes" in told


@pytest.mark.parametrize("name", ["figures", "reproduce", "sweep"])
def test_a_stopped_study_says_that_finished_fits_are_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("ccr.utils.processes.keep", said.append)
    keeps(name, Path("there"))
    keeps("audit", Path("there"))
    assert [text.endswith("kept in there; the same command goes on from there") for text in said] == [True]
