"""Controls of a model: what the same fit reaches with concepts that mean nothing, noted with it and on its card."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ccr import ConceptClassifier, ConceptModel, EmbeddingStore, embed_concepts, load_encoder
from ccr.controls import measure_controls
from ccr.errors import CCRError
from ccr.io.hub import model_card
from ccr.vocab import random_words, read_concepts
from ccr.vocab.lists import WORDS_FILE
from tests.cli.conftest import COLOURS, as_json, exit_code, run
from tests.data.helpers import write_store
from tests.encoders.test_hf import save

SEEN = ["round", "square", "shiny", "dull", "warm", "cold", "leaf", "noise", "smooth", "rough"]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos of three classes, a list of concepts, and a tiny CLIP that knows these words and the random ones."""
    folder = tmp_path_factory.mktemp("controls")
    rng = np.random.default_rng(0)
    for label, colour in COLOURS.items():
        (folder / "photos" / label).mkdir(parents=True)
        for number in range(20):
            pixels = np.clip(np.array(colour) + rng.normal(0, 60, (40, 40, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / label / f"{number}.png")
    save(folder / "clip", "clip", words=[*SEEN, *(word for word in read_concepts(WORDS_FILE) if word not in SEEN)])
    (folder / "concepts.txt").write_text("\n".join(SEEN), encoding="utf-8")
    options = ["--encoder", f"hf:{folder / 'clip'}", "--workers", "0"]
    assert run("embed", folder / "photos", "--out", folder / "store", *options).exit_code == 0  # type: ignore[attr-defined]
    return folder


@pytest.fixture(scope="module")
def model(workspace: Path) -> Path:
    options = ["--concepts", workspace / "concepts.txt", "--length", 2, "--no-baseline", "--weights", "all"]
    as_json("fit", workspace / "store", *options, "--out", workspace / "model")
    return workspace / "model"


def test_random_words_are_fitted_as_the_model_was(model: Path, workspace: Path) -> None:
    """The same by hand."""
    loaded, store = ConceptClassifier.load(model), EmbeddingStore.open(workspace / "store")
    encoder, seen = load_encoder(f"hf:{workspace / 'clip'}"), set()
    found = measure_controls(loaded, store, encoder, tell=lambda done, all_, words: seen.add(words))
    assert seen == {"fitting with random words", "fitting with random vectors"}
    names = [*loaded.concepts_.names, *loaded.model_.provenance.left_out]
    words = random_words(len(names), seed=0, exclude=[*names, *loaded.classes_])
    train, test = store.select("train"), store.select("test")
    val = store.select("val") if "val" in store.splits else None
    own = ConceptClassifier(embed_concepts(words, encoder), **loaded.settings())
    own.fit(train, validation=None if val is None else (val, val.y))
    assert found.words.accuracy == own.score(test)
    assert found.accuracy == loaded.score(test)
    assert found.images == len(test)
    for control in (found.words, found.vectors):
        assert control.gap == pytest.approx(found.accuracy - control.accuracy)
        assert control.interval.low <= control.gap <= control.interval.high


def test_a_fit_notes_them_and_the_card_shows_them(workspace: Path, tmp_path: Path) -> None:
    options = ["--concepts", workspace / "concepts.txt", "--length", 2, "--no-baseline", "--controls"]
    said = as_json("fit", workspace / "store", *options, "--out", tmp_path / "model")
    loaded = ConceptModel.load(tmp_path / "model")
    noted = loaded.provenance.metrics["controls"]
    assert said["controls"] == noted
    assert set(noted) == {"random words", "random vectors", "images"}
    card = model_card(loaded, name="me/fruit")
    for name in ("random words", "random vectors"):
        low, high = noted[name]["interval"]
        shown = f"{100 * noted[name]['gap']:+.1f} | {100 * low:+.1f} to {100 * high:+.1f} |"
        assert f"| {name} | {100 * noted[name]['accuracy']:.1f} % | {shown}" in card
    counts = loaded.provenance.metrics["images"]
    assert sum(counts.values()) == len(EmbeddingStore.open(workspace / "store"))
    assert f"{counts['train']:,} train" in card
    assert "none were noted" not in card


def test_push_measures_them_for_a_model_without(model: Path, workspace: Path, tmp_path: Path) -> None:
    assert "none were noted" in model_card(ConceptModel.load(model), name="me/fruit")
    store = ["--store", workspace / "store", "--pictures", 1]
    done = run("push", model, "me/fruit", *store, "--controls", "--out", tmp_path / "shared")
    assert done.exit_code == 0, done.output  # type: ignore[attr-defined]
    assert "meaning gap" in " ".join(done.output.split())  # type: ignore[attr-defined]
    card = (tmp_path / "shared" / "README.md").read_text(encoding="utf-8")
    assert "| random vectors |" in card
    assert "random words" in ConceptModel.load(tmp_path / "shared").provenance.metrics["controls"]
    assert "controls" not in ConceptModel.load(model).provenance.metrics, "the model itself is left as it was"


def test_what_cannot_be_measured_is_said_first(
    model: Path, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert exit_code(["push", model, "me/fruit", "--controls", "--out", tmp_path / "x"], monkeypatch) == 1
    write_store(tmp_path / "unsplit", np.eye(16)[:8], "ababacab")
    with pytest.raises(CCRError, match="needs the splits train and test"):
        measure_controls(
            ConceptClassifier.load(model), EmbeddingStore.open(tmp_path / "unsplit"), load_encoder("bundled")
        )
    arguments = ["fit", tmp_path / "unsplit", "--concepts", workspace / "concepts.txt", "--controls"]
    assert exit_code([*arguments, "--out", tmp_path / "y"], monkeypatch) == 1
    assert not (tmp_path / "x").exists()
    assert not (tmp_path / "y").exists()


def test_accuracies_noted_by_hand_stand_on_the_card(model: Path) -> None:
    card = model_card(ConceptModel.load(model).with_metrics("controls", {"random words": 0.61, "odd": "x"}), name="a/b")
    assert "| random words | 61.0 % | not known | not known |" in card
    assert "odd" not in card
