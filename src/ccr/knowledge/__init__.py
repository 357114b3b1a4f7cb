"""Knowledge: which concept is true of which class or photo (`table`), and concepts started from it (`grounding`)."""

from ccr.knowledge.table import (
    COLUMNS,
    MACHINES,
    NO,
    SOURCES,
    UNKNOWN,
    UNSEEN,
    YES,
    Answer,
    Knowledge,
    Verdict,
)

__all__ = [
    "COLUMNS",
    "MACHINES",
    "NO",
    "SOURCES",
    "UNKNOWN",
    "UNSEEN",
    "YES",
    "Answer",
    "Knowledge",
    "Verdict",
]
