"""Concept sections of a report: drift audit, use, what is active together, edits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ccr.core.explain import Audit, Coactivation, ConceptDrift, ModelView
from ccr.core.explain.drift import FLAGS
from ccr.show import model_plots, page, plots
from ccr.show.report.pictures import Pictures

#: Concepts of the audit's table, and those whose images are shown.
MOST_ROWS, MOST_STRIPS = 40, 6


def drift_section(audit: Audit, *, radius: float, pictures: Pictures) -> list[str]:
    """Which concepts may no longer be what their names say."""
    flagged = len(audit.flagged)
    figure = model_plots.drift(audit, top=20, radius=radius or None)
    parts = [
        f"<p>{flagged} of {len(audit.concepts):,} concepts are flagged: look before you trust their names.</p>",
        page.drawing(plots.png(figure, dpi=110), "how far concepts moved, flagged ones first"),
        f"<ul class='muted'>{''.join(f'<li>{escape(flag)}: {escape(text)}</li>' for flag, text in FLAGS.items())}</ul>",
    ]
    shown = audit.concepts[: min(MOST_ROWS, max(flagged, 10))]
    header = ("concept", "flags", "deviation", "before", "after", "both / either", "nearest before", "nearest now")
    table = page.table(header, [_cells(item) for item in shown], texts=(1, 6, 7))
    parts.append(page.details(f"The first {len(shown)} concepts of the audit", table))
    parts += [_strip(item, pictures) for item in audit.flagged[:MOST_STRIPS]]
    return parts


def _cells(item: ConceptDrift) -> list[str]:
    counted = [str(item.active_before), str(item.active_after), f"{item.overlap:.0%}"]
    before, after = (
        ", ".join(near.concept for near in nearest[:3]) for nearest in (item.nearest_before, item.nearest_after)
    )
    near = [before, "the same" if after == before else after]
    return [
        item.concept,
        ", ".join(item.flags),
        f"{item.deviation:.3f}",
        *(counted if item.overlap is not None else ["", "", ""]),
        *near,
    ]


def _strip(item: ConceptDrift, pictures: Pictures) -> str:
    if not item.images:
        return ""
    images = [(change.row, f"{change.before:.2f} &rarr; {change.after:.2f}") for change in item.images[:5]]
    return f"<h4>{page.name(item.concept)}: where its code changed most</h4>{pictures.strip(images)}"


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
