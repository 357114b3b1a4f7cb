"""`ccr predict`: photos to a file of predictions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from ccr.cli.common import Json, ModelEncoder, ModelFolder, Ray, Workers, bar, check_extra, console, print_json
from ccr.cli.common_data import BatchSize, Outside, model_encoder, split_of
from ccr.cli.common_photo import MOST_CLASSES, plain_table
from ccr.errors import CCRError
from ccr.io.remote import Place, as_place

if TYPE_CHECKING:
    from ccr.data.store import EmbeddingStore
    from ccr.photos.run import PredictSummary

#: More photos than this that could not be read are only in the file and the JSON.
MOST_LISTED = 20


def predict(
    model: ModelFolder,
    photos: Annotated[
        list[str],
        typer.Argument(
            help="Image files, folders, patterns in quotes such as 'photos/**/*.jpg', a CSV or Parquet manifest with a "
            "column path, tar shards as `shards/{00000..00099}.tar`, URLs of any of them (s3://, gs://), a store made "
            "by `ccr embed`, or `-`: paths on standard input, one per line."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The file of predictions: .csv, .parquet or .jsonl.")],
    explain: Annotated[
        int, typer.Option(min=0, help="How many concepts to name for each photo, with their contributions; 0: none.")
    ] = 5,
    split: Annotated[str | None, typer.Option(help="Of a store: only this split, such as test.")] = None,
    encoder: ModelEncoder = None,
    workers: Workers = None,
    batch_size: BatchSize = 32,
    max_pixels: Annotated[int, typer.Option(min=1, help="Photos with more pixels count as unreadable.")] = 89_478_485,
    max_mb: Annotated[int, typer.Option(min=1, help="Files with more megabytes count as unreadable.")] = 256,
    outside: Outside = False,
    ray: Ray = None,
    as_json: Json = False,
) -> None:
    """Predict photos: class, probability, runner-up, and the concepts that contribute most, one row per photo.

    If it is stopped, the same command continues where it left off, and the file is the same to the byte. Finished work
    is kept in FILE.progress until the file is complete. Unreadable photos are listed, with the reason in the column
    error.

    Example: `ccr predict photos-model new-photos/ --out predictions.csv`

    Example: `find . -name '*.jpg' | ccr predict photos-model - --out predictions.parquet --explain 3`

    On a cluster, the same bytes: `ccr predict photos-model "s3://photos/{000..999}.tar" --out p.csv --ray HOST:6379`
    """
    from ccr.model import ConceptModel
    from ccr.photos.run import table_ending

    table_ending(out)
    if ray is not None:
        check_extra()
    loaded = ConceptModel.load(model)
    store = _store(photos, split)
    if store is not None and encoder is not None:
        raise typer.BadParameter(f"--encoder {encoder} embeds photos, and a store has embeddings: leave it out")
    options: dict[str, Any] = {"explain": explain}
    if store is not None:
        with bar() as tell:
            summary = _of_store(ray, workers)(loaded, store, out, **options, tell=tell)
    else:
        from ccr.data.datasets import open_photos

        samples = open_photos(photos, stream=sys.stdin, allow_outside=outside)
        options |= {"batch_size": batch_size, "max_pixels": max_pixels, "max_bytes": max_mb << 20}
        reads = model_encoder(loaded, encoder)
        with bar() as tell:
            summary = _of_photos(ray, workers)(loaded, samples, reads, out, **options, tell=tell)
    if as_json:
        print_json({"model": str(model), **summary.to_dict()})
    else:
        _show(summary)


def _of_photos(address: str | None, workers: int | None) -> Callable[..., PredictSummary]:
    """The function that predicts photos: on this machine, or on the Ray cluster at `address`."""
    from ccr import scale
    from ccr.photos.run import predict_photos

    if address is None:
        return partial(predict_photos, workers=1 if workers is None else workers)
    return partial(scale.predict, address=address, workers=workers or None)


def _of_store(address: str | None, workers: int | None) -> Callable[..., PredictSummary]:
    """The same for rows of a store."""
    from ccr import scale
    from ccr.photos.run import predict_store

    return predict_store if address is None else partial(scale.predict_store, address=address, workers=workers or None)


def _store(photos: list[str], split: str | None) -> EmbeddingStore | None:
    """The store, if that is what was given."""
    from ccr.data.store import EmbeddingStore

    stores = [given for given in photos if _is_store(given)]
    if not stores:
        if split is not None:
            raise typer.BadParameter("--split chooses rows of a store; photos have no splits")
        return None
    if len(photos) > 1:
        raise CCRError(f"a store must be the only source, got {stores[0]} among {len(photos)}: use one command each")
    store = EmbeddingStore.open(stores[0])
    return store if split is None else split_of(store, split)[1]


def _is_store(given: str) -> bool:
    """Whether it is the folder or URL of a store."""
    place = as_place(given)
    return (place / "store.json").is_file() if isinstance(place, Place) else (place / "img_emb").is_dir()


def _show(summary: PredictSummary) -> None:
    rows = [
        ("photos", f"{summary.photos:,}"),
        ("done by an earlier run", f"{summary.resumed:,}"),
        ("unreadable", f"{len(summary.unreadable):,}"),
        ("photos per second", f"{summary.photos_per_second:.1f}"),
    ]
    largest = sorted(summary.classes.items(), key=lambda item: (-item[1], item[0]))
    rows += [(f"predicted {name}", f"{count:,}") for name, count in largest[:MOST_CLASSES]]
    if len(largest) > MOST_CLASSES:
        rest = sum(count for _, count in largest[MOST_CLASSES:])
        rows.append((f"{len(largest) - MOST_CLASSES} other classes", f"{rest:,}"))
    console.print(plain_table(f"Predictions in {summary.out}", ("", ""), rows, texts=(0, 1), show_header=False))
    for item in summary.unreadable[:MOST_LISTED]:
        console.print(f"unreadable: {escape(repr(item.path))}: {escape(item.reason)}")
    if len(summary.unreadable) > MOST_LISTED:
        console.print(f"... and {len(summary.unreadable) - MOST_LISTED} more, in the column error")
