"""The code of a Markdown page: its blocks, in order, and whether they are to be run."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

#: The line before a block that is not run; pages do not show it.
EXCUSE = re.compile(r"^ *<!-- not run in the tests: (.{10,}) -->$")
#: What a block without a language begins with if it is for a shell. `ccr X [OPTIONS]` is the form of a command.
_COMMAND = re.compile(r"^(?:ccr|python3?|pip|make|npm|uvicorn|docker|git|curl|ray|mkdocs|tar) (?!.*\[OPTIONS\])", re.M)
_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<code>.*?)^(?P=indent)```\s*$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One block of code: `language` is python, sh, or what else its page calls it."""

    page: Path
    line: int
    language: str
    code: str
    above: str = ""

    @property
    def excuse(self) -> str | None:
        """Why it is not run, as the line above it says; None: it is run."""
        found = EXCUSE.match(self.above)
        return found[1] if found else None

    @property
    def runs(self) -> bool:
        return self.language in ("python", "sh") and self.excuse is None

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line} ({self.language})"


def blocks(page: Path) -> list[Block]:
    """All blocks of a page. Bash and console are `sh`, and so is what looks like commands and has no language."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        code = textwrap.dedent(match["code"])
        language = match["info"].split()[0] if match["info"].strip() else "sh" if _COMMAND.search(code) else "text"
        language = {"bash": "sh", "console": "sh", "shell": "sh", "py": "python"}.get(language, language)
        before = text[: match.start()].splitlines()
        found.append(Block(page, len(before) + 1, language, code, before[-1] if before else ""))
    return found


def command_lines(code: str) -> list[str]:
    """The lines of a shell block, those that go on after a backslash as one; comments and blank lines left out."""
    joined = re.sub(r"\\\n\s*", " ", code)
    return [line.strip() for line in joined.splitlines() if line.strip() and not line.strip().startswith("#")]
