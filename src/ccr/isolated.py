"""Other Python processes that import nothing from the current folder: photos may lie there with a `pickle.py`."""

from __future__ import annotations

import sys
from pathlib import Path


def isolated_python(program: str) -> list[str]:
    """The command line of a Python that runs `program` and may import what this process can, the current folder not.

    -I leaves the current folder and PYTHONPATH out, so this process's own path is handed on, with this ccr first.
    """
    ours = str(Path(__file__).parents[1])
    path = [ours, *(entry for entry in sys.path if entry)]  # "" is the current folder
    return [sys.executable, "-I", "-c", f"import sys; sys.path[:] = {path!r}; {program}"]
