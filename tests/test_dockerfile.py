"""The Dockerfile: what it copies gets through .dockerignore, and the check that runs its lines knows all of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.docker_check import Container, follow, instructions, sent

ROOT = Path(__file__).parents[1]
LINES = list(instructions((ROOT / "Dockerfile").read_text(encoding="utf-8")))


def test_what_is_sent_is_the_package_and_nothing_else() -> None:
    for path in (
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "constraints.txt",
        "src/ccr/__init__.py",
        "src/ccr/space.py",
    ):
        assert sent(path), path
    for path in (
        "tests/conftest.py",
        "ccr-demo/model/config.json",
        ".git/config",
        "src/ccr/__pycache__/x.pyc",
        "docs/shipping.md",
    ):
        assert not sent(path), path


def test_copy_brings_all_that_the_package_is_built_from(tmp_path: Path) -> None:
    container = Container(tmp_path)
    for name, rest in LINES:
        if name in ("WORKDIR", "COPY"):
            follow(container, name, rest)
    copied = {path.relative_to(tmp_path / "src").as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    source = {path.relative_to(ROOT).as_posix() for path in (ROOT / "src").rglob("*") if path.is_file()}
    assert copied - {"README.md", "LICENSE", "constraints.txt", "pyproject.toml"} == {p for p in source if sent(p)}
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'readme = "README.md"' in project, "the build reads it"
    installs = next(rest for name, rest in LINES if name == "RUN" and "pip install" in rest)
    assert all(f"\n{extra} = [" in project for extra in installs.split("[")[1].split("]")[0].split(","))


def test_every_instruction_is_known_and_continued_lines_are_one() -> None:
    known = {"FROM", "RUN", "WORKDIR", "COPY", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert {name for name, _ in LINES} == known
    assert list(instructions("# a\nRUN a \\\n  && b\n\nUSER me")) == [("RUN", "a    && b"), ("USER", "me")]
    with pytest.raises(SystemExit, match="does not know the instruction VOLUME"):
        follow(Container(Path("/nowhere")), "VOLUME", "/x")


def test_it_serves_as_somebody_who_is_not_root(tmp_path: Path) -> None:
    container = Container(tmp_path)
    for name, rest in LINES:
        if name in ("USER", "ENTRYPOINT", "CMD", "HEALTHCHECK"):
            follow(container, name, rest)
    assert container.user != "root"
    assert [*container.entry, *container.command] == ["ccr", "serve", "/model", "--host", "0.0.0.0"]
    assert container.health[0] == "python"
