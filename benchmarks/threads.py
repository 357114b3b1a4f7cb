"""`python -m benchmarks.threads`: what `WORTH_A_THREAD` rests on, products on one thread and on all."""

from __future__ import annotations

import torch

from benchmarks.measuring import on_threads, take_turns


def main() -> None:
    threads = torch.get_num_threads()
    print(f"products (b, 512) x (512, n), GFLOP/s; {threads} threads")
    for n in (128, 824, 4523):
        for b in (128, 256, 512, 1024):
            print(
                f"n={n:5d} b={b:5d}  "
                + "  ".join(f"{name} {rate:6.1f}" for name, rate in _rates(n, b, threads).items())
            )


def _rates(n: int, b: int, threads: int) -> dict[str, float]:
    x, rows, out = torch.randn(b, 512), torch.randn(n, 512), torch.empty(b, n)
    works = {
        "one thread": on_threads(1, lambda: torch.mm(x, rows.T, out=out)),
        "all threads": on_threads(threads, lambda: torch.mm(x, rows.T, out=out)),
    }
    return {name: 2 * b * n * 512 / seconds / 1e9 for name, seconds in take_turns(works, rounds=20).items()}


if __name__ == "__main__":
    main()
