"""`ccr knowledge ask-photos`: answers about single photos, from a person, a page or a vision-language model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from ccr.cli.common import Json, bar, console, errors, note, print_json
from ccr.cli.common_data import DryRun, kept_answers
from ccr.cli.common_photo import STOP, columns_for, draw_photo, login_name, read_key, show_estimate
from ccr.errors import CCRError
from ccr.io.files import check_writable, write_text
from ccr.io.remote import as_place
from ccr.utils import processes as interrupt
from ccr.utils.texts import check_name, counted, visible

if TYPE_CHECKING:
    from PIL import Image

    from ccr.knowledge import Verdict
    from ccr.review.asking import PhotoLadder, PhotoSession
    from ccr.vocab.llm import Endpoint

#: The longer side in pixels of a photo on a page.
PAGE_PIXELS = 320


def ask_photos(
    model: Annotated[Path, typer.Argument(help="Folder of a model, whose claims are asked about.")],
    store: Annotated[Path, typer.Argument(help="Store made by `ccr embed`; its test photos are left out.")],
    knowledge: Annotated[Path, typer.Option(help="Table of answers, CSV or Parquet; new ones are added to it.")],
    answers: Annotated[int, typer.Option(min=1, max=100, help="Answers per concept, those in the table included.")] = 7,
    by: Annotated[str | None, typer.Option(help="Who answers. Default: your login name.")] = None,
    page: Annotated[
        Path | None, typer.Option(help="Write the questions as one HTML page, to be answered offline.")
    ] = None,
    read: Annotated[Path | None, typer.Option(help="Add the answers that such a page gave: answers.csv.")] = None,
    vlm_url: Annotated[
        str | None, typer.Option(help="Ask a vision-language model there, such as http://localhost:11434/v1.")
    ] = None,
    vlm_model: Annotated[str | None, typer.Option(help="The model's name there.")] = None,
    strike: Annotated[
        bool,
        typer.Option("--strike", help="At the end, forbid all classes the concepts that the encoder does not see."),
    ] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Ask about single photos: "Does this photo show dark red skin?", for every concept that the model claims.

    True of the class is not yet true of the photo. Of each concept, the first questions go round the classes for which
    the model claims it; the next ones bisect the score below which it stops being shown, with --answers answers in all.
    Answers that do not follow the score mark a concept that the encoder does not see: it is named at the end, and with
    --strike the table says so, for every class, so that the next fit leaves it out. A fit with the answers makes other
    claims: ask again after it, with more --answers.

    Without further options you answer in the terminal, where the photo is drawn: keys y yes, n no, u unclear, b back,
    s skip this concept, q stop. Every answer is written at once, and the same command goes on where it stopped.

    Example: `ccr knowledge ask-photos photos-model photos-store --knowledge knowledge.csv`

    Offline, or by somebody else: `--page questions.html`, then `--read answers.csv`. By a model that sees, its key in
    the environment as CCR_LLM_KEY or OPENAI_API_KEY: `--vlm-url http://localhost:11434/v1 --vlm-model llava`, with
    --dry-run first; answers are kept, so that nothing is paid twice.
    """
    from ccr.data.store import EmbeddingStore
    from ccr.knowledge import Knowledge
    from ccr.model import ConceptModel
    from ccr.review.asking import PhotoSession, ask_seeing_model, estimate_session, read_page_answers

    endpoint = _checked(page, read, by, vlm_url, vlm_model, dry_run=dry_run)
    if strike and (page is not None or dry_run):
        raise typer.BadParameter("--strike is for answers that are there: leave it out with --page and --dry-run")
    _check_files(knowledge, page, read)
    opened, loaded = EmbeddingStore.open(store), ConceptModel.load(model)
    known = Knowledge.read(knowledge) if as_place(knowledge).exists() else Knowledge.of([])
    with bar() as tell:
        tell(0, 0, "scoring the photos")
        session = PhotoSession.begin(loaded, opened, known, knowledge, answers, note)
    if session.unnamed:
        note(f"note: {counted(session.unnamed, 'photo')} left out, whose paths no table can hold")
    if page is not None:
        _write_page(session, page, by or "", as_json=as_json)
        return
    if dry_run and endpoint is not None:
        show_estimate(estimate_session(session, endpoint, kept_answers()), endpoint.url, as_json=as_json)
        return
    interrupt.keep(f"answers so far are in {visible(str(knowledge))}; the same command goes on from there")
    failed: dict[str, str] = {}
    if read is not None:
        session.add(read_page_answers(read, opened, loaded))
    elif endpoint is not None:
        with bar() as tell:
            failed = ask_seeing_model(session, endpoint, kept_answers(), tell)
    else:
        ask_person(session, login_name() if by is None else by, errors if as_json else console)
    unseen = session.contradicted()
    struck = session.strike((by or login_name()) if endpoint is None else endpoint.model) if strike else []
    _show_result(session, failed, unseen, struck, as_json=as_json)


def _checked(
    page: Path | None, read: Path | None, by: str | None, url: str | None, name: str | None, *, dry_run: bool
) -> Endpoint | None:
    """The endpoint of the model that answers, if one does; misuse where options do not go together."""
    from ccr.vocab.llm import Endpoint

    given = [option for option, value in (("--page", page), ("--read", read), ("--vlm-url", url)) if value is not None]
    if len(given) > 1:
        raise typer.BadParameter(f"one of --page, --read and --vlm-url at a time, got {' and '.join(given)}")
    if by is not None and given and given != ["--page"]:
        raise typer.BadParameter(f"--by is for answers in the terminal or on a page: leave it out with {given[0]}")
    if url is None:
        for option, given_too in (("--vlm-model", name is not None), ("--dry-run", dry_run)):
            if given_too:
                raise typer.BadParameter(f"{option} is about a vision-language model: give --vlm-url, too")
        return None
    if name is None:
        raise typer.BadParameter("--vlm-url needs the model's name there: give --vlm-model")
    return Endpoint(url, name)


def _check_files(knowledge: Path, page: Path | None, read: Path | None) -> None:
    for option, file in (("--knowledge", knowledge), ("--page", page)):
        if file is not None and as_place(file).is_dir():
            raise CCRError(f"{option} must be a file, but {file} is a folder: name a file in it")
        if file is not None:
            check_writable(file)
    if page is not None and page.suffix.lower() != ".html":
        raise CCRError(f"--page must end in .html, got {page.name!r}")
    if read is not None and knowledge.exists() and read.exists() and read.samefile(knowledge):
        raise CCRError(f"--read must be another file than --knowledge, got {read} twice: give the page's answers.csv")


def _write_page(session: PhotoSession, out: Path, by: str, as_json: bool) -> None:
    from ccr.explain.terms import jpeg_address
    from ccr.show.pages import PhotoQuestion, questions_page

    check_name(by, "--by")
    addresses: dict[int, str] = {}
    asked: list[tuple[PhotoLadder, int]] = []
    with bar() as tell:
        for number, ladder in enumerate(session.ladders):
            tell(number, len(session.ladders), "reading photos")
            rows = session.spread(ladder)
            while missing := [row for row in rows if row not in addresses]:
                for row in missing:
                    picture = session.picture(row)
                    if picture is not None:
                        addresses[row] = jpeg_address(picture, PAGE_PIXELS)
                rows = session.spread(ladder)  # others in place of photos that cannot be read
            asked += [(ladder, row) for row in rows]
    places = {row: place for place, row in enumerate(addresses)}
    questions = [PhotoQuestion(session.label(row), one.concept, session.paths[row], places[row]) for one, row in asked]
    write_text(out, questions_page("Questions about photos", questions, list(addresses.values()), by=by))
    if as_json:
        print_json({"page": str(out), "questions": len(questions), "photos": len(addresses)})
        return
    console.print(
        f"{counted(len(questions), 'question')} about {counted(len(addresses), 'photo')} in {escape(str(out))}: open "
        "it in a browser, answer, download answers.csv, and give that with --read"
    )


def _show_result(
    session: PhotoSession, failed: dict[str, str], unseen: list[str], struck: list[str], *, as_json: bool
) -> None:
    """Print what was answered, what is left, and which concepts the encoder does not see."""
    values = [value for ladder in session.ladders for value in ladder.asked.values() if value is not None]
    counts = {"yes": values.count(1), "no": values.count(-1), "unknown": values.count(0)}
    left = session.left
    if as_json:
        facts = {"concepts": len(session.ladders), "answers": len(values), "new": session.new, **counts, "left": left}
        print_json(
            {"knowledge": str(session.file), **facts, "contradicted": unseen, "struck": struck, "failed": failed}
        )
        return
    for photo, reason in list(failed.items())[:5]:
        note(f"note: the model failed for the photo {photo!r}: it {reason}; run the same command again")
    file = escape(visible(str(session.file)))
    console.print(
        f"{counted(len(values), 'answer')} about photos in {file} for {counted(len(session.ladders), 'concept')} in "
        f"use, {session.new} new: {counts['yes']} yes, {counts['no']} no, {counts['unknown']} unclear; "
        + (f"at most {left} are left to ask: run the same command again" if left else "nothing is left to ask"),
    )
    if unseen:
        names = ", ".join(map(visible, unseen))
        console.print(
            f"The encoder does not see {escape(names)}: at least two yes and two no, and the scores order them no "
            "better than chance. "
            + (
                f"The table now says so: the next fit leaves {'it' if len(struck) == 1 else 'them'} out."
                if struck
                else "Reword such concepts, or give --strike, with which the next fit leaves them out."
            ),
        )


#: Lines below a photo.
LINES_BELOW = 6
KEYS = {"y": "yes", "n": "no", "u": "unclear", "b": "back", "s": "skip this concept", STOP: "stop"}
VERDICTS: dict[str, Verdict] = {"y": "yes", "n": "no", "u": "unknown"}
HELP = "  ".join(f"{key} {meaning}" for key, meaning in KEYS.items())


def ask_person(session: PhotoSession, by: str, out: Console) -> None:
    """Ask one question after the other until all are answered or the person stops."""
    check_name(by, "--by")
    skipped: set[str] = set()
    before: list[tuple[PhotoLadder, int]] = []
    again: tuple[PhotoLadder, int] | None = None
    while (now := again or _open_question(session, skipped)) is not None:
        again = None
        ladder, row = now
        picture = session.picture(row)
        if picture is None:
            continue
        _show_question(session, ladder, row, picture, out)
        key = read_key("> ", KEYS, out.file)
        if key == STOP:
            return
        if key == "s":
            skipped.add(ladder.concept)
        elif key == "b":
            again = before.pop() if before else now
        else:
            session.answer(row, {ladder.concept: VERDICTS[key]}, "person", by)
            before.append(now)


def _open_question(session: PhotoSession, skipped: set[str]) -> tuple[PhotoLadder, int] | None:
    for ladder in session.ladders:
        if ladder.concept not in skipped and (rows := session.next(ladder)):
            return ladder, rows[0]
    return None


def _show_question(session: PhotoSession, ladder: PhotoLadder, row: int, picture: Image.Image, out: Console) -> None:
    columns = columns_for(picture, below=LINES_BELOW)
    if columns:
        out.file.write(draw_photo(picture, columns) + "\n")
    place, label = str(session.photos.description.get("source", {}).get("path", "")), session.label(row)
    path = Path(place, session.paths[row])
    shown = str(path) if path.is_file() else session.paths[row]
    number = session.ladders.index(ladder) + 1
    out.print(
        f"{escape(visible(shown))}{f' ({escape(label)})' if label else ''}; concept {number} of "
        f"{len(session.ladders)}, answer {ladder.given + 1} of at most {session.answers}",
        style="dim",
    )
    out.print(f"Does this photo show [bold]{escape(visible(ladder.concept))}[/bold]?\n[dim]{HELP}[/dim]")
