"""A sum as rows, for terminals, pages and figures; a notebook's picture has the same (`ccr/core/explain/sums.py`)."""

from ccr.core.explain.sums import SumRow, row_hint, sum_rows

__all__ = ["SumRow", "row_hint", "sum_rows"]
