"""Knowledge: which concept is true of which class or photo (`table`), concepts started from it (`grounding`), and the
probability that an image shows one (`shown`)."""

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
