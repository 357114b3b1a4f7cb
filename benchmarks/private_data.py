"""Data that benchmarks and tests read but that is not part of the repository: docs/data.md says which and why."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

#: Where it is looked for: beside the checkout.
SHARED = Path(__file__).resolve().parents[2] / "shared"


class Skipped(SystemExit):
    """Why a benchmark cannot run here; where nobody catches it, the reason is printed without a traceback."""


def require(path: Path) -> Path:
    """The path itself if it is there; else `Skipped` says what is missing and which page helps."""
    if not path.exists():
        raise Skipped(
            f"{path} is needed and not there: docs/data.md says which data is private and how to make the rest"
        )
    return path


def add_shared_option(parser: ArgumentParser) -> None:
    """--shared FOLDER, the folder of concept lists and embeddings."""
    parser.add_argument("--shared", type=Path, default=SHARED, help="folder of the data that docs/data.md describes")
