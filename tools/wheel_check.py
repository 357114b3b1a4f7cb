"""Does the wheel work where nothing else is? `python -m tools.wheel_check`.

Builds the package, installs its wheel with the extra `demo` into a fresh environment, and runs the blocks of the README
there, in a folder that holds a few photos by class and the demo's store, as a reader's folder would.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.docs.blocks import blocks, command_lines
from tests.docs.workspace import FRUIT, KINDS, LIST, TABLE

ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--per-kind", type=int, default=12, help="photos of each of four classes, to be embedded")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        wheel = build(Path(scratch) / "dist")
        python = install(wheel, Path(scratch) / "fresh")
        folder = readers_folder(Path(scratch) / "reader", arguments.per_kind)
        run_readme(python, folder)
    print(f"{wheel.name} installs and runs the README's lines")


def build(out: Path) -> Path:
    """The wheel, made from the source archive as `python -m build` does."""
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(out), str(ROOT)], check=True)
    (wheel,) = out.glob("*.whl")
    assert list(out.glob("*.tar.gz")), "no source archive was made"
    return wheel


def install(wheel: Path, where: Path) -> Path:
    """The Python of a fresh environment with the wheel in it, at the tested versions."""
    subprocess.run([sys.executable, "-m", "venv", str(where)], check=True)
    python = where / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), f"{wheel}[demo]"], check=True)
    return python


def readers_folder(folder: Path, per_kind: int) -> Path:
    """Photos by class, one photo, and what `ccr demo` leaves; nothing of the source tree."""
    from ccr.data.datasets import open_dataset

    samples = list(open_dataset("demo"))
    for kind, labels in KINDS.items():
        mine = [sample for sample in samples if sample.label in labels]
        for sample in mine[:: max(1, len(mine) // per_kind)][:per_kind]:
            place = folder / "photos" / kind / f"{sample.key}.jpg"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(sample.source.read(1 << 28))
        shutil.copy(place, folder / f"{kind}.jpg")
    shutil.copytree(FRUIT, folder / "ccr-demo" / "store")
    shutil.copy(LIST, folder / "ccr-demo" / "concepts.txt")
    shutil.copy(TABLE, folder / "ccr-demo" / "knowledge.csv")
    return folder


def run_readme(python: Path, folder: Path) -> None:
    """Every block that is to be run, line by line as a shell does, or as a script; a review is told yes to all."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    clean["PATH"] = f"{python.parent}{os.pathsep}{clean['PATH']}"
    for block in (block for block in blocks(ROOT / "README.md") if block.runs):
        print(f"-- {block}", flush=True)
        if block.language == "python":
            subprocess.run([str(python), "-c", block.code], cwd=folder, env=clean, check=True)
        for line in command_lines(block.code) if block.language == "sh" else ():
            print(f"$ {line}", flush=True)
            answers = "y\n" * 500 if line.startswith("ccr review") else ""
            subprocess.run(["bash", "-c", line], cwd=folder, env=clean, check=True, input=answers, text=True)


if __name__ == "__main__":
    main()
