"""A notebook as a page of the site: its words, its code, and what the code printed and drew."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any, NamedTuple

import nbformat


class NotebookPage(NamedTuple):
    """Markdown, and the pictures (name: PNG) that it shows."""

    text: str
    pictures: dict[str, bytes]


def notebook_page(path: Path) -> NotebookPage:
    """The notebook at `path` as Markdown; its pictures are called after it."""
    pictures: dict[str, bytes] = {}
    parts = [_cell(cell, path.stem, pictures) for cell in nbformat.read(path, as_version=4).cells]
    note = f'*Download the notebook: <a href="{path.name}" download>{path.name}</a>.*'
    heading, _, rest = "\n\n".join(parts).partition("\n")
    return NotebookPage(f"{heading}\n\n{note}\n{rest}\n", pictures)


def _cell(cell: Any, stem: str, pictures: dict[str, bytes]) -> str:
    if cell.cell_type == "markdown":
        return str(cell.source)
    parts = [f"```python\n{cell.source}\n```"]
    parts += [_output(output, stem, pictures) for output in cell.get("outputs", ())]
    return "\n\n".join(part for part in parts if part)


def _output(output: Any, stem: str, pictures: dict[str, bytes]) -> str:
    if output.output_type == "stream":
        return _printed(output.text)
    data = output.get("data", {})
    if "image/png" in data:
        name = f"{stem}-{len(pictures) + 1}.png"
        pictures[name] = base64.b64decode(data["image/png"])
        return f"![What the cell drew]({name})"
    return _printed(data["text/plain"]) if "text/plain" in data else ""


def _printed(text: str) -> str:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text).rstrip().replace("```", "'''")
    return f"```text\n{plain}\n```" if plain else ""
