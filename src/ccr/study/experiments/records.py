"""Records of a study as text."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any


def csv_text(records: Sequence[Mapping[str, Any]]) -> str:
    """Records, at least one, as CSV: the first one's names are the header; a field that a later one lacks is empty."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return buffer.getvalue()
