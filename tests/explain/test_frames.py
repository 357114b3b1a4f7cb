"""Tables and pictures of explanations: data frames in and out, and what a notebook shows."""

from __future__ import annotations

import sys

import nbformat
import numpy as np
import pandas
import polars
import pytest
import sklearn
from nbclient import NotebookClient

from ccr import ConceptClassifier, Concepts
from ccr.coding.heads import LinearHead
from ccr.errors import CCRError, MissingExtraError
from ccr.explain import Explanations, explain
from ccr.utils import arrays as frames
from tests.conftest import Data

HOSTILE = '<script>alert("x")</script>'


@pytest.fixture(scope="module")
def fitted(digits: Data) -> ConceptClassifier:
    return ConceptClassifier(digits.concepts, max_iter=2, random_state=0).fit(digits.X, digits.y)


def test_frames_in_are_rows(digits: Data, fitted: ConceptClassifier) -> None:
    expected = fitted.predict(digits.X_test)
    names = [f"x{column}" for column in range(digits.X.shape[1])]
    for frame in (pandas.DataFrame(digits.X_test, columns=names), polars.DataFrame(digits.X_test, schema=names)):
        assert np.array_equal(fitted.predict(frame), expected)
    for labels in (pandas.Series(digits.y), polars.Series(digits.y.tolist())):
        again = ConceptClassifier(digits.concepts, max_iter=2, random_state=0)
        again.fit(pandas.DataFrame(digits.X), labels)
        assert np.array_equal(again.predict(digits.X_test), expected)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_set_output_gives_frames_of_codes(kind: str, digits: Data, fitted: ConceptClassifier) -> None:
    codes = fitted.transform(digits.X_test).toarray()
    model = ConceptClassifier.of(fitted.model_).set_output(transform=kind)
    frame = model.transform(digits.X_test)
    assert type(frame).__module__.startswith(kind)
    assert list(frame.columns) == list(fitted.concepts_.names)
    assert np.array_equal(frame.to_numpy(), codes)
    with sklearn.config_context(transform_output=kind):
        configured = ConceptClassifier.of(fitted.model_)
        assert np.array_equal(configured.transform(digits.X_test).to_numpy(), codes)
    if kind == "pandas":
        assert frame.sparse.density < 1, "memory does not grow with what is zero"
        index = [f"photo {row}" for row in range(len(digits.X_test))]
        assert model.transform(pandas.DataFrame(digits.X_test, index=index)).index.tolist() == index
    assert not hasattr(fitted.transform(digits.X_test), "columns"), "the default is CSR as before"


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_many_explanations_are_one_table(kind: str, digits: Data, fitted: ConceptClassifier) -> None:
    many = fitted.explain_many(digits.X_test[:20])
    table = many.to_frame(kind).to_dict(
        *(["list"] if kind == "pandas" else []), **({} if kind == "pandas" else {"as_series": False})
    )
    for row, item in enumerate(many):
        single = fitted.explain(digits.X_test[row])
        assert [term.concept for term in item.contributions] == [term.concept for term in single.contributions]
        assert item.logit == pytest.approx(single.logit, abs=1e-5)
        mine = [at for at, image in enumerate(table["image"]) if image == row]
        total = table["bias"][mine[0]] + sum(table["contribution"][at] for at in mine)
        assert total == pytest.approx(item.logit)
        assert {table["prediction"][at] for at in mine} == {item.prediction}
    assert len(many[3:5]) == 2
    assert many[3:5].names == (3, 4)
    assert many.to_dict()["explanations"][1]["image"] == 1
    assert repr(many) == "Explanations(20 images)"


def test_an_image_without_concepts_keeps_its_row(digits: Data) -> None:
    from scipy import sparse

    head = LinearHead(np.ones((2, 3)), np.array([0.0, 1.0]))
    none = explain(sparse.csr_matrix((1, 3)), head, concepts=["a", "b", "c"], classes=["x", "y"])
    frame = Explanations([none], ["photo.png"]).to_frame()
    assert frame["image"].tolist() == ["photo.png"]
    assert (frame["bias"] + frame["contribution"]).tolist() == frame["logit"].tolist()


def test_without_a_library_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CCRError, match="pandas or polars, got 'R'"):
        frames.to_frame({}, "R")
    for name in frames.KINDS:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match="pandas or polars: pip install"):
        frames.to_frame({})


def test_a_picture_escapes_what_it_shows(digits: Data) -> None:
    names = [HOSTILE, *digits.concepts.names[1:]]
    model = ConceptClassifier(Concepts(names, digits.concepts.embeddings), weights_per_class=None, max_iter=1)
    labels = np.array([f"{HOSTILE}{label}" for label in digits.y])
    shown = "".join(item._repr_html_() for item in model.fit(digits.X, labels).explain_many(digits.X_test[:40]))
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown
    assert "http" not in shown
    assert "class=" not in shown, "styles are inline: a notebook has none of ours"


def test_a_picture_has_a_bar_for_every_term(digits: Data, fitted: ConceptClassifier) -> None:
    why = fitted.explain(digits.X_test[0])
    html = why._repr_html_()
    for term in why.contributions[:10]:
        assert f"{term.contribution:+.2f}" in html
    assert html.count("position:absolute") == 1 + min(len(why.contributions), 11)
    assert f"add up to {why.logit:.2f}" in html
    assert "and 14 more" in fitted.explain_many(digits.X_test[:20])._repr_html_()


def test_a_notebook_shows_a_picture_not_a_wall_of_text() -> None:
    code = """
import numpy as np
from ccr import ConceptClassifier, Concepts, TopK
rng = np.random.default_rng(0)
X = rng.normal(size=(60, 8))
model = ConceptClassifier(Concepts(["one", "two", "three"], X[:3]), coder=TopK(2), max_iter=1, random_state=0)
model.fit(X, X[:, 0] > 0).explain(X[0])
"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    (output,) = (item for item in notebook.cells[0].outputs if item.output_type == "execute_result")
    assert "position:absolute" in output["data"]["text/html"]
