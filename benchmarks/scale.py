"""A model of what clusters would take, and stores of many shards.

    python -m benchmarks.scale model --per-image SECONDS   # hours of embed, by size of the cluster, and of fit
    python -m benchmarks.scale shards [--shards 5000]      # how long a store of many shards takes to open

The seconds per image and epoch of a fit are those of `python -m benchmarks.whole_fit`, divided by its rows and epochs.
"""

from __future__ import annotations

import json
import tempfile
import time
from argparse import ArgumentParser
from pathlib import Path

import numpy as np

from benchmarks.whole_fit import DIMENSIONS

NODES, EPOCHS = (1, 4, 16, 64, 256), 10


def model(per_image: float, embedded: float) -> None:
    """The table of docs/scale.md: embedding is divided by the nodes, a fit is on one of them."""
    print(f"| images | {' | '.join(f'embed on {nodes}' for nodes in NODES)} | fit on 1 |")
    print(f"|--:|{'--:|' * (len(NODES) + 1)}")
    for images in (1.3e6, 50e6, 5e9):
        hours = [images / embedded / nodes / 3600 for nodes in NODES] + [EPOCHS * images * per_image / 3600]
        print(f"| {images:,.0f} | {' | '.join(f'{value:,.2f}' for value in hours)} |")


def shards(count: int) -> None:
    """Open a store of many shards, read a row of the last, and then all labels."""
    from ccr.data.store import EmbeddingStore
    from ccr.data.store.layout import DESCRIPTION
    from ccr.data.store.matrix import write_shard

    rows = 4
    with tempfile.TemporaryDirectory(prefix="ccr-shards-") as name:
        folder = Path(name)
        about = [{"image_path": str(row), "label": "a", "split": "train", "content": ""} for row in range(rows)]
        made = [
            write_shard(folder, shard, np.full((rows, DIMENSIONS), shard, np.float16), about) for shard in range(count)
        ]
        encoder = {"spec": "bundled", "fingerprint": "none", "dimension": DIMENSIONS, "preprocessing": ""}
        source = {"kind": "folder", "path": "none"}
        description = {"format": "ccr-store", "version": 1, "encoder": encoder, "dtype": "float16", "source": source}
        (folder / DESCRIPTION).write_text(json.dumps({**description, "classes": ["a"], "shards": made}))
        times = [time.perf_counter()]
        store = EmbeddingStore.open(folder)
        times.append(time.perf_counter())
        assert float(store[rows * (count - 1)][0]) == np.float16(count - 1)
        times.append(time.perf_counter())
        assert len(store.y) == rows * count
        times.append(time.perf_counter())
    opened, row, y = np.diff(times)
    print(f"{count:,} shards: opened in {opened:.2f} s, a row of the last in {1000 * row:.1f} ms, labels in {y:.1f} s")


def main() -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=("model", "shards"))
    parser.add_argument("--shards", type=int, default=5000)
    parser.add_argument("--embedded", type=float, default=1000.0, help="images per second and node (one GPU; assumed)")
    parser.add_argument("--per-image", type=float, help="seconds of a fit per image and epoch")
    given = parser.parse_args()
    if given.what == "shards":
        shards(given.shards)
    elif given.per_image is None:
        parser.error("`model` needs --per-image: the seconds of `benchmarks.whole_fit` by its rows and epochs")
    else:
        model(given.per_image, given.embedded)


if __name__ == "__main__":
    main()
