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
#: The rooms of each package; a room imports only from rooms before its own.
ROOMS = {
    "ccr": "errors progress interrupt isolated texts reading buckets ranges places files core data models review "
    "runtime show scale cli start",
    "ccr/core": "arrays checks parameters devices threads geometry knowledge questions grounding shown examples "
    "concepts kernels sources inputs space coding heads metrics quality conformal frames refine explain",
    "ccr/data": "assets encoders datasets store shipped vocab",
    "ccr_studio": "service studio commands",
    "ccr_lab": "elastic_net theory rivals experiments plots commands",
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
    depth = package.count("/") + 1
    if len(parts) <= depth or parts[depth] == "__init__":
        return None
    rooms = ROOMS[package].split()
    # The studio's own modules, which are no room of the package, are one room between service and commands.
    return rooms.index(parts[depth] if parts[depth] in rooms or package != "ccr_studio" else "studio")


FILES = sorted(path for package in PACKAGES for path in (SOURCE.parent / package).rglob("*.py"))


@pytest.mark.parametrize("package", list(PACKAGES))
def test_a_package_imports_only_what_it_may(package: str) -> None:
    for path in (SOURCE.parent / package).rglob("*.py"):
        others = {name[0] for name in imported(path)}
        assert others <= PACKAGES[package], f"{path} imports {sorted(others - PACKAGES[package])}"


@pytest.mark.parametrize("package", list(ROOMS))
def test_no_room_imports_from_one_after_it(package: str) -> None:
    checked, home = 0, tuple(package.split("/"))
    for path in FILES:
        own = path.relative_to(SOURCE.parent).with_suffix("").parts
        if own[: len(home)] != home or room(package, own) is None:
            continue
        for other in imported(path):
            if other[: len(home)] == home and room(package, other) is not None:
                assert room(package, other) <= room(package, own), f"{path} imports {'.'.join(other)}"  # type: ignore[operator]
                checked += 1
    assert checked > 10


def test_every_command_of_ccr_imports_no_other_command() -> None:
    for path in (SOURCE / "cli").glob("*.py"):
        if path.stem == "__init__" or path.stem.startswith(("common", "edit_options", "knowledge_", "review")):
            continue
        for other in imported(path):
            inner = other[2] if other[:2] == ("ccr", "cli") and len(other) > 2 else "common"
            assert inner.startswith(("common", "edit_options")), f"{path} imports {'.'.join(other)}"


def test_the_package_exports_what_it_says() -> None:
    assert all(hasattr(ccr, name) for name in ccr.__all__)


def test_importing_ccr_alone_is_light() -> None:
    light = "assert not {'torch', 'numpy'} & set(sys.modules)"
    code = f"import sys, ccr; {light}; ccr.Concepts; assert 'numpy' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


PROGRAMS = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in ("benchmarks", "tools")
    for path in (ROOT / folder).rglob("*.py")
    if path.name not in ("__init__.py", "__main__.py")
)


@pytest.mark.parametrize("program", PROGRAMS)
def test_benchmarks_and_tools_find_what_they_import(program: str) -> None:
    importlib.import_module(program)
