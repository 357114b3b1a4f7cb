"""`ccr concepts check`: a verdict on every concept of a list, and on the list."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich import box
from rich.markup import escape

from ccr.cli.common import Json, StoreEncoder, bar, console, fitting, note, print_json
from ccr.cli.common_data import chosen_store, split_of, store_encoder
from ccr.cli.common_photo import plain_table
from ccr.errors import CCRError
from ccr.io.files import write_text
from ccr.utils.texts import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from ccr.controls import Worth
    from ccr.data.store import EmbeddingStore
    from ccr.vocab.check import ImageCheck, Problem

#: Concepts that a list must have to be checked on photos: one is told apart from another.
LEAST = 2


class _OnPhotos(NamedTuple):
    """Results of a check on photos: the rows of the store used, the concepts' names, the findings about them, and the
    expected accuracy of the list (`worth`)."""

    rows: EmbeddingStore
    names: list[str]
    seen: ImageCheck
    worth: Worth | None


def check(
    file: Annotated[Path, typer.Argument(help="Text file with one concept per line; # begins a comment.")],
    store: Annotated[Path | None, typer.Argument(help="Store with labels, to see the concepts in its photos.")] = None,
    store_option: Annotated[Path | None, typer.Option("--store", help="The same, as an option.")] = None,
    classes: Annotated[
        Path | None, typer.Option(help="Without a store: text file of class names that must not be given away.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="HTML page of all concepts with the photos that show them.")] = None,
    encoder: StoreEncoder = None,
    worth: Annotated[bool, typer.Option(help="Also measure the list without refinement, beside random words.")] = True,
    as_json: Json = False,
) -> None:
    """Say of every concept whether it is good, doubtful, implausible or bad, why, and what to do about it.

    By its words: repeated, negated, abstract, unknown, or a class name. By the classes: implausible, such as paws where
    no class is an animal. With a store also by its training photos: never or always active, indistinguishable from
    another, hardly seen; and for the list, which classes no concept distinguishes, the accuracy to expect without
    refinement, and how much of it random words would reach. None of this can tell whether a concept is true of a class:
    that takes knowledge, and `ccr knowledge check`.

    Example: `ccr concepts check concepts.txt --store photos-store --out concepts.html`
    """
    from ccr.data.store import EmbeddingStore
    from ccr.vocab.lists import concept_lines

    if out is not None and out.suffix.lower() not in (".html", ".htm"):
        raise CCRError(f"--out is a page and must end in .html, got {out.name!r}")
    place = chosen_store(store, store_option)
    if place is None and encoder is not None:
        raise typer.BadParameter(f"--encoder {encoder} embeds concepts for a store: give a store, too")
    if place is not None and classes is not None:
        raise typer.BadParameter("give a store, which has its classes, or --classes, not both")
    opened = None if place is None else EmbeddingStore.open(place)
    names = [concept for _, concept in concept_lines(file)]
    problems = _by_words(names, opened, classes, encoder)
    photos = None
    usable = _usable([name for name, found in zip(names, problems, strict=True) if not _repeats(found)])
    if opened is not None and len(usable) < LEAST:
        note(f"note: photos are looked at for {LEAST} usable concepts or more, got {len(usable)}")
    elif opened is not None:
        photos = _on_photos(opened, usable, encoder, worth=worth)
        row = {name: number for number, name in enumerate(photos.names)}
        problems = [
            found + (photos.seen.problems[row[name]] if name in row and not _repeats(found) else [])
            for name, found in zip(names, problems, strict=True)
        ]
    if out is not None:
        _write_page(out, file, names, problems, photos)
    if as_json:
        _print_json(names, problems, photos)
    else:
        _show(names, problems, photos, out)


def _repeats(problems: list[Problem]) -> bool:
    return any(problem.kind == "repeated" for problem in problems)


def _usable(names: list[str]) -> list[str]:
    """Each concept once, without those that no model would take."""
    from ccr.vocab.lists import LONGEST_CONCEPT

    first = {name.casefold(): name for name in reversed(names) if len(name) <= LONGEST_CONCEPT}
    return [name for name in dict.fromkeys(names) if first.get(name.casefold()) == name]


def _by_words(
    names: list[str], store: EmbeddingStore | None, classes: Path | None, spec: str | None
) -> list[list[Problem]]:
    from ccr.vocab.check import check_texts
    from ccr.vocab.choose import grey_photos, read_classes
    from ccr.vocab.domains import fitting_domains
    from ccr.vocab.proposals import label_texts, wordnet_proposals
    from ccr.vocab.wordnet import WordNet

    known = list(store.classes) if store is not None else [] if classes is None else read_classes(classes).names
    try:
        wordnet = WordNet.open(log=note)
    except CCRError as error:
        note(f"note: unknown, abstract and implausible concepts are not looked for: {error}")
        return check_texts(names, leaking=label_texts(known, {}))

    def embed(texts: Sequence[str]) -> np.ndarray:
        """Only called where WordNet does not know what most classes are."""
        assert store is not None
        return store_encoder(store, spec).embed_texts(texts)

    with bar() as tell:
        said = wordnet_proposals(known, wordnet, tell=tell)
        return check_texts(
            names,
            leaking=label_texts(known, said.senses, wordnet),
            wordnet=wordnet,
            domains=fitting_domains(known, said.senses, wordnet, None if store is None else embed) if known else {},
            tied=[item.concept for item in said.proposals],
            grey=store is not None and grey_photos(store),
            tell=tell,
        )


def _on_photos(store: EmbeddingStore, names: list[str], spec: str | None, *, worth: bool) -> _OnPhotos:
    from ccr.controls import list_worth
    from ccr.labels import Part
    from ccr.vocab import embed_concepts
    from ccr.vocab.check import check_on_images
    from ccr.vocab.choose import check_number, training_part
    from ccr.vocab.lists import control_words

    check_number(len(names))
    used, train = store_encoder(store, spec), training_part(store)
    words = control_words(len(names), texts=[*names, *store.classes])
    with bar() as tell:
        concepts, control = embed_concepts(names, used, tell=tell), embed_concepts(words, used, tell=tell)
        seen = check_on_images(concepts, train, train.y, control=control.embeddings, tell=tell)
    split, test = split_of(store, None)
    if not worth or split == "all":
        return _OnPhotos(train, names, seen, None)
    with fitting() as tell:
        measured = list_worth(concepts, control, train=Part.of(train), test=Part.of(test), tell=tell)
    return _OnPhotos(train, names, seen, measured)


def _facts(problems: list[list[Problem]], photos: _OnPhotos | None) -> list[tuple[str, str]]:
    """Summary of the check as (label, value) pairs: verdicts counted, and what was measured on photos."""
    from ccr.vocab.check import VERDICTS, verdict

    verdicts = [verdict(found) for found in problems]
    facts = [(kind, str(verdicts.count(kind))) for kind in VERDICTS]
    if photos is None:
        return facts
    uncovered = photos.seen.uncovered
    pairs = [f"{name} (nearest: {other})" for name, other in uncovered.items()]
    facts.append(("classes that no concept distinguishes", listed(pairs, 10, " and {} others") or "none"))
    facts.append(
        ("how alike the concepts are (mean coherence: 0 unrelated, 1 the same)", f"{photos.seen.coherence:.2f}")
    )
    if photos.worth is not None:
        facts.append(("accuracy to expect before concepts are refined", f"{photos.worth.accuracy:.1%}"))
        words = f"{100 * photos.worth.ahead:+.1f} points (random words reach {photos.worth.random_words:.1%})"
        facts.append(("of that, gained by these words over random ones", words))
    return facts


def _show(names: list[str], problems: list[list[Problem]], photos: _OnPhotos | None, out: Path | None) -> None:
    from ccr.vocab.check import verdict

    rows = [
        (name[:40], verdict([problem]), problem.reason, problem.remedy)
        for name, found in zip(names, problems, strict=True)
        for problem in found
    ]
    if rows:
        style: dict[str, Any] = {"box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0)}
        console.print(plain_table("", ("concept", "verdict", "why", "remedy"), rows, texts=(0, 1, 2, 3), **style))
    for what, value in _facts(problems, photos):
        console.print(f"{what}: {escape(value)}")
    if out is not None:
        console.print(f"The page is {escape(str(out.resolve()))}")


def _print_json(names: list[str], problems: list[list[Problem]], photos: _OnPhotos | None) -> None:
    from dataclasses import asdict

    from ccr.vocab.check import verdict

    share = {} if photos is None else dict(zip(photos.names, photos.seen.share.tolist(), strict=True))
    concepts: list[dict[str, Any]] = [
        {"concept": name, "verdict": verdict(found), "problems": [asdict(p) for p in found], "active": share.get(name)}
        for name, found in zip(names, problems, strict=True)
    ]
    content: dict[str, Any] = {"concepts": concepts}
    if photos is not None:
        content["uncovered_classes"] = photos.seen.uncovered
        content["coherence"] = photos.seen.coherence
        content["worth"] = None if photos.worth is None else photos.worth._asdict()
    print_json(content)


def _write_page(
    out: Path, file: Path, names: list[str], problems: list[list[Problem]], photos: _OnPhotos | None
) -> None:
    from ccr.show.pages import Row, concepts_page
    from ccr.vocab.check import verdict

    at = {} if photos is None else {name: number for number, name in enumerate(photos.names)}
    rows = []
    for name, found in zip(names, problems, strict=True):
        share, top = None, []
        if photos is not None and name in at:
            share, top = float(photos.seen.share[at[name]]), photos.seen.top[at[name]].tolist()
        rows.append(Row(name, verdict(found), [f"{p.reason}: {p.remedy}" for p in found], share, top))
    store = None if photos is None else photos.rows
    write_text(out, concepts_page(f"Concepts of {file.name}", _facts(problems, photos), rows, store))
