"""Photos found by words."""

from __future__ import annotations

from typing import Any

import numpy as np

from ccr.geometry import unit_rows
from ccr_studio.photo import tile
from ccr_studio.seen import Seen
from ccr_studio.words import Words, checked_text

#: Concepts of the model that are named beside.
NEAREST = 5


def search(seen: Seen, words: Words, text: str, limit: int) -> dict[str, Any]:
    """The photos that show most of what the words say, and the concepts that say nearly the same."""
    text = checked_text(text)
    own = seen.model.space.own_texts(words.embed(text)[None])[0]
    shown = np.flatnonzero(seen.photos.open)
    scores = seen.scores(own)[shown]
    count = min(limit, len(shown))
    best = np.argpartition(-scores, count - 1)[:count]
    best = best[np.argsort(-scores[best], kind="stable")]
    return {
        "words": text,
        "photos": [{**tile(seen, int(shown[i])), "value": float(scores[i])} for i in best],
        "nearest": _nearest(seen, own),
        "known": text in seen.model.names,
    }


def _nearest(seen: Seen, own: np.ndarray) -> list[dict[str, Any]]:
    rows = unit_rows(np.asarray(seen.model.concepts.embeddings, np.float64))
    cosines = rows @ own
    order = np.argsort(-cosines, kind="stable")[:NEAREST]
    return [{"concept": seen.model.names[i], "cosine": float(cosines[i])} for i in order]
