"""The theory figures: they draw, they say what must be said, and they leave pyplot alone."""

import io
import sys

import pytest
from matplotlib.figure import Figure

from ccr_lab.plots import theory_plots
from ccr_lab.theory import Testbed
from ccr_lab.theory.scenes import anisotropy_diagrams, event_frequency, necessity_curve, paper_runs, phase_diagram


def _texts(figure: Figure) -> str:
    texts = [figure.get_suptitle()]
    for axis in figure.axes:
        texts += [axis.get_title(), axis.get_xlabel(), axis.get_ylabel()]
        legend = axis.get_legend()
        texts += [text.get_text() for text in legend.get_texts()] if legend else []
    return "\n".join(texts)


@pytest.fixture(scope="module")
def figures() -> dict[str, Figure]:
    return {
        "paper": theory_plots.paper_figure(paper_runs(worlds=2, shorten=50)),
        "necessity": theory_plots.necessity_figure(necessity_curve(points=6, worlds=3)),
        "event": theory_plots.event_figure([event_frequency(5, 2, (20, 100), worlds=4)]),
        "phase": theory_plots.phase_figure(
            [phase_diagram(n=4, samples=m, worlds=2, radii=(0.1, 1.0), steps=20) for m in (10, 40)]
        ),
        "anisotropy": theory_plots.anisotropy_figure(
            anisotropy_diagrams(testbed=Testbed(4, 4, 2), conditions=(1.0, 50.0), radii=(0.1, 1.0), steps=20)
        ),
    }


def test_paper_figure_is_two_by_three_and_says_it_is_outside_the_theorems(figures: dict[str, Figure]) -> None:
    figure = figures["paper"]
    assert len(figure.axes) == 6
    text = _texts(figure)
    assert "Outside the theorems' conditions" in text
    assert "0.2" in text
    assert "0.028" in text
    assert "released code" in text
    assert all(axis.get_yscale() == "log" for axis in figure.axes[:3])


def test_necessity_figure_shows_the_bound_and_where_it_ends(figures: dict[str, Figure]) -> None:
    text = _texts(figures["necessity"])
    assert "proved lower bound" in text
    assert "not proved there" in text


def test_phase_figure_draws_the_theorem_and_one_panel_a_sample_size(figures: dict[str, Figure]) -> None:
    text = _texts(figures["phase"])
    assert "theorem:" in text
    assert "m = 10" in text
    assert "m = 40" in text


def test_anisotropy_figure_has_a_panel_for_each_metric(figures: dict[str, Figure]) -> None:
    text = _texts(figures["anisotropy"])
    assert "in the encoder's space" in text
    assert "in the images' metric, shrinkage 0.5" in text
    assert "n = d = 4, k = 2" in text


@pytest.mark.parametrize("name", ["paper", "necessity", "event", "phase", "anisotropy"])
def test_figures_render_without_pyplot(figures: dict[str, Figure], name: str) -> None:
    buffer = io.BytesIO()
    figures[name].savefig(buffer, format="png", dpi=40)
    assert buffer.getvalue().startswith(b"\x89PNG")
    assert "matplotlib.pyplot" not in vars(theory_plots).values()
    assert not hasattr(theory_plots, "plt")
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or not pyplot.get_fignums()
