"""How kernels are compiled: once, kept on disk, without the GIL; and what stands in where numba is missing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

try:
    from numba import njit
    from numba.extending import intrinsic

    AVAILABLE = True
except ImportError:  # pragma: no cover - numba is a dependency; some platforms have no build of it
    AVAILABLE = False

    def njit(**options: Any) -> Callable[[Any], Any]:
        return lambda function: function

    def intrinsic(function: Any) -> Any:
        return function


def forget_if_changed(folder: Path) -> None:
    """Delete the compiled kernels on disk if a file of the folder is another than when they were made. Numba looks at a
    kernel's own file alone, but kernels take in pieces of one another."""
    files = sorted(folder.glob("*.py"))
    state = "\n".join(f"{file.name} {file.stat().st_mtime_ns} {file.stat().st_size}" for file in files)
    stamp = folder / "__pycache__" / "kernels.stamp"
    with suppress(OSError):  # nothing can be written there: then Numba keeps its files elsewhere, or not at all
        if stamp.exists() and stamp.read_text(encoding="utf-8") == state:
            return
        for old in (*stamp.parent.glob("*.nbi"), *stamp.parent.glob("*.nbc")):
            old.unlink(missing_ok=True)
        stamp.parent.mkdir(exist_ok=True)
        stamp.write_text(state, encoding="utf-8")


forget_if_changed(Path(__file__).parent)


def _compiled(*relaxed: str, inline: str = "never") -> Any:
    fastmath = set(relaxed) if relaxed else False
    return njit(cache=True, nogil=True, error_model="numpy", fastmath=fastmath, inline=inline)


#: Arithmetic as written. The first call compiles for a second or so; the result is kept beside the file.
compiled = _compiled()
#: A part of one kernel, written apart: compiled with it, not before.
part = _compiled(inline="always")
#: Products and sums may fuse, and sums be taken in another, fixed order: what it takes to use vector registers.
#: NaN and infinity stay what they are, so that a training that diverges is seen.
fused = _compiled("contract")
summing = _compiled("contract", "reassoc", "nsz")
#: Maxima may assume that there is no NaN.
comparing = _compiled("reassoc", "nsz", "nnan")
