"""`ccr demo`: what it prints and leaves, with a list and a table of the user's own or the bundled ones."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccr import ConceptModel, EmbeddingStore, Knowledge
from ccr.cli import demo as module
from ccr.cli import main
from ccr.data.datasets import open_demo
from ccr.data.datasets.sources import MAX_BYTES, content_hash
from ccr.data.shipped import LIVE, check_shipped, shipped_store
from ccr.encoders.bundled import BundledEncoder
from ccr.kernels import warm_up
from tests.docs.workspace import FRUIT, private_cache

SEEDS = 2


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder that the demo leaves and its JSON; photos were embedded before, and two seeds are enough here."""
    folder = tmp_path_factory.mktemp("demo")
    shutil.copytree(FRUIT, folder / "out" / "store")
    warm_up()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CCR_CACHE", str(private_cache(folder / "cache")))
        patch.setattr(module, "SEEDS", SEEDS)
        return folder / "out", _printed(patch, folder / "out")


def _printed(patch: pytest.MonkeyPatch, out: Path) -> dict[str, Any]:
    import io

    stream = io.StringIO()
    patch.setattr("sys.argv", ["ccr", "demo", "--out", str(out), "--json"])
    patch.setattr("sys.stdout", stream)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code
    printed = json.loads(stream.getvalue())
    assert isinstance(printed, dict)
    return printed


class Turned:
    """The demo's encoder, whose embeddings are another image's."""

    def __init__(self, encoder: BundledEncoder) -> None:
        self.encoder = encoder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.encoder, name)

    def embed_images(self, images: list[Any], **options: Any) -> np.ndarray:
        return np.roll(self.encoder.embed_images(images, **options), 1, axis=0)


def test_the_embeddings_of_the_package_are_those_that_its_encoder_makes_here(tmp_path: Path) -> None:
    dataset, encoder = open_demo(), BundledEncoder()
    checked = check_shipped(dataset, encoder)
    assert (checked.photos, checked.agrees) == (LIVE, True)
    assert not check_shipped(dataset, Turned(encoder)).agrees
    other = replace(dataset, samples=[*dataset.samples[1:], dataset.samples[0]])
    assert not check_shipped(other, encoder).agrees
    store, origin = module._store(tmp_path / "store", encoder, embed=False)
    assert checked.sentence in origin
    np.testing.assert_array_equal(store.X, shipped_store().X)
    store.verify()


def test_the_package_has_a_hash_of_every_photo() -> None:
    dataset, contents = open_demo(), shipped_store().contents
    assert [content_hash(sample.source.read(MAX_BYTES)) for sample in dataset] == contents.tolist()


def test_the_page_shows_one_photo_with_and_without_knowledge(made: tuple[Path, dict[str, Any]]) -> None:
    right, untold = made[1]["right"], made[1]["untold"]
    assert right["contributions"] != untold["contributions"]
    page = (made[0] / "report.html").read_text(encoding="utf-8")
    assert page.index("A prediction that is right") < page.index("without knowledge") < page.index("Test accuracy")
    assert str(made[0]) not in page


def test_the_table_is_left_where_the_user_can_change_it(made: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    left = (made[0] / "knowledge.csv").read_bytes()
    assert left == files("ccr.data").joinpath("demo_knowledge.csv").read_bytes()
    own = tmp_path / "knowledge.csv"
    own.write_text("class,concept,answer\nKaiser,brown skin,yes\n")
    assert len(module._knowledge(own)) == 1
    assert own.read_text().startswith("class,concept,answer\nKaiser")


def test_both_models_that_are_left_make_only_claims_of_the_table(made: tuple[Path, dict[str, Any]]) -> None:
    table = Knowledge.read(made[0] / "knowledge.csv")
    for name in ("model", "baseline"):
        model = ConceptModel.load(made[0] / name)
        assert model.provenance.knowledge == table
        assert (np.count_nonzero(model.head.coef, axis=1) <= 5).all()
        answers = table.aligned(model.classes.tolist(), model.names)
        assert (answers[model.head.coef != 0] == 1).all()


def test_the_baseline_that_is_left_is_the_model_whose_concepts_stay(made: tuple[Path, dict[str, Any]]) -> None:
    moved = {
        name: float(np.abs(model.concepts.embeddings - model.initial.embeddings).max())
        for name in ("model", "baseline")
        for model in [ConceptModel.load(made[0] / name)]
    }
    assert moved["baseline"] < 1e-6 < 0.01 < moved["model"]


def test_json_has_both_fits_for_every_seed(made: tuple[Path, dict[str, Any]]) -> None:
    printed = made[1]
    for fit in (printed, printed["with_knowledge"]):
        assert {len(fit[key]) for key in ("seeds", "baseline", "refitted", "refined", "truth")} == {SEEDS}
        assert all(0 <= share <= 1 for key in ("baseline", "refined", "truth") for share in fit[key])
    test = EmbeddingStore.open(made[0] / "store").select("test")
    assert ConceptModel.load(made[0] / "model").evaluate(test).accuracy == printed["with_knowledge"]["refined"][0]


def test_truth_is_the_share_of_the_first_five_reasons_that_the_table_confirms(
    made: tuple[Path, dict[str, Any]],
) -> None:
    """Against a loop over explanations: each reason looked up for the photo's own class."""
    table, model = Knowledge.read(made[0] / "knowledge.csv"), ConceptModel.load(made[0] / "model")
    test = EmbeddingStore.open(made[0] / "store").select("test")
    said = []
    for row, label in enumerate(test.y):
        terms = [term for term in model.explain(test[row]).contributions if term.code > 0 and term.contribution > 0]
        for term in sorted(terms, key=lambda term: -term.contribution)[:5]:
            answer = table.find(label, term.concept)
            said.append(answer is not None and answer.answer == "yes")
    assert made[1]["with_knowledge"]["truth"][0] == pytest.approx(np.mean(said), abs=1e-9)
    assert np.mean(made[1]["with_knowledge"]["truth"]) > np.mean(made[1]["truth"])


def test_the_page_has_a_row_with_and_a_row_without(made: tuple[Path, dict[str, Any]]) -> None:
    page = (made[0] / "report.html").read_text(encoding="utf-8")
    for fit in (made[1], made[1]["with_knowledge"]):
        for shares, form in ((fit["refined"], ".1%"), (fit["truth"], ".0%")):
            assert format(float(np.mean(shares)), form) in page
