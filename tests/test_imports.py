"""The map of the project: a room imports only from rooms above it, a module only from modules above its own."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import ccr

SOURCE = Path(ccr.__file__).parent
ROOMS = ["errors", "files", "core", "models", "data", "study", "show", "scale", "cli"]
MODULES = {
    "core": [
        "devices",
        "threads",
        "geometry",
        "concepts",
        "kernels",
        "inputs",
        "space",
        "coding",
        "heads",
        "metrics",
        "refine",
        "explain",
    ],
    "models": ["unfitted", "persist", "labels", "fitted", "edit", "questions", "classifier", "rivals"],
    "data": ["assets", "encoders", "datasets", "store", "vocab"],
    "study": ["theory", "experiments"],
}


def imports(path: Path) -> set[str]:
    """Modules of ccr that a file imports, as dotted names below ccr."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names = [node.module or ""] + [f"{node.module}.{alias.name}" for alias in node.names]
        found |= {name.removeprefix("ccr.") for name in names if name.startswith("ccr.")}
    return found


def test_no_import_goes_down_the_map() -> None:
    checked = 0
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if len(parts) == 1 and parts[0] in ("__init__", "__main__"):
            continue
        room = parts[0]
        assert room in ROOMS, f"{path} is in no room of the map"
        for name in imports(path):
            other, *rest = name.split(".")
            if other not in ROOMS:
                continue  # a public name re-exported by ccr itself
            assert ROOMS.index(other) <= ROOMS.index(room), f"{path} imports ccr.{name}, which is below it"
            order = MODULES.get(room)
            if other == room and order and rest and len(parts) > 1 and parts[1] in order and rest[0] in order:
                assert order.index(rest[0]) <= order.index(parts[1]), f"{path} imports ccr.{name}, which is below it"
            checked += 1
    assert checked > 20


def test_every_module_is_on_the_map() -> None:
    for room, order in MODULES.items():
        present = {path.stem for path in (SOURCE / room).iterdir() if path.suffix == ".py" or path.is_dir()}
        assert present - {"__init__", "__pycache__"} <= set(order), f"add the new modules of {room} to the map"


def test_the_package_exports_what_it_says() -> None:
    assert all(hasattr(ccr, name) for name in ccr.__all__)


def test_importing_ccr_alone_is_light() -> None:
    code = "import sys, ccr; assert 'torch' not in sys.modules; ccr.Concepts; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
