"""`python -m benchmarks.review_keys`: milliseconds in a browser from key Y to the next of 200 classes x 5 claims."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from tests.studio.browsing import opened_browser, studio_of
from tests.studio.helpers import make_bench, write_store

from benchmarks.measuring import machine
from ccr import ConceptClassifier, Concepts, HardThreshold
from ccr.data.store import EmbeddingStore
from ccr_studio.serving import Running

CLASSES, PER_CLASS, CONCEPTS, DIMENSION, ANSWERS, WARM = 200, 12, 400, 128, 60, 3
#: Answers claims, with pauses as people make them, and waits for the frame that shows the next one.
WALK = """async (count) => {
  const times = [], asked = () => document.querySelector('.claim.now')?.getAttribute('aria-label');
  for (let at = 0; at < count; at += 1) {
    const before = asked(), start = performance.now();
    document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'y', bubbles: true }));
    await new Promise((done) => {
      const look = () => (asked() === before ? setTimeout(look, 1) : requestAnimationFrame(done));
      look();
    });
    times.push(performance.now() - start);
    await new Promise((done) => setTimeout(done, 350 + 100 * (at % 4)));
  }
  return times;
}"""


def main() -> None:
    print(machine(), "\n")
    with tempfile.TemporaryDirectory() as folder:
        running = _studio(Path(folder))
        claims = int((running.bench.now().model.head.coef > 0).sum())
        print(f"{claims} claims\n\n| view | p50 | p95 | most |\n|---|--:|--:|--:|")
        with opened_browser() as browser:
            for studio in studio_of(browser, running, refused=True):  # the store has no picture files
                studio.open("#photos").evaluate("() => localStorage.setItem('ccr-reviewer', 'ann')")
                for name, view in {"by class": "#review", "only open": "#review?by=open"}.items():
                    page = studio.open(view)
                    page.wait_for_selector(".claim.now .mine")
                    times = page.evaluate(WALK, ANSWERS)[WARM:]
                    p50, p95 = np.percentile(times, (50, 95))
                    print(f"| {name} | {p50:.0f} | {p95:.0f} | {max(times):.0f} |", flush=True)
        running.close()


def _studio(folder: Path) -> Running:
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((CLASSES, DIMENSION)).astype(np.float32)
    y = np.repeat(np.arange(CLASSES), PER_CLASS)
    X = centres[y] + rng.standard_normal((len(y), DIMENSION)).astype(np.float32)
    write_store(folder / "store", X, np.array([f"class {number:03d}" for number in y]))
    texts = centres[rng.integers(0, CLASSES, CONCEPTS)] + rng.standard_normal((CONCEPTS, DIMENSION))
    concepts = Concepts([f"concept {number}" for number in range(CONCEPTS)], texts.astype(np.float32))
    estimator = ConceptClassifier(
        concepts, coder=HardThreshold(length=12), max_iter=3, weights_per_class=5, random_state=0
    )
    store = EmbeddingStore.open(folder / "store")
    return Running(make_bench(store, estimator.fit(store).model_, folder))


if __name__ == "__main__":
    main()
