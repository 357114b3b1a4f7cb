"""Are explanations true of the photo? Claims of models, shuffled for a person to judge, and the share that is true.

    python -m benchmarks.judged draw STORE MODEL... --out claims.json [--photos 20] [--seed 0]
    python -m benchmarks.judged score claims.json

`draw` takes test photos at random and, of each model's explanation, the five largest terms that say that a concept is
shown, and five concepts of the first model's list at random. The claims of a photo are shuffled, each once, and those
that made them are named in a list of their own at the end of the file, so that whoever judges need not see it. Verdicts
are written into the file: true, half or false. `score` prints how many are true, half true and false, the share that is
true (half counts half) with its interval over photos, and the paired difference to the first.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from ccr import ConceptModel
from ccr.core.metrics import paired_bootstrap
from ccr.data.store import EmbeddingStore

TOP = 5
#: Concepts that nobody chose.
RANDOM = "named at random"
WORTH = {"true": 1.0, "half": 0.5, "false": 0.0}


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    drawing, scoring = commands.add_parser("draw"), commands.add_parser("score")
    drawing.add_argument("store", type=Path)
    drawing.add_argument("models", type=Path, nargs="+")
    drawing.add_argument("--out", type=Path, default=Path("claims.json"))
    drawing.add_argument("--photos", type=int, default=20)
    drawing.add_argument("--seed", type=int, default=0)
    scoring.add_argument("claims", type=Path)
    given = parser.parse_args()
    if given.command == "score":
        _score(json.loads(given.claims.read_text()))
    else:
        sheet = _draw(EmbeddingStore.open(given.store).select("test"), given.models, given.photos, given.seed)
        given.out.write_text(json.dumps(sheet, indent=1, ensure_ascii=False) + "\n")


def _draw(test: EmbeddingStore, folders: list[Path], photos: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    models = {folder.name: ConceptModel.load(folder) for folder in folders}
    first = next(iter(models.values()))
    listed = [*first.names, *first.provenance.left_out]
    judged, made_by = [], []
    for row in np.sort(rng.choice(len(test), photos, replace=False)):
        claims = {name: _shown(model, test[int(row)]) for name, model in models.items()}
        claims[RANDOM] = [listed[at] for at in rng.choice(len(listed), TOP, replace=False)]
        different = sorted({claim for shown in claims.values() for claim in shown})
        order = [different[place] for place in rng.permutation(len(different))]
        judged.append({"row": int(row), "class": str(test.y[row]), "verdicts": dict.fromkeys(order, "")})
        made_by.append(claims)
    return {"photos": judged, "made_by": made_by}


def _shown(model: ConceptModel, x: np.ndarray) -> list[str]:
    """The concepts among the largest terms of an explanation that the image is said to show."""
    return [term.concept for term in model.explain(x).contributions[:TOP] if term.code > 0]


def _score(sheet: dict[str, Any]) -> None:
    names = list(sheet["made_by"][0])
    shares = np.full((len(names), len(sheet["photos"])), np.nan)
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    for column, (photo, claims) in enumerate(zip(sheet["photos"], sheet["made_by"], strict=True)):
        for line, name in enumerate(names):
            verdicts = [photo["verdicts"][claim] for claim in claims[name]]
            worth = [WORTH[verdict] for verdict in verdicts]
            counts[name].update(verdicts)
            if worth:
                shares[line, column] = np.mean(worth)
    both = shares[:, ~np.isnan(shares).any(axis=0)]
    intervals, differences = paired_bootstrap(both)
    print(f"{both.shape[1]} photos on which all say that something is shown\n")
    print("| claims of | number | true / half / false, % | share true, % | 95 % interval | less the first |")
    print("|---|--:|--:|--:|--:|--:|")
    for line, name in enumerate(names):
        low, high = 100 * intervals[line].low, 100 * intervals[line].high
        less = "" if line == 0 else f"{100 * (both[line] - both[0]).mean():+.0f}"
        span = "" if line == 0 else f" ({100 * differences[line].low:+.0f} to {100 * differences[line].high:+.0f})"
        every = counts[name].total()
        three = " / ".join(f"{100 * counts[name][verdict] / every:.0f}" for verdict in WORTH)
        share = f"{100 * both[line].mean():.0f} | {low:.0f} to {high:.0f} | {less}{span}"
        print(f"| {name} | {every} | {three} | {share} |")


if __name__ == "__main__":
    main()
