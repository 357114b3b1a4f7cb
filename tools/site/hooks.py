"""What mkdocs does beside its own work: files of the repository outside docs/ and notebooks become pages, and links
that are right on GitHub are right on the site."""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # mkdocs loads this file by its path
from tools.site.notebooks import notebook_page  # noqa: E402

#: Files outside docs/ that are pages of the site, and where.
PROJECT = {
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
    "benchmarks/RESULTS.md": "project/benchmarks.md",
    "README.md": "index.md",
}
#: Markdown links and images, whose target has no space; not code.
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made of other files."""
    for source, page in PROJECT.items():
        if page != "index.md":
            text = (ROOT / source).read_text(encoding="utf-8")
            files.append(File.generated(config, page, content=_relinked(text, source, page)))
    for notebook in sorted((ROOT / "docs" / "tutorials").glob("*.ipynb")):
        page = f"tutorials/{notebook.stem}.md"
        made = notebook_page(notebook)
        for name, content in made.pictures.items():
            files.append(File.generated(config, f"tutorials/{name}", content=content))
        files.append(File.generated(config, page, content=_relinked(made.text, f"docs/{page}", page)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links of an ordinary page, which lies where it says."""
    place = page.file.src_uri
    if place in PROJECT.values() and place != "index.md":
        return markdown
    return _relinked(markdown, f"docs/{place}", place)


def _relinked(text: str, source: str, page: str) -> str:
    """Links of a file at `source` in the repository as they are on the page of the site, blocks of code untouched."""
    parts = re.split(r"(^```.*?^```)", text, flags=re.DOTALL | re.MULTILINE)
    change = lambda match: _link(match, source, page)  # noqa: E731
    return "".join(part if part.startswith("```") else _LINK.sub(change, part) for part in parts)


def _link(match: re.Match[str], source: str, page: str) -> str:
    picture, words, target = match.groups()
    if re.match(r"[a-z]+:|#", target):
        return match[0]
    name, hash_, anchor = target.partition("#")
    goal = posixpath.normpath(posixpath.join(posixpath.dirname(source), name))
    on_site = PROJECT.get(goal) or (goal.removeprefix("docs/") if goal.startswith("docs/") else None)
    if on_site is None:  # a file of the repository that is no page: its name is enough
        return words if words.startswith("`") else f"{words} (`{goal}`)"
    if on_site.endswith(".ipynb"):
        on_site = on_site.removesuffix(".ipynb") + ".md"
    return f"{picture}[{words}]({posixpath.relpath(on_site, posixpath.dirname(page) or '.')}{hash_}{anchor})"
