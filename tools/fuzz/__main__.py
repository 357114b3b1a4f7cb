"""Long runs: `python -m tools.fuzz --minutes 30` prints the table of docs/reliability.md, and every case that fell."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
import traceback
from contextlib import ExitStack, closing
from pathlib import Path

from ccr.errors import CCRError
from tools.fuzz.areas import Areas


def survives(areas: Areas, area: str, seed: int) -> str | None:
    """None if the case of this seed ends with an answer or an error in words, else the traceback."""
    try:
        areas.named()[area](random.Random(f"{area} {seed}"))
    except CCRError:
        return None
    except Exception:
        return traceback.format_exc()
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long, divided among the areas")
    parser.add_argument("--seed", type=int, default=0, help="the first case")
    parser.add_argument("--area", help="only this one")
    chosen = parser.parse_args()
    fell = 0
    os.environ["CCR_CACHE"] = os.environ.get("CCR_CACHE") or os.devnull  # thumbnails of damaged photos are not kept
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        areas = stack.enter_context(closing(Areas(Path(folder))))
        names = [chosen.area] if chosen.area else list(areas.named())
        print("| area | tried | survived |\n|---|---:|---:|")
        for name in names:
            until, tried, bad = time.monotonic() + 60 * chosen.minutes / len(names), 0, 0
            while time.monotonic() < until:
                story = survives(areas, name, chosen.seed + tried)
                if story is not None:
                    bad += 1
                    print(f"{name}, seed {chosen.seed + tried}:\n{story}", file=sys.stderr)
                tried += 1
            print(f"| {name} | {tried:,} | {tried - bad:,} |", flush=True)
            fell += bad
    sys.exit(1 if fell else 0)


if __name__ == "__main__":
    main()
