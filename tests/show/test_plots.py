"""Figures of models: the objects' own numbers, readable with long names and a thousand classes."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import sparse

from ccr.coding.heads import LinearHead
from ccr.concepts import Concepts
from ccr.errors import CCRError
from ccr.explain import ClassView, ModelView, audit, view_codes
from ccr.geometry import unit_rows
from ccr.show import plots
from ccr.show.pictures import shortened
from ccr.utils.texts import visible
from tests.show.test_pages import NAMES


def texts(axes: mpl.axes.Axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def drawn(figure: Figure) -> bool:
    return plots.png(figure, dpi=50).startswith(b"\x89PNG")


def view(classes: int, *, labelled: bool = True) -> ModelView:
    rng = np.random.default_rng(0)
    n = len(NAMES)
    head = LinearHead(rng.normal(size=(classes, n)), rng.normal(size=classes))
    y = rng.integers(classes, size=4 * classes) if labelled else None
    codes = sparse.random(4 * classes, n, density=0.5, random_state=0, format="csr", dtype=np.float32)
    names = [f"class {number} with a name of forty letters or so" for number in range(classes)]
    return view_codes([codes], head, concepts=NAMES, classes=names, y=y)


def test_a_class_shows_its_concepts() -> None:
    found = view(5).of_class("class 2 with a name of forty letters or so", top=None)
    figure = plots.class_view(found, top=4)
    assert len(figure.axes[0].patches) == min(4, len(found.carrying)) + min(2, len(found.opposing))
    assert drawn(figure)
    empty = view_codes(
        [sparse.csr_matrix((0, 2))], LinearHead(np.ones((2, 2)), np.zeros(2)), concepts="ab", classes=[0, 1]
    )
    assert drawn(plots.class_view(empty.of_class(1)))


def test_drift_marks_what_is_flagged() -> None:
    rng = np.random.default_rng(0)
    names = [visible(name) for name in NAMES]  # concepts refuse what is not visible
    start = unit_rows(rng.normal(size=(len(names), 12)))
    moved = start.copy()
    moved[0] = start[1]
    fidelity = np.linspace(-0.1, 1.0, len(names))
    found = audit(Concepts(names, start), Concepts(names, moved), fidelity=fidelity)
    assert found.flagged
    figure = plots.drift(found, top=5, least=0.5)
    markers = [line.get_marker() for line in figure.axes[1].lines if line.get_marker() != "None"]
    assert markers == ["D" if item.flagged else "o" for item in found.concepts[:5]]
    assert drawn(figure)
    assert sum(patch.get_height() for patch in figure.axes[0].patches) == len(names)
    still = audit(Concepts(names, start), Concepts(names, start), fidelity=np.ones(len(names)))
    assert drawn(plots.drift(still))
    with pytest.raises(CCRError, match="has no fidelities"):
        plots.drift(audit(Concepts(names, start), Concepts(names, start)))


def test_a_thousand_classes_are_thinned_to_the_most_confused() -> None:
    found = view(1000)
    figure = plots.confusion_map(found)
    errors = found.confusion + found.confusion.T
    np.fill_diagonal(errors, 0)
    assert len(texts(figure.axes[0])) == 40
    most = np.argsort(-errors.sum(axis=1), kind="stable")[:40]
    assert texts(figure.axes[0]) == [shortened(found.classes[row]) for row in sorted(most)]
    assert "40 of 1000 classes" in figure.axes[0].get_title(loc="left")
    assert max(figure.get_size_inches()) < 16
    assert drawn(figure)
    with pytest.raises(CCRError, match="needs the true labels"):
        plots.confusion_map(view(3, labelled=False))


def test_a_model_without_errors_has_a_blank_map() -> None:
    codes, head = sparse.csr_matrix(np.eye(3)), LinearHead(np.eye(3), np.zeros(3))
    perfect = view_codes([codes], head, concepts="abc", classes=["a", "b", "c"], y=np.arange(3))
    figure = plots.confusion_map(perfect)
    assert figure.axes[0].images[0].get_clim() == (0.0, 1.0)
    assert drawn(figure)


def test_letters_come_from_an_installed_font_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    letters = "\u1d81\u1d84\u1d8a"  # of STIXGeneral, which comes with matplotlib; not of its default

    def picture(name: str) -> bytes:
        return plots.png(plots.class_view(ClassView(name, 0, 0.5, 0.0, 0.0, (), ())), dpi=50)

    alone = picture(letters), picture("plain")
    assert not set(plots._font_families()) - set(mpl.rcParams["font.family"]) - set(plots.FALLBACKS)
    monkeypatch.setattr(plots, "FALLBACKS", ("No Such Font", "STIXGeneral"))
    assert plots._font_families() == [*mpl.rcParams["font.family"], "STIXGeneral"]
    assert picture(letters) != alone[0]
    assert picture("plain") == alone[1]


def test_long_names_are_whole_inside_the_picture() -> None:
    rng, n = np.random.default_rng(0), 6
    names = [f"{row} a rather long name of a concept, which goes on and on as long names do" for row in range(n)]
    classes = [f"{row} a class with a name that goes on and on until it has about 80 letters" for row in range(3)]
    codes = sparse.csr_matrix(np.abs(rng.normal(size=(9, n))))
    head = LinearHead(rng.normal(size=(3, n)), np.zeros(3))
    seen = view_codes([codes], head, concepts=names, classes=classes, y=rng.integers(3, size=9))
    concepts = Concepts(names, rng.normal(size=(n, 12)))
    audited = audit(concepts, concepts, fidelity=np.linspace(0.5, 1, n), before=[codes], after=[codes])
    for figure in (
        plots.class_view(seen.of_class(classes[0])),
        plots.drift(audited),
    ):
        figure.draw_without_rendering()
        edges = figure.get_tightbbox()
        assert min(*edges.min, *(figure.get_size_inches() - edges.max)) > -0.02


def test_no_global_state() -> None:
    before = dict(mpl.rcParams)
    plots.confusion_map(view(4))
    assert dict(mpl.rcParams) == before
