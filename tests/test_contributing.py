"""The path of a fit in CONTRIBUTING.md is the one that a fit takes."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import ccr
from ccr import IPOMP, ConceptClassifier, Concepts, HardThreshold, NonNegativeLasso
from ccr.core.inputs import Embeddings
from tests.conftest import Data

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


def described() -> set[str]:
    """Files named in the section, from the room on; `core/kernels/` stands for all in it."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## The path of a fit")[1]
    return set(re.findall(r"`([\w/]+(?:\.py|/))`", text)) - {"tests/test_contributing.py"}


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
    assert {"models/classifier.py", "core/space.py", "core/refine/loop.py", "models/concept_model.py"} <= passed
    unnamed = {
        name
        for name in passed
        if not any(name.endswith(known) or (known.endswith("/") and known in name) for known in named)
    }
    assert unnamed <= {"__init__.py"}, f"name them in CONTRIBUTING.md: {sorted(unnamed)}"


def test_every_file_described_is_there() -> None:
    present = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py")}
    for name in described():
        assert any(path.endswith(name) or (name.endswith("/") and name in path) for path in present), name


def test_coders_have_the_rules_described(digits: Data) -> None:
    homes = {"rules": HardThreshold(length=3), "pursuit": IPOMP(3), "lasso": NonNegativeLasso(length=3)}
    for home, coder in homes.items():
        rule = coder.rule(Embeddings(digits.X), digits.concepts.embeddings)
        assert type(rule).__module__ == f"ccr.core.coding.{home}"
