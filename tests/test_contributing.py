"""The paths of a fit and of an image in CONTRIBUTING.md are those that they take."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import ccr
from ccr import IPOMP, ConceptClassifier, ConceptModel, Concepts, HardThreshold, NonNegativeLasso
from ccr.data.datasets import open_dataset
from ccr.encoders import load_encoder
from ccr.inputs import Embeddings
from ccr.show import page, plots
from tests.conftest import Data
from tests.data.helpers import write_image

ROOT, SOURCE = Path(__file__).parents[1], Path(ccr.__file__).parent


def files_passed(work: Any) -> set[str]:
    """Files of the package in which functions are called, in any thread, while `work` runs."""
    passed: set[str] = set()

    def watch(frame: Any, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            passed.add(frame.f_code.co_filename)

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return {str(Path(name).relative_to(SOURCE)) for name in passed if Path(name).is_relative_to(SOURCE)}


def described(path: str = "a fit") -> set[str]:
    """Files named in the section, from the room on; `core/kernels/` stands for all in it."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split(f"## The path of {path}")[1].split("\n## ")[0]
    return set(re.findall(r"`([\w/]+(?:\.py|/))`", text)) - {"tests/test_contributing.py"}


def unnamed(passed: set[str], named: set[str]) -> set[str]:
    """Files passed through that no name stands for."""
    known = lambda name: any(name.endswith(one) or (one.endswith("/") and one in name) for one in named)  # noqa: E731
    return {name for name in passed if not known(name)} - {"__init__.py"}


@pytest.mark.parametrize("engine", ["sparse", "dense", "head"])
def test_a_fit_passes_only_through_the_files_described(engine: str, digits: Data, tmp_path: Path) -> None:
    named = described()
    settings: dict[str, Any] = {"max_iter": 2, "random_state": 0, "class_weight": "balanced"}
    settings |= {"radius": 0.0, "coder": IPOMP(5)} if engine == "head" else {"engine": engine}
    model = ConceptClassifier(Concepts(digits.concepts.names, digits.concepts.embeddings), **settings)

    def work() -> None:
        model.fit(digits.X, digits.y, **({} if engine == "head" else {"checkpoint": tmp_path / "run"}))
        model.save(tmp_path / "model")

    passed = files_passed(work)
    assert {"classifier.py", "space.py", "refine/loop.py", "model.py"} <= passed
    missing = unnamed(passed, named)
    assert missing == set(), f"name them in CONTRIBUTING.md: {sorted(missing)}"


def test_an_image_passes_only_through_the_files_described(digits: Data, tmp_path: Path) -> None:
    """From a file to a picture of its explanation. The bundled encoder embeds; the model's space is 64-dimensional, so
    that it explains a row of digits."""
    ConceptClassifier(digits.concepts, max_iter=2, random_state=0).fit(digits.X, digits.y).save(tmp_path / "model")
    write_image(tmp_path / "photos" / "some class" / "photo.png", 0)

    def work() -> None:
        (sample, *_) = open_dataset(tmp_path / "photos", test=0.0, val=0.0)
        load_encoder("bundled").embed_images([sample.image()])
        explained = ConceptModel.load(tmp_path / "model").explain(digits.X_test[0])
        plots.png(plots.explanation(explained, sample.image()))
        page.explanation_card(explained, sample.image())

    work()  # imports first: their classes would count as calls
    passed = files_passed(work)
    assert {"model.py", "explain/explanation.py", "show/plots.py"} <= passed
    missing = unnamed(passed, described("an image"))
    assert missing == set(), f"name them in CONTRIBUTING.md: {sorted(missing)}"


@pytest.mark.parametrize("path", ["a fit", "an image"])
def test_every_file_described_is_there(path: str) -> None:
    present = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py")}
    for name in described(path):
        assert any(path.endswith(name) or (name.endswith("/") and name in path) for path in present), name


def test_coders_have_the_rules_described(digits: Data) -> None:
    homes = {"rules": HardThreshold(length=3), "pursuit": IPOMP(3), "lasso": NonNegativeLasso(length=3)}
    for home, coder in homes.items():
        rule = coder.rule(Embeddings(digits.X), digits.concepts.embeddings)
        assert type(rule).__module__ == f"ccr.coding.{home}"
