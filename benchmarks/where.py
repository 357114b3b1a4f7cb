"""Where in the picture: do the maps add up, do they point at the right place, and what do they cost?

    python -m benchmarks.where STORE MODEL [--photos 20] [--pairs 30] [--seed 0] [--ways exact values]
        [sums] [sides] [curves] [cost]

`sums`: patch terms plus rest against the code, on 100 photos. `sides`: photos of two classes side by side; of concepts
that one of them alone shows, the share of the map's positive mass on its side (chance: 0.5). `curves`: the patches that
a concept's map puts first are covered, or all others are; how its score and the prediction change, against random
patches. `cost`: time per photo beside plain embedding. STORE and MODEL are those of `ccr demo`.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from ccr import ConceptModel
from ccr.data.store import EmbeddingStore
from ccr.encoders import Encoder, load_encoder
from ccr.encoders.patches import mean_colour
from ccr.explain import WAYS, PatchTerms, Where
from ccr.photos.on_photos import SMOOTHING, split_image

SIDE = 224
SHARES = (0.1, 0.2, 0.3, 0.5)


class Setting(NamedTuple):
    encoder: Encoder
    model: ConceptModel
    test: EmbeddingStore
    rng: np.random.Generator
    given: Namespace

    def photo(self, row: int) -> Image.Image:
        """The square that the encoder looks at."""
        crop = self.encoder.crop
        assert crop is not None, "the benchmark covers squares of the encoder's crop: use bundled"
        return crop(self.test.image(row))

    def right(self) -> np.ndarray:
        """Rows that the model predicts right."""
        return np.flatnonzero(self.model.predict(self.test) == self.test.y)


class Pair(NamedTuple):
    """Two photos side by side, and the concepts that only the left or only the right one shows."""

    image: Image.Image
    classes: tuple[str, str]
    concepts: tuple[list[str], list[str]]


def sums(setting: Setting) -> None:
    """Largest difference of a code and its parts, relative to the code; and how large the parts are."""
    worst, parts, rows = 0.0, defaultdict(list), setting.rng.permutation(len(setting.test))[:100]
    for row in rows:
        where = _where(setting, split_image(setting.encoder, setting.test.image(int(row))))
        if len(where.codes):
            together = where.maps.sum(axis=(1, 2)) + sum(where.rest.values())
            worst = max(worst, float(np.abs(together / where.codes - 1).max()))
        for name, values in {"patches": where.maps.sum(axis=(1, 2)), **where.rest}.items():
            parts[name] += np.abs(values / where.codes).tolist()
    print(f"sums: {len(rows)} photos, {len(parts['patches'])} codes: largest relative difference {worst:.1e}")
    print("  |part| / code, median: " + ", ".join(f"{name} {np.median(values):.3f}" for name, values in parts.items()))


def sides(setting: Setting) -> None:
    """The share of positive mass on the right side, by way and smoothing."""
    shares: dict[tuple[str, float, str], list[float]] = defaultdict(list)
    for pair in _pairs(setting):
        for way in setting.given.ways:
            patches = split_image(setting.encoder, pair.image, way=way)
            for width in (0.0, SMOOTHING, 1.0):
                where = _where(setting, patches.smoothed(width))
                for side, names in enumerate(pair.concepts):
                    for name in set(names) & set(where.concepts):
                        shares[way, width, "concept"].append(_share(where.code_map(name).map, side))
                between = where.contrast_map(pair.classes[1], of=pair.classes[0]).map
                shares[way, width, "contrast"] += [_share(between, 0), _share(-between, 1)]
    for (way, width, kind), found in shares.items():
        right = np.mean(np.array(found) > 0.5)
        print(
            f"sides: {way:9s} smoothing {width:.1f} {kind:8s} {np.mean(found):.3f} of positive mass on its side, "
            f"{right:.0%} of {len(found)} maps mostly there"
        )


def curves(setting: Setting) -> None:
    """Scores and predictions after the first patches of a map are covered (deletion), or all but them (insertion)."""
    ways = setting.given.ways
    orders = (*ways, "random")
    scores: dict[tuple[str, str, float], list[float]] = defaultdict(list)
    kept: dict[tuple[str, str, float], list[bool]] = defaultdict(list)
    for row in setting.rng.permutation(setting.right())[: setting.given.photos]:
        photo = setting.photo(int(row))
        maps = {way: _where(setting, split_image(setting.encoder, photo, way=way).smoothed(SMOOTHING)) for way in ways}
        first = maps[ways[0]].contributions()[0]
        for order in orders:
            if order == "random":
                ranks = setting.rng.permutation(196).reshape(14, 14)
            else:
                ranks = _ranks(maps[order].code_map(first.name).map)
            for kind in ("deletion", "insertion"):
                covers = [(ranks < share * 196) == (kind == "deletion") for share in SHARES]
                rows = setting.encoder.embed_images([_covered(photo, cover) for cover in covers])
                column = setting.model.row(first.name)
                found = _scores(setting.model, rows)[:, column] / maps[ways[0]].code_map(first.name).total
                same = setting.model.predict(rows) == setting.test.y[row]
                for share, score, right in zip(SHARES, found, same, strict=True):
                    scores[order, kind, share].append(float(score))
                    kept[order, kind, share].append(bool(right))
    for order, kind, share in scores:
        key = order, kind, share
        print(
            f"curves: {kind:9s} {order:9s} {share:.0%} of patches: score {np.mean(scores[key]):+.2f} of what it was, "
            f"prediction right {np.mean(kept[key]):.0%} ({len(kept[key])} photos)"
        )


def cost(setting: Setting) -> None:
    """Seconds per photo: plain embedding, and embedding with the maps of ten concepts, in turns, least of five."""
    photo, columns = setting.photo(0), np.arange(10)
    rows = setting.model.concepts.embeddings[columns]

    def plain() -> None:
        setting.encoder.embed_images([photo])

    def maps() -> None:
        patches = split_image(setting.encoder, photo, way="exact")
        directions = setting.model.space.readouts(patches.embedding, rows).directions
        assert (patches.terms @ directions.T).shape == (14, 14, 10)

    times: dict[Callable[[], None], list[float]] = {plain: [], maps: []}
    for run in (plain, maps):
        run()
    for _ in range(5):
        for run, seconds in times.items():
            started = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - started)
    one, other = min(times[plain]), min(times[maps])
    print(f"cost: embedding {one:.3f} s, embedding with ten maps {other:.3f} s: {other / one:.2f} times")


def _where(setting: Setting, patches: PatchTerms) -> Where:
    where = setting.model.explain_patches(patches).where
    assert where is not None
    return where


def _pairs(setting: Setting) -> list[Pair]:
    """Pairs of photos of different classes, both right, each with a concept that speaks for its class alone."""
    right, model, pairs = setting.right(), setting.model, []
    classes, codes = model.classes.tolist(), model.encode(setting.test).toarray()
    while len(pairs) < setting.given.pairs:
        rows = setting.rng.choice(right, 2, replace=False)
        names = tuple(str(setting.test.y[row]) for row in rows)
        weights = [model.head.coef[classes.index(name)] for name in names]
        shown = [codes[row] * weight > 0 for row, weight in zip(rows, weights, strict=True)]
        alone = [
            shown[side] & (codes[rows[1 - side]] == 0) & (weights[1 - side] == 0) for side in (0, 1)
        ]  # fmt: skip
        if names[0] == names[1] or not (alone[0].any() and alone[1].any()):
            continue
        image = Image.new("RGB", (SIDE, SIDE))
        for side, row in enumerate(rows):
            image.paste(setting.photo(int(row)).crop((SIDE // 4, 0, 3 * SIDE // 4, SIDE)), (side * SIDE // 2, 0))
        concepts = tuple([model.names[column] for column in np.flatnonzero(mask)] for mask in alone)
        pairs.append(Pair(image, (names[0], names[1]), (concepts[0], concepts[1])))
    return pairs


def _share(values: np.ndarray, side: int) -> float:
    """The part of a map's positive mass in its left (0) or right (1) half; a half where there is none."""
    positive = np.maximum(values, 0)
    middle = values.shape[1] // 2
    half = positive[:, middle:] if side else positive[:, :middle]
    return float(half.sum() / positive.sum()) if positive.any() else 0.5


def _ranks(values: np.ndarray) -> np.ndarray:
    """0 for the largest of a map's 14 x 14 patches, 1 for the next; a smaller map is drawn larger first."""
    if values.shape != (14, 14):
        large = Image.fromarray(values.astype(np.float32)).resize((14, 14), Image.Resampling.BILINEAR)
        values = np.asarray(large)
    return np.argsort(np.argsort(-values, axis=None, kind="stable")).reshape(14, 14)


def _covered(photo: Image.Image, cover: np.ndarray) -> Image.Image:
    """The photo with some of its 14 x 14 patches in its mean colour."""
    pixels = np.array(photo)
    pixels[np.kron(cover, np.ones((16, 16), bool))] = mean_colour(photo)
    return Image.fromarray(pixels)


def _scores(model: ConceptModel, rows: np.ndarray) -> np.ndarray:
    return np.concatenate([chunk.numpy() for chunk in model.images(rows).chunks()]) @ model.concepts.embeddings.T


def main() -> None:
    parts = {"sums": sums, "sides": sides, "curves": curves, "cost": cost}
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("parts", nargs="*", choices=[*parts, []], default=[])
    parser.add_argument("--photos", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    test, model = EmbeddingStore.open(given.store).select("test"), ConceptModel.load(given.model)
    encoder = load_encoder(str(test.encoder))
    for name in given.parts or parts:
        parts[name](Setting(encoder, model, test, np.random.default_rng(given.seed), given))


if __name__ == "__main__":
    main()
