"""Concept sections of a report: fidelity, use, what is active together, photos, edits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from ccr.core.explain import Audit, Coactivation, ConceptDrift, ImageActivation, ModelView
from ccr.core.explain.drift import FLAGS, NOT_TRUTH
from ccr.models.concept_model import ConceptModel
from ccr.show import model_plots, page, plots
from ccr.show.report.pictures import TINY, Pictures

#: Concepts of the audit's table, and those whose images are shown.
MOST_ROWS, MOST_STRIPS = 40, 6
#: Images of a kind of such a concept: gained, lost; showing it most, borderline.
EACH = 3
#: Concepts with photos; those of more than so many are folded.
MOST_PHOTOS, MOST_OPEN = 200, 24


def drift_section(audit: Audit, *, least: float | None, pictures: Pictures) -> list[str]:
    """Which concepts may no longer see what their names say; `least` is the fidelity they were held to, if any."""
    flagged = len(audit.flagged)
    parts = [f"<p>{escape(_summary(audit))}</p>"]
    if audit.fidelity is not None and np.isfinite(audit.fidelity.mean):
        figure = model_plots.drift(audit, top=20, least=least)
        parts.append(page.drawing(plots.png(figure, dpi=110), "fidelity of the concepts, flagged ones first"))
    flags = "".join(f"<li>{escape(flag)}: {escape(text)}</li>" for flag, text in FLAGS.items())
    parts.append(f"<ul class='muted'>{flags}</ul>")
    shown = audit.concepts[: min(MOST_ROWS, max(flagged, 10))]
    header = ("concept", "flags", "fidelity", "images", "gained", "lost", "same", "nearest now")
    table = page.table(header, [_cells(item) for item in shown], texts=(1, 7))
    parts.append(page.details(f"The first {len(shown)} concepts of the audit", table))
    doubtful = [item for item in audit.concepts[:MOST_STRIPS] if item.gained or item.lost]
    parts += [_strip(item, pictures) for item in doubtful]
    return [*parts, f'<p class="muted">{escape(audit.footnote)} {escape(NOT_TRUTH)}</p>']


def _summary(audit: Audit) -> str:
    known = audit.fidelity
    said = "" if known is None or np.isnan(known.mean) else f" Mean fidelity {known.mean:.2f}, worst {known.min:.2f}."
    return (
        "Does a concept see what its text sees? Fidelity is the correlation, over these images, of its scores with "
        f"those of its own text.{said} An image is gained if only the model shows the concept in it, lost if only the "
        f"text does, at the same number of concepts per image. {len(audit.flagged)} of {len(audit.concepts):,} "
        f"concepts are flagged: look before you trust their names. {audit.unverified:,} are unverified: no knowledge "
        "says of which classes they are true."
    )


def _cells(item: ConceptDrift) -> list[str]:
    fidelity = "" if item.fidelity is None else f"{item.fidelity:.2f}"
    counts = [str(item.active_after), str(item.gained), str(item.lost), f"{item.overlap:.0%}"]
    near = ", ".join(neighbour.concept for neighbour in item.nearest_after[:3])
    return [item.concept, ", ".join(item.flags), fidelity, *(counts if item.overlap is not None else [""] * 4), near]


def _strip(item: ConceptDrift, pictures: Pictures) -> str:
    """Images that a concept gained and lost, of largest code."""
    images = [
        (image.row, f"{kind}, {image.code:.2f}")
        for kind, listed in (("gained", item.gained_images), ("lost", item.lost_images))
        for image in listed[:EACH]
    ]
    title = f"{page.name(item.concept)}: {item.gained:,} images gained, {item.lost:,} lost"
    return f"<h4>{title}</h4>{pictures.strip(images)}"


def use_section(view: ModelView, pairs: Sequence[Coactivation]) -> list[str]:
    """How much concepts are used, and which come together."""
    used = [(use.concept, f"{use.share:.0%}", f"{use.code:+.3f}", f"{use.weight:.2f}") for use in view.use()[:12]]
    together = [(pair.first, pair.second, f"{pair.jaccard:.0%}", f"{pair.lift:.1f}") for pair in pairs[:12]]
    unused = view.unused()
    names = ", ".join(page.name(name) for name in unused[:200]) or "none"
    rest = f" and {len(unused) - 200:,} others" if len(unused) > 200 else ""
    tables = (
        f"<div><h4>Most used</h4>{page.table(('concept', 'images', 'mean code', 'largest weight'), used)}</div>",
        f"<div><h4>Most often together</h4>"
        f"{page.table(('concept', 'and', 'both / either', 'lift'), together, texts=(1,))}</div>",
    )
    idle = f'<p class="muted">Concepts that no image shows, or that have no weight ({len(unused)}): {names}{rest}.</p>'
    return [f'<div class="columns">{"".join(tables)}</div>', idle]


def photo_sections(model: ConceptModel, rows: Any, view: ModelView, pictures: Pictures) -> list[str]:
    """The photos of every concept that the model uses, most used first: those that show it most, and borderline ones,
    which show it only just."""
    uses = [use for use in view.use() if use.share > 0 and use.weight != 0]
    shown = [use.concept for use in uses[:MOST_PHOTOS]]
    most, least = (model.images_of(rows, shown, top=EACH, borderline=edge) for edge in (False, True))
    cards = "".join(
        f'<section class="card"><h4>{page.name(use.concept)} <span class="muted">in {use.share:.0%} of images</span>'
        f"</h4>{_photos(most[use.concept], least[use.concept], pictures)}</section>"
        for use in uses[:MOST_PHOTOS]
    )
    more = f"; {len(uses) - len(shown):,} that are used less have none here" if len(uses) > len(shown) else ""
    summary = f"Photos of {len(shown)} concepts, most used first{more}"
    return [page.details(summary, f'<div class="cards">{cards}</div>', opened=len(shown) <= MOST_OPEN, kind="photos")]


def _photos(most: Sequence[ImageActivation], least: Sequence[ImageActivation], pictures: Pictures) -> str:
    """Photos that show a concept most, and below others that show it only just."""
    top = {image.row for image in most}
    edge = [image for image in reversed(least) if image.row not in top]
    strips = (("shows it most", most), ("borderline", edge))
    return "".join(
        pictures.strip([(image.row, f"{kind}, {image.code:.2f}") for image in images], TINY) for kind, images in strips
    )


def edit_section(edits: Sequence[Mapping[str, Any]]) -> list[str]:
    """What was changed by hand, oldest first."""
    rows = [
        (
            str(number),
            str(edit["action"]),
            ", ".join(f"{key}: {value}" for key, value in edit.items() if key != "action"),
        )
        for number, edit in enumerate(edits, 1)
    ]
    return [page.table(("", "edit", "of"), rows, texts=(1, 2))]
