"""A sum as rows, for terminals, pages and figures; a notebook's picture has the same (`ccr/core/explain/sums.py`)."""

from ccr.core.explain.sums import MARKS, SumRow, claim_marks, row_hint, sum_rows

__all__ = ["MARKS", "SumRow", "claim_marks", "row_hint", "sum_rows"]
