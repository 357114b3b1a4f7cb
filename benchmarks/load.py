"""A load test of `ccr serve` on the loopback, with a bounded number of requests: no request may fail.

    python -m benchmarks.load MODEL PHOTOS [--requests 200] [--at-once 8]

PHOTOS is a folder of photos, or a store of `ccr embed` whose photos are still there. The server is another process, as
a user starts it. First one request after the other, then so many at once; the share of the two is what embedding
photos of several requests together, and using all cores, brings. Ratios are within one run.
"""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
import time
from argparse import ArgumentParser
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np

from ccr.data.store import EmbeddingStore
from ccr.utils.processes import isolated_python


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=8)
    given = parser.parse_args()
    photos = read_photos(given.photos, 32)
    command = [*isolated_python("from ccr.start import main; main()"), "serve", str(given.model)]
    with subprocess.Popen([*command, "--port", "0", "--json"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        try:
            failures = measure(url, photos, given.requests, given.at_once)
        finally:
            server.terminate()
    print(f"\nThe server left with code {server.returncode}.")
    sys.exit(1 if failures or server.returncode else 0)


def measure(url: str, photos: list[bytes], requests: int, at_once: int) -> int:
    with httpx.Client(base_url=url, timeout=60, limits=httpx.Limits(max_connections=at_once)) as client:
        model = client.get("/v1/model").json()
        row = np.random.default_rng(0).normal(size=model["dimension"]).tolist()

        def photo(number: int) -> float:
            files = [("photos", ("photo.jpg", photos[number % len(photos)], "image/jpeg"))]
            return timed(lambda: client.post("/v1/predict", files=files))

        def embedding(number: int) -> float:
            return timed(lambda: client.post("/v1/predict/embeddings", json={"embeddings": [row]}))

        failures = 0
        print("| request | at once | requests | failed | median, ms | p95, ms | requests per second |")
        print("|---|--:|--:|--:|--:|--:|--:|")
        for name, ask in (("one photo", photo), ("one embedding", embedding)):
            for together in (1, at_once):
                ask(0)
                started = time.perf_counter()
                with ThreadPoolExecutor(together) as pool:
                    seconds = list(pool.map(ask, range(requests)))
                rate = requests / (time.perf_counter() - started)
                middle, late = (1000 * np.nanpercentile(seconds, q) for q in (50, 95))
                failed = int(np.isnan(seconds).sum())
                failures += failed
                timing = f"{middle:.1f} | {late:.1f} | {rate:.1f}"
                print(f"| {name} | {together} | {requests} | {failed} | {timing} |", flush=True)
        sizes = {name: value for name, value in map(read_line, client.get("/metrics").text.splitlines()) if name}
        mean = sizes["ccr_batch_photos_sum"] / sizes["ccr_batch_photos_count"]
        print(f"\n{mean:.2f} photos were embedded together on average.")
        return failures


def timed(ask: object) -> float:
    """Seconds of one request; NaN, and a line on stderr, if it failed."""
    started = time.perf_counter()
    answer = ask()  # type: ignore[operator]
    if answer.status_code != 200:
        print(f"a request failed: {answer.status_code} {answer.text[:500]}", file=sys.stderr)
        return math.nan
    return time.perf_counter() - started


def read_line(line: str) -> tuple[str, float]:
    """Name and value of a line of the metrics without labels."""
    name, _, value = line.rpartition(" ")
    return ("", 0.0) if line.startswith("#") or "{" in name else (name, float(value))


def read_photos(place: Path, count: int) -> list[bytes]:
    """Up to `count` photos as files."""
    if not (place / "store.json").exists():
        endings = (".jpg", ".jpeg", ".png", ".webp")
        return [path.read_bytes() for path in sorted(place.rglob("*")) if path.suffix.lower() in endings][:count]
    store, found = EmbeddingStore.open(place), []
    for row in np.linspace(0, len(store) - 1, count).astype(int).tolist():
        stream = io.BytesIO()
        store.image(row).save(stream, "JPEG", quality=90)
        found.append(stream.getvalue())
    return found


if __name__ == "__main__":
    main()
