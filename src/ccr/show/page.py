"""Static HTML: one self-contained file, no scripts, no network; everything from outside is escaped."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from io import BytesIO
from typing import Any

from PIL import Image

from ccr.core.explain import Contrast, Contribution, Explanation
from ccr.show.style import AGAINST, FOR, INK, NEUTRAL, said

STYLE = f"""
:root {{ --for: {FOR}; --against: {AGAINST}; --ink: {INK}; --quiet: #666; --line: #ddd; }}
* {{ box-sizing: border-box; }}
body {{ font: 16px/1.45 system-ui, sans-serif; color: var(--ink); margin: 0 auto; max-width: 1080px; padding: 1rem; }}
h1 {{ font-size: 1.6rem; margin: .5rem 0; }} h2 {{ font-size: 1.2rem; margin: 2rem 0 .5rem; }}
p {{ max-width: 46rem; }} code {{ background: #f3f3f3; padding: 0 .2em; overflow-wrap: anywhere; }}
table {{ border-collapse: collapse; }} .wide {{ overflow-x: auto; }}
th, td {{ text-align: right; padding: .25rem .6rem; border-bottom: 1px solid var(--line); }}
th:first-child, td:first-child {{ text-align: left; }}
.cards {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 330px), 1fr)); gap: 1rem; }}
.card {{ border: 1px solid var(--line); border-radius: 8px; padding: .7rem; min-width: 0; }}
.card img {{ width: 100%; max-width: 230px; border-radius: 4px; display: block; }}
.card.big {{ display: grid; gap: 1rem 2rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 290px), 1fr)); }}
.card.big img {{ max-width: 380px; }}
.verdict {{ font-weight: 600; overflow-wrap: anywhere; }}
.wrong {{ color: var(--against); }} .right {{ color: var(--for); }}
.term {{ display: grid; grid-template-columns: minmax(0, 1fr) 5.5rem 3.6rem; gap: .4rem; align-items: center; }}
.term {{ font-size: .86rem; }}
.term .name {{ overflow: hidden; text-overflow: ellipsis; white-space: nowrap; unicode-bidi: isolate; }}
.term .sum {{ text-align: right; font-variant-numeric: tabular-nums; }}
.track {{ position: relative; height: .8rem; }}
.track {{ background: linear-gradient({NEUTRAL}, {NEUTRAL}) center/1px 100% no-repeat; }}
.bar {{ position: absolute; top: 0; height: 100%; }}
.quiet {{ color: var(--quiet); font-size: .86rem; overflow-wrap: anywhere; }}
"""


def page(title: str, body: Sequence[str]) -> str:
    """A whole document from parts that are HTML already."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'


def thumbnail(image: Image.Image, size: int = 230) -> str:
    """The image as a small JPEG inside the page."""
    small = image.convert("RGB")
    small.thumbnail((size, size))
    buffer = BytesIO()
    small.save(buffer, "JPEG", quality=80)
    return f'<img alt="" src="data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}">'


def explanation_card(
    found: Explanation,
    image: Image.Image | None = None,
    *,
    truth: Any | None = None,
    against: Contrast | None = None,
    caption: str = "",
    top: int = 10,
    big: bool = False,
) -> str:
    """One prediction: image, verdict, and the sum that made it; optionally why not another class."""
    sums = [_verdict(found, truth), _terms(found.bias, found.contributions, top)]
    sums.append(f'<div class="quiet">bias and {len(found.contributions)} concepts add up to {found.logit:.2f}</div>')
    parts = [thumbnail(image, 460 if big else 230)] if image is not None else []
    parts.append(f"<div>{''.join(sums)}</div>")
    if against is not None:
        heading = f"{escape(str(against.prediction))} rather than {escape(str(against.other))}"
        terms = _terms(against.bias, against.contributions, top)
        together = f'<div class="quiet">together {against.difference:+.2f}</div>'
        parts.append(f'<div><p class="verdict">{heading}</p>{terms}{together}</div>')
    if caption:
        parts.append(f'<div class="quiet">{escape(caption)}</div>')
    return f'<section class="card{" big" if big else ""}">' + "\n".join(parts) + "</section>"


def _verdict(found: Explanation, truth: Any | None) -> str:
    verdict = f"{escape(str(found.prediction))}, {found.probability:.0%}"
    if truth is None:
        return f'<p class="verdict">{verdict}</p>'
    if str(truth) == str(found.prediction):
        return f'<p class="verdict right">{verdict}: right</p>'
    return f'<p class="verdict wrong">{verdict}: wrong, it is {escape(str(truth))}</p>'


def _terms(bias: float, terms: Sequence[Contribution], top: int) -> str:
    shown = [("bias", bias, "the same for every image")]
    shown += [
        (said(term), term.contribution, f"code {term.code:.3f} x weight {term.weight:.3f}") for term in terms[:top]
    ]
    rest = terms[top:]
    if rest:
        shown.append((f"{len(rest)} others", sum(term.contribution for term in rest), "summed"))
    largest = max(max(abs(value) for _, value, _ in shown), 1e-12)
    return "".join(_term(name, value, hint, largest) for name, value, hint in shown)


def _term(name: str, value: float, hint: str, largest: float) -> str:
    width = 50 * abs(value) / largest
    left, colour = (50.0, FOR) if value >= 0 else (50.0 - width, AGAINST)
    return (
        f'<div class="term" title="{escape(name)}: {escape(hint)}"><span class="name">{escape(name)}</span>'
        f'<span class="track"><span class="bar" style="left:{left:.1f}%;width:{width:.1f}%;background:{colour}"></span>'
        f'</span><span class="sum">{value:+.2f}</span></div>'
    )
