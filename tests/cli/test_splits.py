"""Which images commands train on and which they measure on, where a store's splits are not just train, val and test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccr import ConceptClassifier, ConceptModel, HardThreshold, embed_concepts, load_encoder, read_concepts
from ccr.data.store import EmbeddingStore
from ccr.errors import CCRError
from tests.cli.conftest import COLOURS, as_json, run

#: Photos of each class of the workspace.
EACH = 14


@pytest.fixture
def store_of(workspace: Path, tmp_path: Path) -> Callable[[Callable[[int], str], Callable[[str, int], str]], Path]:
    """A store whose photos have these splits, by number, and these labels, by class and number."""

    def made(split: Callable[[int], str], label: Callable[[str, int], str] = lambda name, _: name) -> Path:
        lines = ["path,label,split"]
        for name in COLOURS:
            lines += [f"{name}/{n}.png,{label(name, n)},{split(n)}" for n in range(EACH)]
        table = workspace / "photos" / f"{tmp_path.name}.csv"
        table.write_text("\n".join(lines), encoding="utf-8")
        done = run("embed", table, "--out", tmp_path / "s", "--encoder", f"hf:{workspace / 'clip'}", "--workers", 0)
        table.unlink()
        assert done.exit_code == 0, done.output
        return tmp_path / "s"

    return made


def fit(store: Path, workspace: Path, out: Path) -> dict[str, object]:
    options = ["--concepts", workspace / "concepts.txt", "--length", 4, "--epochs", 1, "--no-baseline"]
    return as_json("fit", store, *options, "--out", out)


def images_of(found: dict[str, object]) -> int:
    (measured,) = found["results"].values()
    return int(measured["n"])


@pytest.mark.parametrize("name", ["trainval", "learning"])
def test_test_images_are_never_trained_on(store_of, workspace: Path, tmp_path: Path, name: str) -> None:
    store = store_of(lambda n: "test" if n < 4 else name)
    found = fit(store, workspace, tmp_path / "m")
    assert found["split"] == "test"
    assert images_of(found) == 4 * len(COLOURS)
    opened = EmbeddingStore.open(store)
    rest = opened.select(rows=opened.splits != "test")
    concepts = ConceptClassifier.load(tmp_path / "m")
    alone = ConceptClassifier(**concepts.get_params(deep=False)).fit(rest)
    assert np.array_equal(alone.coef_, concepts.coef_)


@pytest.mark.parametrize(
    ("typed", "given"),
    [
        ([], {}),
        (["--length", 4, "--fidelity", 0.9], {"coder": HardThreshold(length=4), "fidelity": 0.9}),
        (["--weights", 2, "--seed", 3], {"weights_per_class": 2, "random_state": 3}),
        (["--candidates", 2], {"candidates": 2.0}),
    ],
)
def test_python_makes_the_same_model_as_the_command(
    workspace: Path, tmp_path: Path, typed: list[object], given: dict[str, Any]
) -> None:
    """To the bit, whichever way the store is given; what is not named is the same default."""
    as_json("fit", workspace / "store", "--concepts", workspace / "concepts.txt", *typed, "--out", tmp_path / "m")
    theirs, store = ConceptModel.load(tmp_path / "m"), EmbeddingStore.open(workspace / "store")
    options = {"random_state": 0, **given}
    concepts = embed_concepts(
        read_concepts(workspace / "concepts.txt"), load_encoder(f"hf:{workspace / 'clip'}", device="cpu")
    )
    for part in (store, store.select("train")):
        ours = ConceptClassifier(concepts, **options).fit(part).model_
        np.testing.assert_array_equal(ours.head.coef, theirs.head.coef)
        np.testing.assert_array_equal(ours.concepts.embeddings, theirs.concepts.embeddings)
        np.testing.assert_array_equal(ours.predict_proba(store), theirs.predict_proba(store))


def test_a_store_of_test_images_alone_is_refused(store_of, workspace: Path, tmp_path: Path) -> None:
    store = store_of(lambda n: "test" if n < 10 else "val")
    with pytest.raises(CCRError, match=r"nothing to train on: all 42 images of .* are set aside as test and val"):
        fit(store, workspace, tmp_path / "m")
    assert not (tmp_path / "m").exists()
    fit(workspace / "store", workspace, tmp_path / "m")
    with pytest.raises(CCRError, match="nothing to train on"):
        run("edit", tmp_path / "m", "--out", tmp_path / "e", "--refit", store)


def test_images_without_a_label_are_not_measured_on(store_of, workspace: Path, tmp_path: Path) -> None:
    store = store_of(
        lambda n: "test" if n < 4 else "val" if n < 7 else "train",
        lambda name, n: "" if n < 4 or n == 4 else name,
    )
    found = fit(store, workspace, tmp_path / "m")
    assert found["split"] == "val"
    assert images_of(found) == 2 * len(COLOURS)
    assert as_json("evaluate", tmp_path / "m", store)["n"] == 2 * len(COLOURS)
    assert as_json("evaluate", tmp_path / "m", store, "--split", "val")["n"] == 2 * len(COLOURS)
    assert as_json("audit", tmp_path / "m", store)["images"] == 4 * len(COLOURS)
    with pytest.raises(CCRError, match="every row needs a label"):
        run("evaluate", tmp_path / "m", store, "--split", "test")


def test_a_model_may_be_the_folder_one_is_in(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    fit(workspace / "store", workspace, Path())
    assert len(ConceptClassifier.load(tmp_path / "here").concepts_) > 1
