"""RESULTS.md: a table for each kind of CPU, of which a run replaces its own and leaves the others."""

from __future__ import annotations

from pathlib import Path

HEADING = "## "


def with_section(text: str, introduction: str, cpu: str, section: str) -> str:
    """The page `text` with what was measured on this CPU in place of what was there for it, others as they are."""
    kept = {name: body for name, body in sections(text).items() if name != cpu}
    kept[cpu] = section.strip()
    parts = [introduction.strip(), *(f"{HEADING}{name}\n\n{kept[name]}" for name in sorted(kept))]
    return "\n\n".join(parts) + "\n"


def sections(text: str) -> dict[str, str]:
    """What the page holds for each CPU."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(HEADING):
            lines = found.setdefault(line.removeprefix(HEADING).strip(), [])
        else:
            lines.append(line)
    return {name: "\n".join(body).strip() for name, body in found.items()}


def write(path: Path, introduction: str, cpu: str, section: str) -> None:
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    path.write_text(with_section(before, introduction, cpu, section), encoding="utf-8")
