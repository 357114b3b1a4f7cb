"""Records of a study as text."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from ccr.utils.texts import to_cell


def csv_text(records: Sequence[Mapping[str, Any]]) -> str:
    """Records, at least one, as CSV: the first one's names are the header; a field that a later one lacks is empty."""
    buffer = io.StringIO()
    names = list(records[0])
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([to_cell(name) for name in names])
    writer.writerows([to_cell(record.get(name)) for name in names] for record in records)
    return buffer.getvalue()
