"""Contracts between packages and rooms: who may import whom."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import ccr

SOURCE = Path(ccr.__file__).parent
ROOT = Path(__file__).parents[1]
#: The rooms of each package in their order: a room imports only from rooms before its own. A room is a module, a
#: folder, or a module of a folder that is named here for itself.
ROOMS = {
    "ccr": "errors utils io.remote io.files kernels geometry inputs coding space labels metrics calibration "
    "knowledge concepts explain refine io encoders export data photos model edit classifier scale vocab review "
    "controls show cli runtime start",
    "ccr_studio": "service studio commands",
    "ccr_lab": "published theory rivals experiments plots commands",
}
#: What each package may import of the others.
PACKAGES = {"ccr": {"ccr"}, "ccr_studio": {"ccr", "ccr_studio"}, "ccr_lab": {"ccr", "ccr_lab"}}


def imported(path: Path) -> set[tuple[str, ...]]:
    """The parts of the name of each of our modules that a file imports when it runs; annotations do not count."""
    names = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in [node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]:
        tree.body.remove(node)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = {name for name in inner if is_module(name)}
            names |= modules or {node.module or ""}
    return {tuple(name.split(".")) for name in names if name.split(".")[0] in PACKAGES}


def is_module(name: str) -> bool:
    place = SOURCE.parent.joinpath(*name.split("."))
    return place.is_dir() or place.with_suffix(".py").is_file()


def room(package: str, parts: tuple[str, ...]) -> int | None:
    """The number of a module's room among those of `package`; None if it is the package's own face."""
    rooms = ROOMS[package].split()
    if len(parts) < 2 or parts[1] == "__init__":
        return None
    own = next((name for name in (".".join(parts[1:3]), parts[1]) if name in rooms), None)
    # The studio's own modules, which are no room of the package, are one room between service and commands.
    return rooms.index("studio" if own is None and package == "ccr_studio" else own or parts[1])


FILES = sorted(path for package in PACKAGES for path in (SOURCE.parent / package).rglob("*.py"))


@pytest.mark.parametrize("package", list(PACKAGES))
def test_a_package_imports_only_what_it_may(package: str) -> None:
    for path in (SOURCE.parent / package).rglob("*.py"):
        others = {name[0] for name in imported(path)}
        assert others <= PACKAGES[package], f"{path} imports {sorted(others - PACKAGES[package])}"


@pytest.mark.parametrize("package", list(ROOMS))
def test_no_room_imports_from_one_after_it(package: str) -> None:
    checked = 0
    for path in FILES:
        own = path.relative_to(SOURCE.parent).with_suffix("").parts
        if own[0] != package or room(package, own) is None:
            continue
        for other in imported(path):
            if other[0] == package and room(package, other) is not None:
                assert room(package, other) <= room(package, own), f"{path} imports {'.'.join(other)}"  # type: ignore[operator]
                checked += 1
    assert checked > 10


def test_every_command_of_ccr_imports_no_other_command() -> None:
    for path in (SOURCE / "cli").glob("*.py"):
        if path.stem in ("__init__", "commands") or path.stem.startswith("common"):
            continue
        for other in imported(path):
            inner = other[2] if other[:2] == ("ccr", "cli") and len(other) > 2 else "common"
            assert inner.startswith("common"), f"{path} imports {'.'.join(other)}"


def test_the_package_exports_what_it_says() -> None:
    assert all(hasattr(ccr, name) for name in ccr.__all__)


@pytest.mark.parametrize("program", ["import ccr; ccr.Concepts; ccr.ConceptModel", "import ccr.scale.cluster"])
def test_what_need_not_load_torch_does_not(program: str) -> None:
    heavy = "import sys; assert not {'torch', 'numba', 'sklearn'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", f"{program}; {heavy}"], check=True)


PROGRAMS = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in ("benchmarks", "tools")
    for path in (ROOT / folder).rglob("*.py")
    if path.name not in ("__init__.py", "__main__.py")
)


@pytest.mark.parametrize("program", PROGRAMS)
def test_benchmarks_and_tools_find_what_they_import(program: str) -> None:
    importlib.import_module(program)
