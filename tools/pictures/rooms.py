"""The map of the rooms as a drawing: who may import from whom."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from tests.test_imports import ROOMS, SOURCE

from ccr.explain.picture import FOR, INK, NEUTRAL

#: What each room is for, in a few words; the other two packages stand below the library.
PURPOSES = {
    "ccr/core": "numbers only: geometry, coding, heads, refinement, explanations",
    "ccr/models": "things that predict: ConceptClassifier, ConceptModel, edits, exports",
    "ccr/data": "from files and images to embeddings: data sets, encoders, stores, lists",
    "ccr/review": "every claim confirmed by a person: decisions, questions, rounds, signature",
    "ccr/runtime": "a model with NumPy alone",
    "ccr/show": "what people look at: plots, pages, reports",
    "ccr/scale": "the same work on a cluster",
    "ccr/cli": "commands: parse, call, print",
    "ccr_studio": "the web studio and the HTTP service, built on the library",
    "ccr_lab": "what the paper and we claim: theory, rivals, comparisons, sweeps, figures",
}


def rooms() -> list[str]:
    """Rooms of the library, each below what it may import from, then the packages built on it."""
    inner = [f"ccr/{name}" for name in ROOMS["ccr"].split()]
    return [name for name in (*inner, "ccr_studio", "ccr_lab") if name in PURPOSES]


def _parts(room: str) -> str:
    """Names of the modules and folders of a room."""
    folder = SOURCE.parent / room
    found = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    return " ".join(sorted(found - {"__init__"}))


def map_drawing() -> Figure:
    """One box for each room with its parts; arrows are not needed, because imports only go up."""
    names = rooms()
    figure = Figure(figsize=(9.6, 0.55 + 0.92 * len(names)), layout="constrained")
    axes = figure.subplots()
    for row, name in enumerate(names):
        axes.add_patch(
            FancyBboxPatch((0, -row), 9, 0.72, boxstyle="round,pad=0.05", facecolor=FOR, alpha=0.10, edgecolor=FOR)
        )
        axes.text(0.12, 0.36 - row, f"{name}/", fontsize=13, weight="bold", color=INK, va="center")
        axes.text(1.75, 0.53 - row, PURPOSES[name], fontsize=10, color=INK, va="center")
        axes.text(1.75, 0.18 - row, _shortened(_parts(name)), fontsize=8, color="#555555", va="center")
    axes.annotate("", (9.45, 0.6), (9.45, -len(names) + 1.1), arrowprops={"arrowstyle": "->", "color": NEUTRAL})
    axes.text(9.55, (2 - len(names)) / 2, "imports only go up", rotation=90, color="#555555", va="center")
    axes.set_xlim(-0.15, 9.9)
    axes.set_ylim(-len(names) + 0.85, 0.9)
    axes.set_axis_off()
    return figure


def _shortened(parts: str, most: int = 96) -> str:
    return parts if len(parts) <= most else parts[: parts.rindex(" ", 0, most)] + " ..."
