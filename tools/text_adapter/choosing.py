"""Choices are made on anchors that are held out."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from functools import cache

import numpy as np
from scipy.special import gammaln

from ccr.encoders.bundled import TextAdapter, spelled
from ccr.encoders.registry import unit
from tools.text_adapter.anchors import Anchors, Sentences, held
from tools.text_adapter.fitting import Settings, fit, fit_bridge

FOLDS = 5
CHOSEN = Settings()
VARIANTS = {
    "chosen": CHOSEN,
    "predicted only": replace(CHOSEN, known_words=False),
    "word_share 0": replace(CHOSEN, word_share=0.0),
    "word_share 0.6": replace(CHOSEN, word_share=0.6),
    "linear bridge": replace(CHOSEN, bridge_kernel=0.0, bridge_ridge=1.0),
    "no bridged words": replace(CHOSEN, bridged_words=False),
    "gamma 1": replace(CHOSEN, gamma=1.0),
    "ridge 1": replace(CHOSEN, ridge=1.0),
}


class Choosing:
    """Anchors in folds: each text is mapped by an adapter that has never seen it."""

    def __init__(self, anchors: Anchors, sentences: Sentences, seed: int) -> None:
        self._anchors, self._sentences = anchors, sentences
        self._folds = fold_names(anchors, seed)
        self._adapters = cache(self._fitted)  # of settings that differ in nothing that the fit depends on

    def scores(self, s: Settings) -> dict[str, float]:
        """Every measure of one variant, from 0 to 1, and their mean."""
        bare = replace(s, word_share=CHOSEN.word_share, known_words=True)
        adapters = [replace(adapter, word_share=s.word_share) for adapter in self._adapters(bare)]
        if not s.known_words:
            adapters = [replace(adapter, words={}) for adapter in adapters]
        found = self._words(adapters) | self._phrases(s) | self._classes(adapters)
        return found | {"mean": float(np.mean(list(found.values())))}

    def _fitted(self, s: Settings) -> list[TextAdapter]:
        mean = self._anchors.sets["imagenet_sample"].mean
        return [fit(self._anchors, self._sentences, s, mean, held(names)) for names in self._folds]

    def _map(self, adapter: TextAdapter, texts: Sequence[str]) -> np.ndarray:
        return adapter.directions(self._sentences(texts), texts)

    def _words(self, adapters: list[TextAdapter]) -> dict[str, float]:
        """Scores of the held-out texts against those of their true vectors, over the classes of ImageNet."""
        true, found = self._anchors.true, {"words": [], "phrases": []}
        for names, adapter in zip(self._folds, adapters, strict=True):
            own = true.only(lambda text, names=names: spelled(text) in names)
            alike = self._agreement(self._map(adapter, own.names), own.vectors)
            for text, value in zip(own.names, alike, strict=True):
                found["phrases" if " " in spelled(text) else "words"].append(value)
        return {f"held-out {kind}, correlation": float(np.mean(values)) for kind, values in found.items()}

    def _phrases(self, s: Settings) -> dict[str, float]:
        """The same over sets of phrases that no adapter is fitted on, but whose words it may know."""
        adapter = self._whole(replace(s, word_share=CHOSEN.word_share, known_words=True))
        adapter = replace(adapter, word_share=s.word_share, words=adapter.words if s.known_words else {})
        bridge, found = fit_bridge(self._anchors, CHOSEN), {}
        for name, texts in self._anchors.phrases.items():
            truth = bridge(texts.vectors) if name.startswith("bridge") else texts.vectors
            rows = self._map(adapter, texts.names)
            rows, truth = (unit(part - part.mean(0)) for part in (rows, truth))
            found[f"{name} ({len(texts.names)} phrases), correlation"] = float(self._agreement(rows, truth).mean())
        return found

    @cache  # noqa: B019, one object for the whole run
    def _whole(self, s: Settings) -> TextAdapter:
        return fit(self._anchors, self._sentences, s, self._anchors.sets["imagenet_sample"].mean)

    def _agreement(self, rows: np.ndarray, truth: np.ndarray) -> np.ndarray:
        """Correlation (n,) over the classes' mean images of two directions' scores."""
        one, other = (self._anchors.imagenet @ part.T for part in (rows, truth))
        one, other = one - one.mean(0), other - other.mean(0)
        return np.asarray((one * other).sum(0) / np.sqrt((one**2).sum(0) * (other**2).sum(0)))

    def _classes(self, adapters: list[TextAdapter]) -> dict[str, float]:
        """Zero-shot accuracy on every set of classes."""
        scores = {}
        for set_name, image_set in self._anchors.sets.items():
            rows = np.stack([self._class(adapters, names) for names in image_set.names])
            ranks = true_ranks(image_set.images @ rows.T, image_set.labels)
            scores[f"{set_name}, {min(10, len(rows))}-way"] = ten_way(ranks, len(rows))
            if len(rows) > 10:
                top = 5 if set_name == "imagenet_sample" else 1  # one photo a class: top-1 would be mostly luck
                scores[f"{set_name}, top-{top} of {len(rows)}"] = float((ranks < top).mean())
        return scores

    def _class(self, adapters: list[TextAdapter], names: list[str]) -> np.ndarray:
        """A class is the mean of its names."""
        adapter = next(a for a, own in zip(adapters, self._folds, strict=True) if spelled(names[0]) in own)
        return np.asarray(unit(self._map(adapter, names).mean(0, keepdims=True))[0])


def fold_names(anchors: Anchors, seed: int) -> list[Set[str]]:
    """Spellings of each fold; classes that share a name, in whatever set, are in one fold."""
    groups: list[set[str]] = []
    for names in (n for image_set in anchors.sets.values() for n in image_set.names):
        own = {spelled(name) for name in names}
        own |= {name.removesuffix(" dog").removesuffix(" cat") for name in own}
        joined = [group for group in groups if group & own]
        groups = [group for group in groups if not group & own] + [own.union(*joined)]
    taken = set().union(*groups)
    groups += [{form} for form in map(spelled, anchors.true.names) if form not in taken]
    order = np.random.default_rng(seed).permutation(len(groups))
    return [set().union(*(groups[i] for i in order[k::FOLDS])) for k in range(FOLDS)]


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
