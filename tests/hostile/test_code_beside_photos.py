"""Files that lie beside the photos never run: not in this process's children, on any supported Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.data.helpers import write_image
from tests.encoders.test_assets import index as index  # the fixture: a package index in a folder

ROOT = Path(__file__).parents[2]
#: Modules that Python, pip, numba or Pillow import as they start.
TRAPS = ("pickle", "numpy", "pip", "os", "io", "typing", "struct", "selectors", "random", "PIL", "llvmlite")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Photos, and beside them modules that leave a mark when they run."""
    folder = tmp_path / "photos"
    for number in range(3):
        write_image(folder / "a" / f"{number}.png", number)
    for name in TRAPS:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r})\nraise SystemExit(3)")
    return folder


def run_in(folder: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code there as the `ccr` script would: the current folder is not on its path."""
    start = f"import sys; sys.path[:0] = [{str(ROOT / 'src')!r}, {str(ROOT)!r}]\n"
    script = folder.parent / "script.py"
    script.write_text(start + code)
    return subprocess.run(
        [sys.executable, script], cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True
    )


EMBED = """
from ccr.data.datasets import open_dataset
from ccr.data.store import embed_dataset
from tests.data.helpers import PixelEncoder
embed_dataset(open_dataset("."), PixelEncoder(), "../store", workers=1)
"""
COMPILE = """
from ccr.kernels import tiers
tiers.warm_up(group="lasso", elsewhere=True)
"""
FETCH = """
from ccr.encoders.assets import fetch
from tests.encoders.test_assets import GOOD
print(fetch(GOOD).read_bytes())
"""


@pytest.mark.parametrize("code", [EMBED, COMPILE, FETCH], ids=["workers", "kernels", "pip"])
def test_modules_in_the_current_folder_do_not_run(photos: Path, index: Path, code: str) -> None:
    done = run_in(photos, code, NUMBA_CACHE_DIR=str(photos.parent / "numba"))
    assert done.returncode == 0, done.stderr
    assert not (photos.parent / "ran").exists()


def test_the_traps_would_be_seen(photos: Path) -> None:
    subprocess.run([sys.executable, "-c", "import pickle"], cwd=photos, check=False, capture_output=True)
    assert (photos.parent / "ran").exists()


def test_settings_of_numba_in_the_current_folder_are_refused(photos: Path) -> None:
    (photos / ".numba_config.yaml").write_text(f"cache_dir: {photos}\n")
    done = run_in(photos, COMPILE)
    assert done.returncode == 1
    assert ".numba_config.yaml would change how numba compiles" in done.stderr
    assert not list(photos.glob("ccr-kernels-*"))
