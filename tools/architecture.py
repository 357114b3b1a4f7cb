"""The size of the packages, the path of a prediction and of a fit, and their times: `python -m tools.architecture`.

A path is counted as Python takes it: the functions of ccr that are called, and the files that they are in. The model is
fitted to made-up embeddings of CLIP's width (512 dimensions, 200 concepts, 10 classes). Modules that are imported are
all that are in `sys.modules`. Best of several runs, because the machine may have other work.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SOURCE = Path(__file__).parents[1] / "src"
#: Libraries that take long to import.
HEAVY = ("torch", "numba", "scipy", "sklearn")
FRESH = """
import json, sys, time
start = time.perf_counter()
import numpy as np
from ccr import ConceptModel
x = np.load(sys.argv[2])
model = ConceptModel.load(sys.argv[1])
model.predict(x)
print(json.dumps([time.perf_counter() - start, len(sys.modules), [n for n in %r if n in sys.modules]]))
"""


def sizes() -> list[str]:
    """Modules and lines of each package, and of each room of ccr."""
    lines = ["| | modules | lines |", "|---|--:|--:|"]
    homes = [SOURCE / name for name in ("ccr", "ccr_studio", "ccr_lab")]
    homes += sorted(path for path in homes[0].iterdir() if path.is_dir() and list(path.glob("*.py")))
    for home in homes:
        files = list(home.rglob("*.py"))
        count = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
        lines.append(f"| {'.'.join(home.relative_to(SOURCE).parts)} | {len(files)} | {count:,} |")
    return lines


def repeated_classes(package: str) -> dict[str, int]:
    """Names of classes that several modules of a package define, and how many do."""
    import ast

    names: Counter[str] = Counter()
    for file in (SOURCE / package).rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        names.update(node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return {name: count for name, count in sorted(names.items()) if count > 1}


def path(work: Callable[[], Any]) -> str:
    """How many functions of ccr are called, how deep, and in which files, as a table's cells."""
    called: Counter[str] = Counter()
    deepest, depth = 0, threading.local()

    def watch(frame: Any, event: str, argument: object) -> None:
        nonlocal deepest
        code = frame.f_code
        if not code.co_filename.startswith(str(SOURCE)) or event not in ("call", "return"):
            return
        depth.now = max(0, getattr(depth, "now", 0) + (1 if event == "call" else -1))
        if event == "call" and code.co_name != "<module>":
            called[code.co_filename] += 1
            deepest = max(deepest, depth.now)

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    outside = [name for name in called if f"{SOURCE}/ccr/kernels" not in name]
    return f"{sum(called.values()):,} | {deepest} | {len(outside)} | {len(called)}"


def milliseconds(work: Callable[[], Any], runs: int = 300) -> float:
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return 1000 * min(times)


def fresh(folder: str, row: str, runs: int = 5) -> tuple[float, int, list[str]]:
    """Seconds of loading and one prediction in a new process, and what it imported."""
    command = [sys.executable, "-c", FRESH % (HEAVY,), folder, row]
    done = [json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(runs)]
    seconds, modules, heavy = min(done)
    return seconds, modules, heavy


def main() -> None:
    from ccr import ConceptClassifier, ConceptModel, Concepts

    rng = np.random.default_rng(0)
    centres = rng.normal(size=(10, 512))
    y = rng.integers(0, 10, 2000)
    X = (centres[y] + rng.normal(size=(2000, 512)) * 2).astype(np.float32)
    concepts = Concepts([f"concept {number}" for number in range(200)], rng.normal(size=(200, 512)))
    estimator = ConceptClassifier(concepts, max_iter=3, random_state=0).fit(X, y)
    fit = path(lambda: ConceptClassifier(concepts, max_iter=3, random_state=0).fit(X, y))
    with tempfile.TemporaryDirectory() as folder:
        estimator.save(f"{folder}/model")
        np.save(f"{folder}/x.npy", X[:1])
        model = ConceptModel.load(f"{folder}/model")
        works: dict[str, Callable[[], Any]] = {
            "explain(x)": lambda: model.explain(X[0]),
            "predict(X[:1])": lambda: model.predict(X[:1]),
            "predict_proba(X[:1])": lambda: model.predict_proba(X[:1]),
            "encode(X[:1])": lambda: model.encode(X[:1]),
            "predict(X[:64])": lambda: model.predict(X[:64]),
        }
        for work in works.values():
            work()
        print(*sizes(), "", sep="\n")
        print("| path | calls | deepest | files outside kernels | files | ms |\n|---|--:|--:|--:|--:|--:|")
        for name, work in works.items():
            print(f"| `{name}` | {path(work)} | {milliseconds(work):.2f} |")
        print(f"| `ConceptClassifier.fit` | {fit} | |\n")
        seconds, modules, heavy = fresh(f"{folder}/model", f"{folder}/x.npy")
    print(
        f"Load and predict in a fresh process: {seconds:.2f} s, {modules} modules, {', '.join(heavy) or 'none'} of",
        end=" ",
    )
    print(f"{', '.join(HEAVY)}.\nClasses of ccr with the same name: {repeated_classes('ccr') or 'none'}.")


if __name__ == "__main__":
    main()
