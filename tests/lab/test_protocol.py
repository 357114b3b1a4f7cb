"""The paper's protocol: its four settings, its table, and CLIP-IP-OMP by k."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from ccr import ConceptClassifier, Concepts, HardThreshold
from ccr.errors import CCRError
from ccr.labels import Part
from ccr.space import Angular
from ccr_lab.experiments.cache import RunCache
from ccr_lab.experiments.protocol import REPORTED, Protocol, run_protocol, settings
from tests.conftest import Data


@pytest.fixture(scope="module")
def parts(clip: Data) -> tuple[Concepts, Part, Part]:
    return clip.concepts, Part(clip.X[:1500], clip.y[:1500]), Part(clip.X_test[:500], clip.y_test[:500])


@pytest.fixture(scope="module")
def found(parts: tuple[Concepts, Part, Part], tmp_path_factory: pytest.TempPathFactory) -> tuple[Protocol, Any]:
    concepts, train, test = parts
    folder = tmp_path_factory.mktemp("runs")
    protocol = run_protocol(
        "cifar10", concepts, train=train, test=test, seeds=(0, 1), pursuit_lengths=(5, 10, 600),
        cache=RunCache(folder), overrides={"max_iter": 4},
    )  # fmt: skip
    return protocol, folder


def test_the_released_settings_are_the_paper_s() -> None:
    models = settings("imagenet", Concepts(["a", "b"], np.eye(2)))
    released = models["CCR, released"].get_params()
    assert released["coder"].get_params() == HardThreshold(threshold=0.24, sign="positive").get_params()
    assert (released["batch_size"], released["optimizer"], released["head_rate"]) == (100, "sgd", 1.0)
    assert (released["dictionary_rate"], released["dropout"], released["radius"]) == (1e-4, 0.5, 0.1)
    assert isinstance(released["dispersion"], Angular)
    assert released["center"] is None
    for name, model in models.items():
        twin = models[name.replace("CCR", "baseline")]
        same = {key: str(value) for key, value in model.get_params().items() if key != "radius"}
        assert same == {key: str(value) for key, value in twin.get_params().items() if key != "radius"}
        assert twin.radius == 0.0


def test_every_setting_is_fitted_with_every_seed(found: tuple[Protocol, Any]) -> None:
    protocol, _ = found
    assert {name: len(runs) for name, runs in protocol.runs().items()} == {
        "CCR, released": 2,
        "baseline, released": 2,
        "CCR, ours": 2,
        "baseline, ours": 2,
    }
    for run in protocol.trained:
        assert len(run.history) == 4
        assert run.accuracy == run.history[-1].validation_accuracy  # the last epoch, not the best
        assert run.sparsity == pytest.approx(run.length / protocol.concepts)
        assert (run.deviation == 0) == run.name.startswith("baseline")
        assert run.max_deviation <= 0.1 + 1e-6
    ours = [run for run in protocol.trained if "ours" in run.name]
    assert all(run.length == pytest.approx(REPORTED["cifar10"].length, rel=0.1) for run in ours)
    assert [item.k for item in protocol.pursued] == [5, 10]  # there are fewer than 600 concepts


def test_the_accuracy_is_the_model_s(found: tuple[Protocol, Any], parts: tuple[Concepts, Part, Part]) -> None:
    concepts, train, test = parts
    model = ConceptClassifier.paper("cifar10", concepts, max_iter=4, random_state=1, n_iter_no_change=99, tol=1.0)
    model.fit(train.X, train.y, validation=(test.X, test.y))
    run = found[0].runs()["CCR, released"][1]
    assert run.accuracy == model.score(test.X, test.y)


def test_a_second_run_fits_nothing(
    found: tuple[Protocol, Any], parts: tuple[Concepts, Part, Part], monkeypatch: pytest.MonkeyPatch
) -> None:
    protocol, folder = found
    concepts, train, test = parts

    def never(*_: object, **__: object) -> None:
        raise AssertionError("fitted again")

    monkeypatch.setattr(ConceptClassifier, "fit", never)
    again = run_protocol(
        "cifar10", concepts, train=train, test=test, seeds=(0, 1), pursuit_lengths=(5, 10), cache=RunCache(folder),
        overrides={"max_iter": 4},
    )  # fmt: skip
    assert again.to_dict() == protocol.to_dict() == json.loads(json.dumps(protocol.to_dict()))
    with pytest.raises(AssertionError, match="fitted again"):
        run_protocol(
            "cifar10", concepts, train=train, test=test, seeds=(2,), cache=RunCache(folder), overrides={"max_iter": 4}
        )


def test_other_data_sets_are_refused(parts: tuple[Concepts, Part, Part]) -> None:
    concepts, train, test = parts
    with pytest.raises(CCRError, match="cifar10, cifar100, cub, imagenet, places365, got 'mnist'"):
        run_protocol("mnist", concepts, train=train, test=test)
