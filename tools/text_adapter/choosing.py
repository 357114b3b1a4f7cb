"""Choices are made on anchors that are held out."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from tools.text_adapter.anchors import Anchors
from tools.text_adapter.fitting import fit, fit_words, mean_text
from tools.text_adapter.settings import Settings
from tools.text_adapter.texts import MiniLM, Pictures

FOLDS = 5


def fold_names(anchors: Anchors, seed: int) -> list[set[str]]:
    """Names of each fold; classes that share a name, in whatever set, are in one fold."""
    groups: list[set[str]] = []
    for names in (n for image_set in anchors.sets.values() for n in image_set.names):
        own = {name.lower() for name in names}
        own |= {name.removesuffix(" dog").removesuffix(" cat") for name in own}
        joined = [group for group in groups if group & own]
        groups = [group for group in groups if not group & own] + [own.union(*joined)]
    order = np.random.default_rng(seed).permutation(len(groups))
    return [set().union(*(groups[i] for i in order[k::FOLDS])) for k in range(FOLDS)]


def held_out_scores(anchors: Anchors, minilm: MiniLM, pictures: Pictures, s: Settings, seed: int) -> dict[str, float]:
    """Zero-shot accuracy on every choice set.

    Each class's text is mapped by an adapter that saw neither its name as a word nor its images.
    """
    folds = fold_names(anchors, seed)
    every = set().union(*folds)
    every |= {name + "s" for name in every} | {name.replace(" ", "-") for name in every}
    first = fit_words(anchors.words.without(every), minilm, s, seed)
    adapters = [fit(anchors, first, minilm, pictures, s, names) for names in folds]
    scores = {}
    for set_name, image_set in anchors.sets.items():
        which = [next(k for k in range(FOLDS) if n[0].lower() in folds[k]) for n in image_set.names]
        rows = [
            adapters[k](mean_text(minilm, n, s), pictures(n[:1], s.picture_template))[0]
            for k, n in zip(which, image_set.names, strict=True)
        ]
        ranks = true_ranks(image_set.images @ np.stack(rows).T, image_set.labels)
        scores[f"{set_name}, {min(10, len(rows))}-way"] = ten_way(ranks, len(rows))
        if len(rows) > 10:
            top = 5 if set_name == "imagenet_sample" else 1  # one photo a class: top-1 would be mostly luck
            scores[f"{set_name}, top-{top} of {len(rows)}"] = float((ranks < top).mean())
    return scores | {"mean": float(np.mean(list(scores.values())))}


def true_ranks(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return (scores > scores[np.arange(len(scores)), labels][:, None]).sum(1)


def ten_way(ranks: np.ndarray, classes: int) -> float:
    """Chance that the true class wins against 9 others drawn at random (or against all, if there are fewer)."""
    others = min(9, classes - 1)
    free = classes - 1 - ranks
    log_choose = lambda n: gammaln(n + 1) - gammaln(others + 1) - gammaln(n - others + 1)  # noqa: E731
    return float(
        np.where(free >= others, np.exp(log_choose(np.maximum(free, others)) - log_choose(classes - 1)), 0).mean()
    )
