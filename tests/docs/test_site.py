"""The site builds without a warning, its links lead somewhere, and nothing in it comes from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.pages


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


def pages(site: Path) -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in sorted(site.rglob("*.html"))}


def test_pages_of_every_part_are_there(site: Path) -> None:
    for name in ("index", "pictures", "gallery", "faq", "howto/photos", "reference/models", "method", "theory"):
        assert (site / f"{name}.html").is_file(), name
    assert (site / "tutorials" / "comparing-methods.html").is_file()
    assert (site / "project" / "contributing.html").is_file()
    assert "ConceptClassifier" in (site / "reference" / "models.html").read_text(encoding="utf-8")


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r'<(?:script|img|iframe|source)[^>]+src="([^"]+)"|<link[^>]+href="([^"]+)"')
    for path, text in pages(site).items():
        for found in loaded.finditer(text):
            target = found[1] or found[2]
            assert not re.match(r"(?:https?:)?//", target), f"{path.name} loads {target}"


def test_every_link_and_anchor_leads_somewhere(site: Path) -> None:
    everything = pages(site)
    anchors = {path: set(map(unescape, re.findall(r'\bid="([^"]+)"', text))) for path, text in everything.items()}
    checked = 0
    for path, text in everything.items():
        if path.name == "404.html":
            continue
        for target in map(unescape, re.findall(r'<(?:a|img)[^>]+(?:href|src)="([^"]+)"', text)):
            if re.match(r"[a-z]+:|//", target):
                continue
            name, _, anchor = target.partition("#")
            goal = (path.parent / unquote(name)).resolve() if name else path
            goal = goal / "index.html" if goal.is_dir() else goal
            assert goal.is_file(), f"{path.relative_to(site)} links to {target}"
            if anchor and goal.suffix == ".html":
                assert unquote(anchor) in anchors[goal] or anchor == "__codelineno", f"{path.name} links to {target}"
            checked += 1
    assert checked > 1000


def test_search_works_from_a_file(site: Path) -> None:
    assert (site / "search" / "search_index.js").is_file()
    assert "iframe-worker" in (site / "index.html").read_text(encoding="utf-8")
