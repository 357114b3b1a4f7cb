"""What leaves the studio: a table of photos, the list of concepts, the log, the report."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import numpy as np
from PIL import Image

from ccr.data.store import EmbeddingStore
from ccr.errors import CCRError
from ccr.model import ConceptModel
from ccr.utils.texts import to_cell, visible
from ccr.vocab.lists import concept_line
from ccr_studio.photo import tile
from ccr_studio.seen import Seen
from ccr_studio.service.limits import DECODING
from ccr_studio.session import State

COLUMNS = ("row", "name", "path", "split", "truth", "predicted", "confidence", "right")
#: Pixels along the longer edge of a photo in a report, before the report makes it smaller still.
SHOWN = 1024


class _Named(EmbeddingStore):
    """A part of a store whose labels are a model's own classes, which may be numbers or booleans."""

    def __init__(self, part: EmbeddingStore, classes: np.ndarray) -> None:
        self.__dict__.update(vars(part))
        self._classes = classes

    @property
    def y(self) -> np.ndarray:
        return self._classes

    def image(self, row: int) -> Image.Image:
        """The photo as large as a report shows it, so that many reports at once do not hold many whole photos."""
        with DECODING.decoded(lambda: self.content(row)) as image:
            image.thumbnail((SHOWN, SHOWN))
            return image


def photos_csv(seen: Seen, rows: np.ndarray) -> str:
    """These photos as CSV, texts as inert as a spreadsheet lets them be."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    paths = seen.photos.store.paths
    for row in rows.tolist():
        facts = {**tile(seen, row), "path": "" if paths[row] is None else str(paths[row])}
        writer.writerow([_cell(facts[column]) for column in COLUMNS])
    return stream.getvalue()


def concepts_text(state: State) -> str:
    """The list of concepts, one per line, as `ccr fit --concepts` reads it."""
    return "".join(concept_line(visible(name)) for name in state.texts.names)


def edits_json(model: ConceptModel) -> str:
    """All edits since the model was fitted."""
    return json.dumps({"edits": list(model.provenance.edits)}, indent=1, ensure_ascii=True)


def report_html(seen: Seen, rows: np.ndarray, scope: str, title: str, *, flattered: bool) -> str:
    """The static report on some photos, of classes that the model knows; `flattered`: it may be trained on them."""
    if not len(rows):
        raise CCRError(f"there are no labelled {scope} photos to report on")
    from ccr.show.report import report_page  # brings matplotlib, which the first page need not wait for

    part = _Named(seen.photos.store.select(rows=rows), seen.model.classes[seen.truth[rows]])
    notes = [f"Made by the studio on {len(rows):,} {scope} photos."]
    if flattered or scope != "validation":
        notes.append("The model may have been trained on these photos, so it is probably less often right on others.")
    absent = [seen.classes[number] for number in np.setdiff1d(np.arange(len(seen.classes)), seen.truth[rows])]
    if absent:
        names = ", ".join(map(visible, absent))
        notes.append(f"Classes without {scope} photos, of which only the reasons are listed: {names}.")
    return report_page(seen.model, part, title=title, notes=notes)


def _cell(value: Any) -> str:
    return f"{value:.6f}" if isinstance(value, float) else to_cell(value)
