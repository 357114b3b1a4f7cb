"""A real browser for tests of pages."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from html import escape
from pathlib import Path

import pytest

from ccr.show.page import POLICY

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
#: Says how high the page is, unfolds it, then says how wide it wants to be and what in it is broken or could run.
CHECKER = """<script>
const page = document.documentElement, seen = parent.document.documentElement;
seen.dataset.folded = page.scrollHeight;
document.querySelectorAll("details").forEach(d => d.open = true);
seen.dataset.width = page.scrollWidth; seen.dataset.window = innerWidth;
seen.dataset.scripts = document.querySelectorAll("script, iframe, link, object, embed").length - 1;
seen.dataset.handlers = [...document.querySelectorAll("*")]
  .filter(e => [...e.attributes].some(a => a.name.startsWith("on"))).length;
seen.dataset.broken = [...document.images].filter(i => !i.complete || !i.naturalWidth).length;
seen.dataset.images = document.images.length;
</script></body>"""


def chromium() -> str:
    """The browser, or a skip with the reason."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found:
            return found
    return pytest.skip("no Chromium is installed to open the page in")


def measure(html: str, folder: Path, width: int, *, obey: bool = False) -> dict[str, int]:
    """What CHECKER found in a frame of this width: a window of its own is never narrower than 500. The page's policy
    forbids it to run, so it is not obeyed unless that is asked for."""
    html = html if obey else html.replace(POLICY, "")
    file = folder / f"checked-{width}.html"
    inside = escape(html.replace("</body>", CHECKER))
    frame = f'<iframe style="border:0;width:{width}px;height:900px" srcdoc="{inside}"></iframe>'
    file.write_text(f'<!doctype html><html><meta charset="utf-8"><body>{frame}</body></html>', encoding="utf-8")
    shown = _run(["--dump-dom", "--window-size=1400,1000", file.as_uri()])
    opening = re.search(r"<html[^>]*>", shown)
    assert opening is not None, shown[:500]
    return {key: int(value) for key, value in re.findall(r'data-(\w+)="(-?\d+)"', opening[0])}


def screenshot(file: Path, out: Path, width: int) -> bytes:
    """A picture of the page as it opens."""
    _run([f"--screenshot={out}", f"--window-size={width},1600", file.as_uri()])
    return out.read_bytes()


def _run(arguments: list[str]) -> str:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [chromium(), *FLAGS, f"--user-data-dir={profile}", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
