"""What the pages name is there: files, modules, commands with their options, targets of make."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer

from ccr.cli import app
from tests.docs.blocks import command_lines

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *sorted(DOCS.rglob("*.md")),
    *sorted(DOCS.rglob("*.ipynb")),
]
#: Where the paths on pages begin.
HOMES = [ROOT, *(ROOT / "src" / name for name in ("", "ccr", "ccr/kernels", "ccr/encoders")), DOCS / "tutorials"]
#: Files of others, and what is made when ccr runs.
OTHERS = {"pickle.py", "src/ccr/kernels/__pycache__"}
#: Names of entry points, and packages that the changes name as gone.
NO_MODULES = {"ccr.commands", "ccr.datasets", "ccr.core", "ccr.models"}


def text(page: Path) -> str:
    """A page as it is read: cells of a notebook one after the other, of the changes what the newest version has."""
    words = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        return "\n\n".join("".join(cell["source"]) for cell in json.loads(words)["cells"])
    if page.name != "CHANGELOG.md":
        return words
    items = re.split(r"^- ", re.split(r"^## ", words, flags=re.MULTILINE)[1], flags=re.MULTILINE)
    return "\n- ".join(item for item in items if not re.search(r"\bare\s+gone\b", item))


def code(page: Path) -> list[str]:
    """Every line of a shell and every piece of code in a sentence, in the order of the page."""
    words = text(page)
    fences = re.findall(r"^ *```\w*\n(.*?)^ *```", words, re.DOTALL | re.MULTILINE)
    spans = re.findall(r"`([^`]+)`", re.sub(r"^ *```.*?^ *```", "", words, flags=re.DOTALL | re.MULTILINE))
    indented = [line.strip() for line in words.splitlines() if re.match(r"    +(?:ccr|python -m) ", line)]
    lines = [line for fence in fences for line in command_lines(fence)]
    return [*lines, *indented, *(" ".join(span.split()) for span in spans)]


@cache
def commands() -> dict[str, set[str]]:
    """The options of every command, by what one types; `concepts` alone has none."""
    found: dict[str, set[str]] = {}
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        parts = {f"{name} {part}": one for part, one in getattr(command, "commands", {}).items()}
        for typed, one in ({name: command} | parts).items():
            given = [(*parameter.opts, *parameter.secondary_opts) for parameter in one.params]
            found[typed] = {"--help"}.union(*given)
    return found


def words_of(line: str) -> list[str]:
    """A line of a shell as words, without its comment; an apostrophe in a sentence is no quote."""
    line = re.split(r"\s#\s|[|;>]|&&", line)[0]
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def unknown_in(line: str) -> Iterator[str]:
    """Commands, options and modules in one line of code that do not exist."""
    words = words_of(line)
    if words[:2] == ["python", "-m"] and len(words) > 2:
        yield from unknown_module(words[2], words[3:])
    if words[:1] == ["ccr"] and len(words) > 1 and re.fullmatch(r"[a-z]+", words[1]):
        name = " ".join(words[1:3]) if " ".join(words[1:3]) in commands() else words[1]
        if name not in commands():
            yield f"ccr {name}"
            return
        group = {option for typed, options in commands().items() if typed.split()[0] == name for option in options}
        for option in (word.split("=")[0] for word in words if re.match(r"--\w", word)):
            if option not in (commands()[name] | group):
                yield f"ccr {name} {option}"


def unknown_module(module: str, words: list[str]) -> Iterator[str]:
    """A program of the repository that is not there, or an option that its text does not have."""
    ours = ("benchmarks", "tools", "tests", "ccr", "ccr_lab", "ccr_studio")
    if module == "benchmarks.NAME" or module.split(".")[0] not in ours:
        return
    home = ROOT / module.replace(".", "/")
    files = [path for path in (home.with_suffix(".py"), home / "__main__.py") if path.is_file()]
    if not files:
        yield module
        return
    written = "".join(path.read_text(encoding="utf-8") for path in (*files, *(ROOT / "benchmarks").glob("p*data.py")))
    for word in words:
        if re.match(r"--\w", word) and f'"{word.split("=")[0]}"' not in written:
            yield f"{module} {word}"


def options_alone(piece: str) -> list[str]:
    """`--weights 3` in a sentence, without a command."""
    return [word.split("=")[0] for word in words_of(piece) if re.match(r"--[a-z]", word)] if piece[:2] == "--" else []


def programs_text() -> str:
    files = [path for folder in ("benchmarks", "tools") for path in sorted((ROOT / folder).rglob("*.py"))]
    return "".join(path.read_text(encoding="utf-8") for path in files)


page_names = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


@page_names
def test_every_program_file_on_a_page_exists(page: Path) -> None:
    named = set(re.findall(r"(?<![\w/.*-])((?:\w[\w.-]*/)*\w[\w-]*\.(?:py|ipynb|toml))\b", text(page)))
    named |= set(re.findall(r"(?<![\w/.])((?:src|docs|tests|benchmarks|tools)/[\w./-]*\w)", text(page)))
    missing = [name for name in sorted(named) if not any((home / name).exists() for home in HOMES)]
    assert [name for name in missing if name not in OTHERS] == []


@page_names
def test_every_command_and_option_on_a_page_exists(page: Path) -> None:
    assert [name for line in code(page) for name in unknown_in(line)] == []


@page_names
def test_every_option_in_a_sentence_exists(page: Path) -> None:
    known, programs = set().union(*commands().values()), programs_text()
    alone = {option for piece in code(page) for option in options_alone(piece)}
    assert [option for option in sorted(alone) if option not in known and f'"{option}"' not in programs] == []


def is_there(name: str) -> bool:
    """A module, or what a module has: `ccr.kernels.TIER`."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            thing: Any = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        return all((thing := getattr(thing, part, None)) is not None for part in parts[length:])
    return False


@page_names
def test_every_dotted_name_on_a_page_is_there(page: Path) -> None:
    named = set(re.findall(r"(?<![\w./@-])((?:ccr|ccr_lab|ccr_studio)(?:\.\w+)+)(?![\w/-])", text(page)))
    assert [name for name in sorted(named - NO_MODULES) if not is_there(name)] == []


def test_every_target_of_make_on_a_page_exists() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {
        name for page in PAGES for piece in code(page) for name in re.findall(r"^(?:\w+=\S+ )*make ([\w-]+)", piece)
    }
    assert len(named) > 5
    assert named - targets == set()


def test_what_does_not_exist_is_found() -> None:
    assert list(unknown_in("ccr fit photos-store --no-such-option 3")) == ["ccr fit --no-such-option"]
    assert list(unknown_in("ccr nothing STORE")) == ["ccr nothing"]
    assert list(unknown_in("python -m benchmarks.nothing")) == ["benchmarks.nothing"]
    assert list(unknown_in("python -m benchmarks.knowledge --nothing")) == ["benchmarks.knowledge --nothing"]
    assert not is_there("ccr.nothing")
    assert not is_there("ccr.kernels.NOTHING")
    assert list(unknown_in("ccr concepts check LIST --store STORE   # --nothing")) == []
