"""A photo on its way to a prediction: scores of all concepts, the code that is left of them, the sum."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from ccr import ConceptClassifier
from ccr.data.store import EmbeddingStore
from ccr.explain.terms import AGAINST, FOR, INK, NEUTRAL
from ccr.show.plots import set_title


def scores_of(model: ConceptClassifier, photos: EmbeddingStore, row: int) -> np.ndarray:
    """Scores (n,) of one photo on the model's concepts."""
    image = model.model_.images(photos[row][None]).take(np.array([0])).numpy()
    return np.asarray(image[0] @ model.model_.concepts.embeddings.T)


def photo_path(model: ConceptClassifier, photos: EmbeddingStore, row: int) -> Figure:
    """Four steps, from left to right: the photo, its scores, its code, its sum for the predicted class."""
    scores, explained = scores_of(model, photos, row), model.explain(photos[row])
    figure = Figure(figsize=(12.5, 4.3), layout="constrained")
    photo, all_scores, code, total = figure.subplots(1, 4, width_ratios=[1.1, 0.7, 1.25, 1.5])
    photo.imshow(np.asarray(photos.image(row)))
    photo.set_axis_off()
    set_title(photo, "1. a photo, embedded")
    order = np.argsort(scores)
    active = np.isin(np.array(model.model_.names)[order], explained.active)
    all_scores.barh(range(len(order)), scores[order], color=np.where(active, FOR, NEUTRAL), height=1.0)
    all_scores.set_yticks([])
    all_scores.axvline(scores[order][active].min(), color=AGAINST, linewidth=1, linestyle="--")
    set_title(all_scores, f"2. scored on\n{len(order)} concepts")
    by_code = np.argsort(explained.codes)
    _bars(code, [explained.active[at] for at in by_code], explained.codes[by_code], FOR)
    set_title(code, f"3. coded: the {len(by_code)} over\nthe threshold stay")
    terms = explained.contributions[::-1]
    names = [f"{term.concept}" for term in terms] + ["bias"]
    _bars(total, names, np.array([term.contribution for term in terms] + [explained.bias]), INK)
    set_title(total, f"4. code x weight, summed:\n{explained.prediction}, {explained.logit:.2f}")
    return figure


def _bars(axes: object, names: list[str], values: np.ndarray, colour: str) -> None:
    axes.barh(range(len(names)), values, color=colour, height=0.7)  # type: ignore[attr-defined]
    axes.set_yticks(range(len(names)), names, fontsize=9)  # type: ignore[attr-defined]
    axes.spines[["top", "right"]].set_visible(False)  # type: ignore[attr-defined]
    for at, value in enumerate(values):
        axes.annotate(f"{value:.2f}", (max(value, 0), at), xytext=(3, 0), textcoords="offset points", va="center")  # type: ignore[attr-defined]
    axes.margins(x=0.2)  # type: ignore[attr-defined]
