"""What refinement may do: a concept inside its cap, and what its scores become."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from ccr import ConceptClassifier
from ccr.data.store import EmbeddingStore
from ccr.explain.terms import AGAINST, FOR, INK, NEUTRAL
from ccr.show.plots import label_axes, set_title


def cap(fidelity: float = 0.875) -> Figure:
    """The unit circle: a text's direction, the cap of concepts that correlate with it at least so well, and a step that
    is brought back to its rim."""
    figure = Figure(figsize=(6.2, 3.2), layout="constrained")
    axes = figure.subplots()
    circle = np.linspace(0, np.pi, 200)
    axes.plot(np.cos(circle), np.sin(circle), color=NEUTRAL, linewidth=1)
    middle, half = np.pi / 2, np.arccos(fidelity)
    arc = np.linspace(middle - half, middle + half, 60)
    axes.plot(np.cos(arc), np.sin(arc), color=FOR, linewidth=6, alpha=0.35, solid_capstyle="butt")
    places = {"the text's direction": (middle, INK), "the refined concept": (middle - half, FOR)}
    for angle, colour in places.values():
        axes.annotate("", (np.cos(angle), np.sin(angle)), (0, 0), arrowprops={"arrowstyle": "->", "color": colour})
    wanted = (np.cos(middle - 2 * half), np.sin(middle - 2 * half))
    axes.annotate("", wanted, (0, 0), arrowprops={"arrowstyle": "->", "color": AGAINST, "linestyle": "--"})
    axes.annotate(
        "",
        (np.cos(middle - half) + 0.02, np.sin(middle - half)),
        wanted,
        arrowprops={"arrowstyle": "->", "color": NEUTRAL},
    )
    axes.text(-0.03, 1.04, "the concept's own text", ha="right", color=INK)
    axes.text(np.cos(middle - half) + 0.03, np.sin(middle - half) + 0.06, "where it may go", color=FOR)
    axes.text(wanted[0] + 0.03, wanted[1], "where a step\nwould take it", color=AGAINST, va="center")
    axes.text(-0.72, 0.86, f"the cap: correlation\nat least {fidelity}", color=FOR, ha="right", va="center")
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.set_xlim(-1.75, 1.45)
    return figure


def seen_before_and_after(model: ConceptClassifier, photos: EmbeddingStore, concepts: list[str]) -> Figure:
    """For each of these concepts, every photo as a point: its score by the concept's text, and by the concept."""
    images = model.model_.images(photos).take(np.arange(len(photos))).numpy()
    texts = model.model_._own_texts()
    figure = Figure(figsize=(4.1 * len(concepts), 3.9), layout="constrained")
    for axes, name in zip(np.atleast_1d(figure.subplots(1, len(concepts))), concepts, strict=True):
        at = model.model_.row(name)
        before, after = images @ texts[at], images @ model.model_.concepts.embeddings[at]
        shown = _class_that_it_carries(model, at)
        inside = photos.y == shown
        axes.scatter(before[~inside], after[~inside], s=7, color=NEUTRAL, alpha=0.5, label="other photos")
        axes.scatter(before[inside], after[inside], s=9, color=FOR, label=shown)
        axes.legend(frameon=False, fontsize=8, loc="upper left")
        label_axes(axes, "score by its text", "score by the refined concept")
        set_title(axes, f"{name}: correlation {np.corrcoef(before, after)[0, 1]:.2f}")
    return figure


def _class_that_it_carries(model: ConceptClassifier, concept: int) -> str:
    return str(model.classes_[int(model.coef_[:, concept].argmax())])
