"""`ccr judge`: a blind judgement of whether explanations are true of their photos."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from ccr.cli.common import Json, console, keeps, note, print_json
from ccr.cli.common_data import split_of
from ccr.cli.common_photo import STOP, columns_for, draw_photo, read_key
from ccr.errors import CCRError
from ccr.io.files import check_writable, write_text
from ccr.io.remote import is_url
from ccr.utils.texts import share_text, visible

if TYPE_CHECKING:
    from ccr.data.store import EmbeddingStore
    from ccr.metrics import Interval
    from ccr.review.judgement import Agreement, OriginScore, Scores, Sheet

SHEET = Path("claims.json")
KEYS = {"t": "true", "h": "half", "f": "false", "b": "back", STOP: "stop"}
QUESTION = "  [t]rue  [h]alf true  [f]alse   [b]ack  [q] stop: "
PHOTOS, SEED = 24, 0
LEGEND = (
    "number: claims that were judged; with none: photos of which nothing is claimed; share true: true plus half of "
    "half true; below it, and below its distance to the first row, the interval of 95 % of samples of the photos"
)


def judge(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="MODEL... STORE",
            help="Folders of models, then the store to draw photos from. A sheet that exists needs neither; the store "
            "says where its photos are now.",
        ),
    ] = None,
    photos: Annotated[int | None, typer.Option(min=1, help=f"Photos to draw. Default: {PHOTOS}.")] = None,
    seed: Annotated[
        int | None, typer.Option(help=f"Of photos, random claims and their order. Default: {SEED}.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Split to draw from. Default: test, else val, else everything.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help=f"The sheet: claims, and the verdicts on them (.json). Default: {SHEET}. One that exists goes on."
        ),
    ] = None,
    name: Annotated[
        str, typer.Option("--judge", help="Who judges. Several judges share a sheet, blind to each other's verdicts.")
    ] = "",
    page: Annotated[
        Path | None, typer.Option(help="Write the claims as one page (.html) to judge in a browser, and ask nothing.")
    ] = None,
    read: Annotated[Path | None, typer.Option(help="Add the verdicts that such a page saved, and ask nothing.")] = None,
    scored: Annotated[
        Path | None, typer.Option("--score", help="Only score this sheet; with --judge, by that judge alone.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Judge blind whether the concepts that explanations name are true of the photo, and score the models.

    Of each drawn photo, every model claims the concepts of its explanation's five largest terms that are shown (maybe
    fewer, or none); five concepts of the first model's list, named at random, are the control. All of them are shuffled
    together. Look at the photo and press t, h or f for each: true, half true or false of this photo. b goes back, q
    stops; every verdict is on disk at once, and the same command goes on. Who made which claim is at the end of the
    sheet: judge before you look. 24 photos and two models make about 300 claims.

    The score of a model is the share of its claims that are true (half counts half), with a bootstrap interval over
    photos, and the paired difference to the first; with several judges, also their agreement. An unfinished sheet is
    scored on what is judged. --json asks nothing and prints the scores.

    Examples: `ccr judge with-model without-model photos-store --judge anna`, `ccr judge --page judge.html`,
    `ccr judge --read verdicts.json`, `ccr judge --score claims.json`
    """
    from ccr.review.judgement import Sheet, score

    if scored is not None:
        if paths or page or read or out:
            raise typer.BadParameter("--score FILE only scores that sheet: drop the other arguments")
        _print_scores(score(Sheet.read(scored), name or None), as_json=as_json)
        return
    if page is not None and page.suffix.lower() != ".html":
        raise CCRError(f"--page must end in .html, got {page.name!r}")
    if page is not None and read is not None:
        raise typer.BadParameter("--page writes a page and --read reads what it saved: give one of them")
    name = name.strip()
    place = SHEET if out is None else out
    if is_url(place):
        raise CCRError(f"a sheet is a plain file, written after every verdict, got the URL {place}: name a path")
    check_writable(place)
    keeps("judge", place)
    store = None if not paths else paths[-1]
    sheet = _sheet(place, paths or [], photos, seed, split)
    if read is not None:
        _read(read, place, sheet, name, as_json=as_json)
    elif page is not None:
        from ccr.show.pages import judge_page

        check_writable(page)
        write_text(page, judge_page(sheet, _rows(sheet, store), judge=name))
        if as_json:
            print_json({"sheet": str(place), "page": str(page), "claims": sheet.size})
        else:
            console.print(f"{_size(sheet)} are in {escape(str(page))}: open it in a browser, judge, save; then")
            console.print(f"`ccr judge --read SAVED --out {escape(str(place))}`", soft_wrap=True)
    elif as_json:
        print_json(_progress(sheet, place))
    else:
        _ask(place, sheet, _rows(sheet, store), name)


def _sheet(place: Path, paths: list[Path], photos: int | None, seed: int | None, split: str | None) -> Sheet:
    """The sheet that is there, checked to be the one that was asked for, or else a new one, written."""
    from ccr.data.store import EmbeddingStore
    from ccr.model import ConceptModel
    from ccr.review.judgement import RANDOM, Sheet

    names = _names(paths[:-1])
    if place.exists():
        sheet = Sheet.read(place)
        made = [origin for origin in sheet.origins if origin != RANDOM]
        facts = {"photos": len(sheet.photos), **sheet.facts}
        asked = {"models": list(names) or None, "photos": photos, "seed": seed, "split": split}
        for what, wanted in asked.items():
            there = made if what == "models" else facts.get(what)
            if wanted is not None and there is not None and wanted != there:
                raise CCRError(
                    f"{place} was drawn with {what} {_words(there)}, not {_words(wanted)}: leave that out to go on "
                    "with it, or give another --out to draw anew"
                )
        return sheet
    if not names:
        raise typer.BadParameter(
            f"there is no sheet {place} yet: give models and a store to draw one, such as `ccr judge photos-model "
            "photos-store`, or name the sheet with --out"
        )
    chosen, rows = split_of(EmbeddingStore.open(paths[-1]), split, labelled=False)
    if chosen in ("all", "train"):
        note(f"note: photos are drawn from {chosen}, and models may have been fitted on them")
    models = {name: ConceptModel.load(path) for name, path in names.items()}
    for model in models.values():
        rows.check_encoder(model.provenance.encoder_fingerprint)
    facts = {"store": _absolute(paths[-1]), "split": chosen, "seed": SEED if seed is None else seed}
    sheet = Sheet.draw(models, rows, photos=PHOTOS if photos is None else photos, seed=facts["seed"], facts=facts)
    sheet.write(place)
    note(f"{_size(sheet)} are written to {place}")
    return sheet


def _absolute(store: Path) -> str:
    return str(store if is_url(store) else store.absolute())


def _names(folders: list[Path]) -> dict[str, Path]:
    """The models by the names of their folders, or by their paths where names are not different."""
    short = {folder.name: folder for folder in folders}
    names = short if len(short) == len(folders) else {str(folder): folder for folder in folders}
    if len(names) < len(folders):
        raise CCRError(f"every model is given once, got {', '.join(map(str, folders))}: drop one")
    return names


def _words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _rows(sheet: Sheet, store: Path | None) -> EmbeddingStore:
    """The split that the photos are of, checked to have them where the sheet says."""
    from ccr.data.store import EmbeddingStore

    place = store or sheet.facts.get("store")
    if place is None:
        raise typer.BadParameter("the sheet does not say where its photos are: give their store, too")
    split = sheet.facts.get("split", "test")
    rows = EmbeddingStore.open(str(place))
    rows = rows if split == "all" else rows.select(str(split))
    for photo in sheet.photos:
        here = str(rows.paths[photo.row]) if 0 <= photo.row < len(rows) else "nothing"
        if photo.path not in (None, here):
            raise CCRError(
                f"row {photo.row} of {place} must be the photo {photo.path} of the sheet, and is {here}: the store was "
                "made anew; give the one that the sheet was drawn from, or draw another sheet"
            )
    return rows


def _size(sheet: Sheet) -> str:
    return f"{sheet.size} claims about {len(sheet.photos)} photos"


def _ask(place: Path, sheet: Sheet, rows: EmbeddingStore, name: str) -> None:
    """Ask for the verdicts that this judge has not given; each is on disk before the next question."""
    from ccr.review.judgement import record, score

    every = [(at, claim) for at, photo in enumerate(sheet.photos) for claim in photo.claims]
    left = sheet.open_claims(name)
    console.print(f"{len(left)} of {_size(sheet)} are left. Is the claim true of this photo?")
    here = every.index(left[0]) if left else len(every)
    drawn: int | None = None
    while here < len(every):
        at, claim = every[here]
        if at != drawn:
            _show(sheet, rows, at)
            drawn = at
        said = sheet.of(name)[at].get(claim)
        before = "" if said is None else f" (so far: {said})"
        console.print(f"{here + 1}/{len(every)} [bold]{escape(visible(claim))}[/bold]{before}")
        try:
            key = read_key(QUESTION, KEYS)
        except CCRError as error:
            about = f"the claim '{claim}' about {sheet.photos[at].name}"
            raise CCRError(f"{about}: {error}; the verdicts before it are kept in {place}") from None
        if key == STOP:
            break
        if key == "b":
            here = max(0, here - 1)
            continue
        sheet = record(place, name, {(at, claim): KEYS[key]})
        left = sheet.open_claims(name)
        later = [pair for pair in left if every.index(pair) > here]
        here = every.index((later or left)[0]) if left else len(every)
    console.print()
    if left:
        console.print(
            f"{len(left)} of {len(every)} claims are left; verdicts are in {escape(str(place))}, and the same"
        )
        console.print("command goes on. `--score` scores what is judged so far.")
        return
    _print_scores(score(sheet), as_json=False)


def _show(sheet: Sheet, rows: EmbeddingStore, at: int) -> None:
    """Draw a photo where the terminal can, and say where it is."""
    photo = sheet.photos[at]
    image = rows.image(photo.row)
    columns = columns_for(image)
    console.print()
    if columns:
        typer.echo(draw_photo(image, columns), color=True)
    folder = (rows.description.get("source") or {}).get("path")
    whole = Path(folder) / photo.name if folder and photo.path else photo.name
    console.print(f"Photo {at + 1} of {len(sheet.photos)}: {escape(str(whole))}", soft_wrap=True)


def _read(saved: Path, place: Path, sheet: Sheet, name: str, *, as_json: bool) -> None:
    """Add the verdicts of a page to the sheet."""
    from ccr.review.judgement import judge_name, read_answers, record

    named, given = read_answers(saved, sheet)
    who = name or named
    sheet = record(place, who, given)
    if as_json:
        print_json(_progress(sheet, place))
        return
    left = len(sheet.open_claims(who))
    console.print(
        f"{len(given)} verdicts of {escape(judge_name(who))} are in {escape(str(place))}; {left} of {sheet.size} "
        "claims are left. `--score` scores what is judged.",
    )


def _progress(sheet: Sheet, place: Path) -> dict[str, object]:
    """The scores of a sheet, or only its size where nothing is judged."""
    from ccr.review.judgement import score

    judged = any(any(verdicts) for verdicts in sheet.verdicts.values())
    found = score(sheet).to_dict() if judged else {"photos": len(sheet.photos), "claims": sheet.size, "judges": []}
    return {"sheet": str(place), **found}


def _print_scores(scores: Scores, *, as_json: bool) -> None:
    from ccr.review.judgement import judge_name

    if as_json:
        print_json(scores.to_dict())
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("claims of", overflow="fold", min_width=12)
    for heading in ("\nnumber", "\na photo", "photos\nwith none", "true / half\n/ false, %"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("share true,\n%", "minus the\nfirst row"):
        table.add_column(heading, justify="right", no_wrap=True)
    for origin in scores.origins:
        table.add_row(escape(visible(origin.name)), *_cells(origin))
    console.print(table)
    note(LEGEND)
    for judge, left in scores.left.items():
        said = f"{scores.claims - left} of {scores.claims} claims about {scores.photos} photos are judged"
        console.print(f"{escape(judge_name(judge))}: {said}{f', {left} are left' if left else ''}")
    for one in scores.agreements:
        pair = " and ".join(escape(judge_name(judge)) for judge in one.judges)
        console.print(f"{pair}: {_agreement(one)}")


def _agreement(one: Agreement) -> str:
    if one.equal is None:
        return "no claim was judged by both"
    kappa = "not defined, all verdicts are the same" if one.kappa is None else f"{one.kappa:.2f}"
    return f"{share_text(one.equal)} of their verdicts on {one.claims} claims are equal, Cohen's kappa {kappa}"


def _cells(origin: OriginScore) -> list[str]:
    made = [str(origin.judged), f"{origin.per_photo:.1f}", str(origin.silent)]
    if origin.share is None or origin.interval is None:
        return [*made, "", "", ""]
    three = " / ".join(f"{100 * (share or 0.0):.0f}" for share in (origin.true, origin.half, origin.false))
    share, less = f"{100 * origin.share:.0f}\n{_span(origin.interval)}", ""
    if origin.difference is not None and origin.difference_interval is not None:
        less = f"{100 * origin.difference:+.0f}\n{_span(origin.difference_interval, sign='+')}"
    return [*made, three, share, less]


def _span(interval: Interval, sign: str = "") -> str:
    return f"{100 * interval.low:{sign}.0f} to {100 * interval.high:{sign}.0f}"
