"""The checklists of CONTRIBUTING.md hold of everything that is there: what a newcomer is asked for, the others have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

import ccr
from ccr.cli import app
from ccr.coding.coders import CODERS, RULES, rule_from_dict, rule_to_dict
from ccr.encoders.registry import parse_spec
from ccr.errors import CCRError
from ccr.inputs import Embeddings
from ccr_lab import rivals
from ccr_lab.experiments.methods import METHODS
from tests.conftest import Data

ROOT = Path(__file__).parents[1]
RIVALS = [name for name in rivals.__all__ if rivals.Rival in getattr(getattr(rivals, name), "__mro__", ())[1:]]


def text_of(*places: str) -> str:
    """Everything written in these files and folders."""
    files = [path for place in places for path in [ROOT / place, *(ROOT / place).rglob("*")] if path.is_file()]
    kinds = (".py", ".md", ".toml")
    return "\n".join(path.read_text(encoding="utf-8") for path in files if path.suffix in kinds)


@pytest.mark.parametrize("name", sorted(CODERS))
def test_every_coder(name: str, digits: Data) -> None:
    kind = CODERS[name]
    assert getattr(ccr, name) is kind
    assert name in ccr.__all__
    assert isinstance(kind.differentiable, bool)
    coder = kind(length=3)
    rule = coder.rule(Embeddings(digits.X), digits.concepts.embeddings)
    assert type(rule).__name__ in RULES
    assert rule_from_dict(rule_to_dict(rule)) == rule
    with pytest.raises(CCRError, match=r"3|length"):
        kind(length=-3).rule(Embeddings(digits.X), digits.concepts.embeddings)
    assert name in text_of(str(Path("docs") / "method.md"))
    assert name in text_of("tests/coding")


def test_every_rival_is_found() -> None:
    assert len(RIVALS) >= 3


@pytest.mark.parametrize("name", RIVALS)
def test_every_rival(name: str) -> None:
    kind = getattr(rivals, name)
    for method in ("fit", "predict", "save", "load"):
        assert hasattr(kind, method), f"{name} has no {method}"
    assert name in text_of("src/ccr_lab/experiments")
    assert name in text_of("tests/lab", "tests/library")


def test_every_method_of_a_comparison_is_named_and_explained() -> None:
    commands = text_of("docs/commands.md")
    results = text_of("docs/results.md")
    for method in METHODS:
        assert method.name in commands
        assert method.title in results, f"docs/results.md says nothing of {method.title!r}"


@pytest.mark.parametrize("spec", ["bundled", "hf:somebody/some-model", "open_clip:ViT-B-16/tag"])
def test_every_encoder(spec: str) -> None:
    kind = parse_spec(spec).kind
    module = {"open_clip": "openclip"}.get(kind, kind)
    home = text_of(f"src/ccr/encoders/{module}.py", "src/ccr/encoders/torch_common.py")
    for part in ("fingerprint", "text_fingerprint", "crop", "template", "embed_images", "embed_texts"):
        assert part in home, f"{module}.py has no {part}"
    assert "MissingExtraError" in home or "import_extra" in home
    extra = {"open_clip": "open-clip"}.get(kind, kind)
    assert re.search(rf"^{extra} = ", text_of("pyproject.toml"), re.MULTILINE)
    assert f"`{kind}" in text_of("docs/howto/encoders.md")
    assert f"{kind}" in text_of("docs/commands.md").split("## ccr embed")[1].split("\n## ")[0]
    assert (ROOT / "tests" / "encoders" / f"test_{module}.py").is_file()


def commands() -> dict[str, typer.core.TyperCommand]:
    """Every command by what one types, `concepts check` for one of a group."""
    found = {}
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        found |= {name: command} if inner is None else {f"{name} {part}": one for part, one in inner.items()}
    return found


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command(name: str) -> None:
    command = commands()[name]
    options = {option for parameter in command.params for option in parameter.opts}
    assert "--json" in options, f"ccr {name} has no --json"
    help_text = command.help or ""
    assert len(help_text.split()) > 10
    if name not in ("theory",):  # it takes nothing that needs an example
        assert "xample" in help_text, f"ccr {name} --help has no example"
    assert f"## ccr {name}" in text_of("docs/commands.md")
    pages = [path for path in sorted((ROOT / "docs").rglob("*.md")) if path.name != "commands.md"]
    assert re.search(rf"ccr {name}\b", text_of("README.md", *map(str, pages))), f"no page names ccr {name}"
    assert name.split()[-1] in text_of("tests")


def test_the_tests_that_the_checklists_name_exist() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    here = Path(__file__).read_text(encoding="utf-8")
    named = re.findall(r"`(test_every_\w+)`", page)
    assert len(named) == 4
    assert all(f"def {name}(" in here for name in named)
    for name in re.findall(r"`((?:coding|refine|explain|encoders|data|cli|show|io|utils)/[\w/]+\.py)`", page):
        assert (ROOT / "src" / "ccr" / name).is_file(), name
