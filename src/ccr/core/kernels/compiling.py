"""How kernels are compiled: once, kept on disk, without the GIL; and what stands in where numba is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    from numba import njit

    AVAILABLE = True
except ImportError:  # pragma: no cover - numba is a dependency; some platforms have no build of it
    AVAILABLE = False

    def njit(**options: Any) -> Callable[[Any], Any]:
        return lambda function: function


def _compiled(*relaxed: str) -> Any:
    fastmath = set(relaxed) if relaxed else False
    return njit(cache=True, nogil=True, error_model="numpy", fastmath=fastmath)


#: Arithmetic as written. The first call compiles for a second or so; the result is kept beside the file.
compiled = _compiled()
#: Products and sums may fuse, and sums be taken in another, fixed order: what it takes to use vector registers.
#: NaN and infinity stay what they are, so that a training that diverges is seen.
fused = _compiled("contract")
summing = _compiled("contract", "reassoc", "nsz")
#: Maxima may assume that there is no NaN.
comparing = _compiled("reassoc", "nsz", "nnan")
