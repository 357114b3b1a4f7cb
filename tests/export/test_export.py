"""Models elsewhere: ONNX files and torch modules say what the model says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image

import ccr.runtime
from ccr import ConceptClassifier, ConceptModel, HardThreshold, TopK
from ccr.encoders.registry import ClipPreprocess
from ccr.errors import CCRError, WriteError
from ccr.export.onnx_model import IR_VERSION, OPSET, PIXELS, GraphParts, add_centre_square, onnx_model
from tests.conftest import Data

SAVED = Path(__file__).parents[1] / "io" / "saved"
EXPORTABLE = ("threshold-both", "threshold-positive", "threshold-fixed", "threshold-fixed-positive", "top")
ROWS = np.load(SAVED / "answers.npz")["rows"]
CODERS: dict[str, Any] = {
    "positive": HardThreshold(length=8),
    "both": HardThreshold(length=8, sign="both"),
    "top": TopK(6),
}


def run(path: Path, X: np.ndarray) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {session.get_inputs()[0].name: X}), strict=True))


@pytest.mark.parametrize("name", EXPORTABLE)
def test_an_onnx_file_says_what_the_model_says(name: str, tmp_path: Path) -> None:
    model = ConceptModel.load(SAVED / name)
    model.to_onnx(tmp_path / "m.onnx")
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
    said = run(tmp_path / "m.onnx", ROWS)
    assert np.array_equal(said["label"], model.predict(ROWS))
    assert np.abs(said["logits"] - model.logits(ROWS)).max() < 1e-5
    assert np.abs(said["probabilities"] - model.predict_proba(ROWS)).max() < 1e-6
    assert np.abs(said["codes"] - model.encode(ROWS).toarray()).max() < 1e-6
    winners = said["logits"].argmax(axis=1)
    total = said["contributions"].sum(axis=1) + model.head.intercept[winners]
    assert np.allclose(total, said["logits"].max(axis=1), atol=1e-5), "bias and contributions are the logit"
    terms = {term.concept: term.contribution for term in model.explain(ROWS[0]).contributions}
    column = {model.names[at]: value for at, value in enumerate(said["contributions"][0]) if value}
    assert column.keys() == terms.keys()
    assert all(column[name] == pytest.approx(terms[name], abs=1e-5) for name in terms)
    for count in (1, 7):  # the batch is free
        assert np.allclose(run(tmp_path / "m.onnx", ROWS[:count])["logits"], said["logits"][:count], atol=1e-6)


def test_names_and_classes_are_in_the_file(digits: Data, tmp_path: Path) -> None:
    fitted = ConceptClassifier(digits.concepts, max_iter=2, random_state=0).fit(digits.X, digits.y)
    fitted.to_onnx(tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    facts = session.get_modelmeta().custom_metadata_map
    assert json.loads(facts["concepts"]) == list(fitted.concepts_.names)
    assert json.loads(facts["classes"]) == fitted.classes_.tolist()
    assert json.loads(facts["rule"])["type"] == "ThresholdRule"
    said = run(tmp_path / "m.onnx", digits.X_test.astype(np.float32))
    assert said["label"].tolist() == fitted.predict(digits.X_test).tolist(), "labels are texts"


@pytest.mark.parametrize("kind", [int, float, bool])
def test_labels_keep_their_kind(digits: Data, tmp_path: Path, kind: type) -> None:
    y = np.array([int(label[-1]) % 2 for label in digits.y]).astype(kind)
    fitted = ConceptClassifier(digits.concepts, max_iter=1, random_state=0).fit(digits.X, y)
    fitted.to_onnx(tmp_path / "m.onnx")
    said = run(tmp_path / "m.onnx", digits.X_test.astype(np.float32))["label"]
    assert said.dtype.kind == np.dtype(kind).kind
    assert np.array_equal(said, fitted.predict(digits.X_test))


def test_the_largest_whole_numbers_stay_what_they_are(tmp_path: Path) -> None:
    model = ConceptModel.load(SAVED / "top")
    large = replace(model, classes=np.uint64(2**63) + np.arange(len(model.classes), dtype=np.uint64))
    large.to_onnx(tmp_path / "m.onnx")
    assert run(tmp_path / "m.onnx", ROWS)["label"].tolist() == large.predict(ROWS).tolist()


@pytest.mark.parametrize("coder", CODERS)
def test_ten_thousand_real_embeddings(coder: str, clip: Data, tmp_path: Path) -> None:
    """Labels and active concepts are identical, logits within 1e-5, in every row."""
    from benchmarks.private_data import SHARED

    images = np.load(SHARED / "embeddings" / "cifar10.npz")
    X = images["X"][~images["is_train"]].astype(np.float32)
    assert len(X) == 10_000
    fitted = ConceptClassifier(clip.concepts, coder=CODERS[coder], max_iter=3, random_state=0).fit(clip.X, clip.y)
    model = fitted.model_
    model.to_onnx(tmp_path / "m.onnx")
    said = run(tmp_path / "m.onnx", X)
    with torch.inference_mode():
        logits, codes = model.to_torch()(torch.from_numpy(X))
    for found, active in ((said["logits"], said["codes"]), (logits.numpy(), codes.numpy())):
        assert np.array_equal(active != 0, model.encode(X).toarray() != 0)
        assert np.abs(found - model.logits(X)).max() < 1e-5
        assert np.array_equal(model.classes[found.argmax(axis=1)], model.predict(X))
    assert np.array_equal(said["label"].astype(str), model.predict(X))


@pytest.mark.parametrize("name", ["threshold-both", "threshold-positive"])
def test_scores_on_the_threshold_are_decided_alike(name: str, tmp_path: Path) -> None:
    """Thresholds that are scores themselves, rounded to float32: in float32, every form would decide on its own."""
    model = ConceptModel.load(SAVED / name)
    scores = model.images(ROWS).exact(np.arange(len(ROWS))) @ model.concepts.embeddings.T.astype(np.float64)
    for at in np.argsort(np.abs(np.abs(scores) - model.rule.threshold), axis=None)[:12]:
        close = replace(model, rule=replace(model.rule, threshold=float(np.float32(abs(scores.flat[at])))))
        close.to_onnx(tmp_path / "m.onnx")
        close.save(tmp_path / "model")
        with torch.inference_mode():
            by_torch = close.to_torch()(torch.from_numpy(ROWS))[1].numpy()
        light = ccr.runtime.load(tmp_path / "model").encode(ROWS)
        for codes in (run(tmp_path / "m.onnx", ROWS)["codes"], by_torch, light):
            assert np.array_equal(codes != 0, close.encode(ROWS).toarray() != 0)


def test_damaged_embeddings_get_no_numbers(tmp_path: Path) -> None:
    model = ConceptModel.load(SAVED / "threshold-positive")
    model.to_onnx(tmp_path / "m.onnx")
    bad = np.stack([np.zeros(64), np.full(64, np.nan), ROWS[0] * 1e30, ROWS[0] * 1e-30]).astype(np.float32)
    with torch.inference_mode():
        module = model.to_torch()(torch.from_numpy(bad))[0].numpy()
    for logits in (run(tmp_path / "m.onnx", bad)["logits"], module):
        assert np.isnan(logits[:2]).all()
        assert np.allclose(logits[2:], model.logits(ROWS[:1]), atol=1e-5), "the norm of an embedding counts for nothing"


def test_damaged_embeddings_get_no_label(tmp_path: Path) -> None:
    """Texts and floats have one that stands for none; others have probabilities that are NaN."""
    model = ConceptModel.load(SAVED / "threshold-positive")
    n = len(model.classes)
    bad = np.stack([np.zeros(64), np.full(64, np.nan), np.full(64, np.inf), ROWS[0]]).astype(np.float32)
    for classes in (np.array([f"class {row:02}" for row in range(n)]), np.arange(n) / 2, np.arange(n)):
        known = replace(model, classes=classes)
        known.to_onnx(tmp_path / "m.onnx")
        said = run(tmp_path / "m.onnx", bad)
        assert np.isnan(said["probabilities"][:3]).all()
        assert np.isfinite(said["probabilities"][3]).all()
        assert said["label"][3] == known.predict(ROWS[:1])[0]
        if classes.dtype.kind != "i":
            none = said["label"][:3] == "" if classes.dtype.kind == "U" else np.isnan(said["label"][:3])
            assert none.all()


@pytest.mark.parametrize("name", ["omp", "ip-omp", "lasso"])
def test_pursuits_are_refused_with_the_reason(name: str, tmp_path: Path) -> None:
    model = ConceptModel.load(SAVED / name)
    with pytest.raises(CCRError, match=r"ONNX takes codes that are a threshold or the top k.*for every image"):
        model.to_onnx(tmp_path / "m.onnx")
    with pytest.raises(CCRError, match="torch takes codes"):
        model.to_torch()
    assert list(tmp_path.iterdir()) == []


def test_only_the_bundled_tower_can_be_joined(tmp_path: Path) -> None:
    with pytest.raises(CCRError, match=r"only the bundled image tower.*--encoder bundled"):
        ConceptModel.load(SAVED / "top").to_onnx(tmp_path / "m.onnx", with_encoder=True)
    with pytest.raises(WriteError):
        ConceptModel.load(SAVED / "top").to_onnx("/proc/m.onnx")


@pytest.fixture(scope="module")
def resizing() -> Any:
    """A graph that resizes and crops and does nothing else."""
    parts = GraphParts()
    square, helper = add_centre_square(parts, 224), onnx.helper
    given = helper.make_tensor_value_info(PIXELS, onnx.TensorProto.UINT8, ["height", "width", 3])
    made = helper.make_tensor_value_info(square, onnx.TensorProto.DOUBLE, [3, 224, 224])
    graph = helper.make_graph(parts.nodes, "resize", [given], [made], parts.constants)
    built = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    return onnxruntime.InferenceSession(built.SerializeToString())


SIZES = [(32, 32), (224, 224), (224, 500), (301, 250), (480, 641), (1, 3), (400, 799)]
TALL = [(900, 250), (1100, 301), (500, 250), (520, 250), (640, 225), (600, 40), (3, 1), (230, 224), (226, 225)]


@pytest.mark.parametrize("size", [*SIZES, *TALL])
def test_the_graph_resizes_as_pillow_does(size: tuple[int, int], resizing: Any) -> None:
    pixels = np.random.default_rng(size[0]).integers(0, 256, (*size, 3), dtype=np.uint8)
    expected = np.asarray(ClipPreprocess().crop(Image.fromarray(pixels)))
    assert np.array_equal(resizing.run(None, {PIXELS: pixels})[0].transpose(1, 2, 0), expected)


@pytest.mark.parametrize("name", EXPORTABLE)
def test_a_module_is_scripted_and_exported(name: str) -> None:
    model, X = ConceptModel.load(SAVED / name), torch.from_numpy(ROWS)
    module = model.to_torch().eval()
    batch = torch.export.Dim("batch", min=2)
    exported = torch.export.export(module, (X,), dynamic_shapes=({0: batch},)).module()
    for found in (module, torch.jit.script(module), exported):
        logits, codes = found(X[:9])
        assert np.abs(logits.detach().numpy() - model.logits(ROWS[:9])).max() < 1e-5
        assert np.abs(codes.detach().numpy() - model.encode(ROWS[:9]).toarray()).max() < 1e-6


def test_a_tower_is_fine_tuned_through_the_module(digits: Data) -> None:
    """Images that a rotation made unreadable for the model become readable again; concepts stay where they are."""
    fitted = ConceptClassifier(digits.concepts, max_iter=5, random_state=0).fit(digits.X, digits.y)
    torch.manual_seed(0)
    turned = torch.linalg.qr(torch.randn(64, 64)).Q
    X = torch.tensor(digits.X, dtype=torch.float32) @ turned
    y = torch.from_numpy(np.searchsorted(fitted.classes_, digits.y))
    tower, head = torch.nn.Linear(64, 64, bias=False), fitted.to_torch()
    concepts, weight = head.concepts.clone(), head.weight.detach().clone()
    stack = torch.nn.Sequential(tower, head)
    optimizer = torch.optim.Adam([part for part in stack.parameters() if part.requires_grad], lr=0.01)
    losses = []
    for _ in range(60):
        loss = torch.nn.functional.cross_entropy(stack(X)[0], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < 0.5 * losses[0]
    assert torch.equal(head.concepts, concepts)
    assert not torch.equal(head.weight.detach(), weight)
    assert (stack(X)[0].argmax(dim=1) == y).float().mean() > 0.7


def test_gradients_are_those_of_finite_differences() -> None:
    module = ConceptModel.load(SAVED / "threshold-both").to_torch().double()
    x = torch.tensor(ROWS[:3], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda rows: module(rows)[0], x, eps=1e-7, atol=1e-5)


def test_the_graph_has_one_input_and_five_outputs() -> None:
    built = onnx_model(ConceptModel.load(SAVED / "top"))
    assert [given.name for given in built.graph.input] == ["embeddings"]
    outputs = [given.name for given in built.graph.output]
    assert outputs == ["label", "probabilities", "codes", "contributions", "logits"]
