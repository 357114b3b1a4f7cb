"""Compilation of kernels: without the GIL, once, and cached on disk under a key of all that they are made of."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ccr.errors import CCRError

# Numba reads such a file in the current folder, and it can name the folder of compiled code that is then run.
_NUMBA_FILE = Path(".numba_config.yaml")
if "numba" not in sys.modules and _NUMBA_FILE.exists():
    raise CCRError(
        f"{_NUMBA_FILE.resolve()} would change how numba compiles and which compiled code it runs: work in another "
        "folder, or set what it sets by environment variables (NUMBA_...) and move it away"
    )

import llvmlite  # noqa: E402
import numba  # noqa: E402
from llvmlite import binding  # noqa: E402
from numba import config, njit  # noqa: E402
from numba.misc.appdirs import AppDirs  # noqa: E402

SOURCES = Path(__file__).parent


def cache_key(sources: Path = SOURCES) -> str:
    """A name for compiled code: it changes with every source file, with numba, llvmlite and the CPU. Numba itself looks
    at a kernel's own file alone, but kernels take in pieces of one another."""
    cpu = getattr(binding, "get_host_cpu_name", platform.processor)()
    about = (numba.__version__, llvmlite.__version__, cpu, config.CPU_NAME, config.CPU_FEATURES)
    digest = hashlib.sha256(repr(about).encode())
    for file in sorted(sources.rglob("*.py")):
        digest.update(file.relative_to(sources).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def cache_folder() -> Path | None:
    """Folder of compiled kernels: in NUMBA_CACHE_DIR, beside the sources, or in the user's cache, whichever is the
    first that can be written; None: nowhere. Folders of other keys stay, other versions may use them; all of them may
    be deleted at any time."""
    user = AppDirs(appname="ccr", appauthor=False).user_cache_dir
    for base in (config.CACHE_DIR, SOURCES / "__pycache__", user):
        folder = Path(base, f"ccr-kernels-{cache_key()}")
        try:
            if base:
                folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    return None


CACHE = cache_folder()


def decorator(*relaxed: str, inline: str = "never", folder: str = "") -> Callable[[Any], Any]:
    """Decorator that compiles a function with numba; the result is cached in `CACHE`, or in this folder of it."""
    options = {"nogil": True, "error_model": "numpy", "fastmath": set(relaxed) or False, "inline": inline}

    def decorate(function: Any) -> Any:
        # Numba asks for CACHE_DIR when it decorates. A numba that asked later would keep kernels where it always does,
        # without our key: `test_kernels_are_kept_under_the_key_of_their_sources` would fail.
        before, config.CACHE_DIR = config.CACHE_DIR, str(CACHE / folder if CACHE else "")
        try:
            return njit(cache=CACHE is not None, **options)(function)
        finally:
            config.CACHE_DIR = before

    return decorate


#: Arithmetic as written. The first call compiles for a second or so, and keeps the result on disk.
compiled = decorator()
#: A part of one kernel, written apart: compiled with it, not before.
inlined = decorator(inline="always")
#: Products and sums may fuse, and sums be taken in another, fixed order: what it takes to use vector registers.
#: NaN and infinity stay what they are, so that a training that diverges is seen.
fused = decorator("contract")
summing = decorator("contract", "reassoc", "nsz")
#: Maxima may assume that there is no NaN.
comparing = decorator("reassoc", "nsz", "nnan")
