"""The documents stand on their own: references and links lead somewhere, and what is stated is what the code has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ccr.classifier import PAPER_THRESHOLDS
from ccr.data.datasets import open_dataset
from ccr.data.store import embed_dataset
from ccr_lab.experiments.protocol import REPORTED
from ccr_lab.theory import GROUPS
from tests.data.helpers import PixelEncoder, write_image

ROOT = Path(__file__).parents[1]
METHOD_PAGE, DATA_PAGE = ROOT / "docs" / "method.md", ROOT / "docs" / "data.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: The paper's data sets as docs/method.md writes them.
TITLES = {
    "CIFAR-10": "cifar10",
    "CIFAR-100": "cifar100",
    "CUB": "cub",
    "ImageNet": "imagenet",
    "Places365": "places365",
}


def programs(*folders: str) -> list[Path]:
    """All Python files below these folders, this one excepted."""
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in found if path != Path(__file__)]


def files_matching(pattern: str, files: list[Path]) -> list[str]:
    """`file:line` of each line that matches."""
    return [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if re.search(pattern, line)
    ]


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def sections(page: Path) -> dict[str, str]:
    """Text below each heading, up to the next one of any level; white space is one space."""
    parts = re.split(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)
    return {heading: " ".join(text.split()) for heading, text in zip(parts[1::2], parts[2::2], strict=True)}


def short_names() -> set[str]:
    """The headings of docs/method.md as code cites them: `Algorithm 2` for `Algorithm 2: CCR for classification`."""
    return {heading.partition(":")[0] for heading in sections(METHOD_PAGE)}


def anchor(heading: str) -> str:
    """What a page's own link to a heading is called on GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_nothing_refers_to_a_document_outside_the_repository() -> None:
    others = [ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "Makefile", ROOT / "pyproject.toml"]
    files = [*programs("src", "tests", "benchmarks", "tools"), *PAGES, *others]
    assert files_matching(r"\bMETHOD\b|\b(?:DESIGN|STYLE)\.md\b", files) == []


def test_private_data_is_described_on_one_page() -> None:
    """Beside that page only the benchmarks' arguments and the tests' fixture say where it lies."""
    files = [*programs("src", "tests", "tools"), *(page for page in PAGES if page != DATA_PAGE)]
    assert files_matching(r"\.\./shared|\bshared/(?:embeddings|concepts)", files) == []


def test_the_data_page_lists_every_program_that_needs_private_data() -> None:
    wanted = r'"shared"|--embeddings|add_shared_option\(parser|require\(SHARED'
    reading = [path for path in programs("benchmarks", "tools") if files_matching(wanted, [path])]
    reading.remove(ROOT / "benchmarks" / "private_data.py")
    reading += [path for path in programs("tests") if files_matching(r"def \w+\(.*\bclip: ", [path])]
    listed = DATA_PAGE.read_text(encoding="utf-8")
    assert len(reading) > 8
    assert [path for path in reading if path.relative_to(ROOT).as_posix() not in listed] == []


def citations(path: Path) -> Iterator[str]:
    """The words before each mention of docs/method.md in a program, but where it is the name of a file to read."""
    text = re.sub(r"\s+(?:#:? )?", " ", path.read_text(encoding="utf-8"))
    for match in re.finditer(r"(?<!\")docs/method\.md", text):
        before = text[max(0, match.start() - 80) : match.start()]
        assert before.endswith((" (", ", ")), f"{path} cites as neither 'Heading (docs/method.md)' nor '(Heading, ...)'"
        yield before[:-2]


def test_every_citation_of_the_method_names_a_heading() -> None:
    names, checked = short_names(), 0
    for path in programs("src", "tests", "benchmarks", "tools"):
        for words in citations(path):
            several = re.search(r"Algorithms ((?:\d, )*\d and \d)$", words)
            cited = [f"Algorithm {number}" for number in re.findall(r"\d", several[1])] if several else [words]
            for one in cited:
                assert any(one.endswith(name) for name in names), f"{path} cites {one!r}, which is no heading"
                checked += 1
    assert checked > 30


def test_every_link_leads_to_a_file_and_every_anchor_to_a_heading() -> None:
    checked = 0
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, place = target.partition("#")
            goal = page.parent / name if name else page
            assert goal.exists(), f"{page} links to {target}"
            assert not place or place in map(anchor, sections(goal)), f"{page} links to {target}: no such heading"
            checked += 1
    assert checked > 20


def test_the_claims_of_ccr_theory_stand_in_their_sections() -> None:
    text = sections(METHOD_PAGE)
    for claim in (claim for group in GROUPS for claim in group.claims):
        assert f"*{claim.key}*" in text.get(claim.section, ""), f"{claim.key} is not in section {claim.section!r}"


def test_modules_named_by_the_method_exist() -> None:
    text = METHOD_PAGE.read_text(encoding="utf-8")
    named = [name for line in re.findall(r"\*Where: (.*)", text) for name in re.findall(r"`([\w/]+(?:/|\.py))`", line)]
    assert len(named) > 20
    homes = {name: ROOT / "src" / ("" if name.startswith("ccr_") else "ccr") / name for name in named}
    assert [name for name, home in homes.items() if not home.exists()] == []


def test_the_papers_numbers_are_those_of_the_code() -> None:
    text = METHOD_PAGE.read_text(encoding="utf-8")
    (released,) = re.findall(r"^\| lambda \| (.*) \|$", text, flags=re.MULTILINE)
    assert released == ", ".join(f"{title} {PAPER_THRESHOLDS[name]:g}" for title, name in TITLES.items())
    for title, name in TITLES.items():
        (row,) = re.findall(rf"^\| {title}(?:-200)? \| (.*) \|$", text, flags=re.MULTILINE)
        length, sparsity, deviation = (float(cell.rstrip(" %")) for cell in row.split(" | "))
        assert (length, round(sparsity / 100, 6), deviation) == REPORTED[name]


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of small photos of two classes with splits, and the current folder."""
    for split, seeds in {"train": range(4), "test": range(4, 6)}.items():
        for seed in seeds:
            write_image(tmp_path / "photos" / split / f"class {seed % 2}" / f"{seed}.png", seed)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "photos"


@pytest.mark.parametrize("name", ["cifar10", "cub"])
def test_the_data_page_makes_the_benchmarks_files(name: str, photos: Path) -> None:
    embed_dataset(open_dataset(photos), PixelEncoder(), f"{name}-store", workers=0)
    folder = Path("CUB_200_2011/attributes")
    folder.mkdir(parents=True)
    (folder / "class_attribute_labels_continuous.txt").write_text("0 2.5 60\n100 0 1\n")
    Path("attributes.txt").write_text("1 has_a::b\n2 has_a::c_(d)\n3 has_e::f\n")
    blocks = re.findall(r"```python\n(.*?)```", DATA_PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (block,) = (block for block in blocks if f"{name}.npz" in block)
    exec(compile(block, str(DATA_PAGE), "exec"), {})
    made = np.load(f"{name}.npz")
    assert made["X"].shape == (6, 16)
    assert made["is_train"].sum() == 4
    assert made["names"][made["y"]].tolist() == [str(label) for label in labels_in_order(photos, made["is_train"])]
    if name == "cub":
        assert made["attributes"].shape == (2, 3)
        assert made["attribute_names"].tolist() == ["has_a::b", "has_a::c_(d)", "has_e::f"]


def labels_in_order(photos: Path, is_train: np.ndarray) -> list[str]:
    """The label of each row: within a split, rows are in the order of the data set."""
    own = {split: iter([sample.label for sample in open_dataset(photos).select(split)]) for split in ("train", "test")}
    return [str(next(own["train" if train else "test"])) for train in is_train]
