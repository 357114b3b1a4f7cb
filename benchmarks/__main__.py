"""`python -m benchmarks [part ...]`: print one table, and write it to RESULTS.md as this CPU's (all parts only)."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks import accuracy, epochs, prediction, pursuit, results, steps
from benchmarks.measuring import Line, cpu_model, machine, table
from benchmarks.private_data import Skipped
from ccr import kernels

PARTS = {"steps": steps, "epochs": epochs, "accuracy": accuracy, "pursuit": pursuit, "prediction": prediction}
RESULTS = Path(__file__).with_name("RESULTS.md")


def main(names: list[str]) -> None:
    unknown = set(names) - set(PARTS)
    if unknown:
        sys.exit(f"there are the benchmarks {', '.join(PARTS)}, not {', '.join(sorted(unknown))}")
    where = machine()
    kernels.warm_up(lambda text: print(text, file=sys.stderr))
    lines: list[Line] = []
    notes: list[str] = []
    for name in names or PARTS:
        print(f"{name} ...", file=sys.stderr)
        try:
            lines += PARTS[name].run()  # type: ignore[attr-defined]
        except Skipped as reason:
            notes.append(f"{name} was skipped: {reason}.")
    text = "\n".join([where, "", table(lines), *(f"\n{note}" for note in notes)])
    print(text)
    if not names:
        results.write(RESULTS, f"# Benchmarks\n\n`make bench` wrote this. {NOTES}", cpu_model(), text)


NOTES = (
    "There is a table for each kind of CPU that it was run on; a run replaces its own. "
    "Everything in a row was timed in turns in one run, each after a pause that lets the threads of the one before "
    "sleep; the least of several rounds counts. Opponents and the floor get one thread or all, whichever is faster; "
    "the floor is the fastest of torch, torch in pieces by our threads and NumPy's BLAS. The plain dense loop is "
    "`benchmarks/opponents.py`; both loops read rows in random order. A step can be faster than the floor: all scores "
    "are computed in bytes, and only those that could be active in floats (`docs/engine.md`)."
)

if __name__ == "__main__":
    main(sys.argv[1:])
