"""Long runs: `python -m tools.fuzz --minutes 30` prints the table of docs/reliability.md, and every case that fell."""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import tempfile
import time
import traceback
from contextlib import closing, suppress
from itertools import cycle, takewhile
from pathlib import Path

from ccr.errors import CCRError
from tools.fuzz.areas import Areas

#: Seconds after which it is the next area's turn.
TURN = 1.0


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
    parser.add_argument("--minutes", type=float, default=1.0, help="how long; the areas take turns of a second")
    parser.add_argument("--seed", type=int, default=0, help="the first case")
    parser.add_argument("--area", help="only this one")
    chosen = parser.parse_args()
    os.environ["CCR_CACHE"] = os.environ.get("CCR_CACHE") or os.devnull  # thumbnails of damaged photos are not kept
    for name in ("werkzeug", "huggingface_hub.file_download", "huggingface_hub.utils._http"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # which tell of every request, and of every retry
    with tempfile.TemporaryDirectory() as folder, closing(Areas(Path(folder))) as areas:
        names = [chosen.area] if chosen.area else list(areas.named())
        tried, fell = dict.fromkeys(names, 0), dict.fromkeys(names, 0)

        def one_case(name: str) -> None:
            seed = chosen.seed + tried[name]
            tried[name] += 1
            if (story := survives(areas, name, seed)) is not None:
                fell[name] += 1
                print(f"{name}, seed {seed}:\n{story}", file=sys.stderr, flush=True)

        with suppress(KeyboardInterrupt):
            for name in names:  # the first case starts what an area needs, which is no part of its share
                one_case(name)
            end = time.monotonic() + 60 * chosen.minutes
            # Areas take turns, so that each has its share of a run of any length, also one that is stopped.
            for name in takewhile(lambda _: time.monotonic() < end, cycle(names)):
                until = time.monotonic() + TURN
                while time.monotonic() < min(until, end):
                    one_case(name)
        print("| area | tried | survived |\n|---|---:|---:|")
        for name in names:
            print(f"| {name} | {tried[name]:,} | {tried[name] - fell[name]:,} |")
    sys.exit(1 if any(fell.values()) else 0)


if __name__ == "__main__":
    main()
