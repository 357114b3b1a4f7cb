"""`ccr knowledge ask-photos`: answers about single photos, from a person, a page or a vision-language model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from ccr.cli.common import Json, bar, console, errors, note, print_json
from ccr.cli.knowledge_terminal import MOST_FAILURES, Ladder, Session, ask_person, login_name
from ccr.errors import CCRError
from ccr.io.files import check_writable, write_text
from ccr.io.remote import as_place
from ccr.utils import processes as interrupt
from ccr.utils.texts import check_name, counted, did_you_mean, visible

if TYPE_CHECKING:
    from PIL import Image

    from ccr.data.store import EmbeddingStore
    from ccr.knowledge import Answer, Knowledge
    from ccr.model import ConceptModel
    from ccr.vocab.llm import Endpoint, LLMQuestion

#: The longer side in pixels of a photo that a model is shown, and of one on a page.
MODEL_PIXELS, PAGE_PIXELS = 448, 320
PROMPT = (
    "Look at the photo alone. For each of these concepts, say whether the photo plainly shows it: yes; whether it does "
    "not: no; or that it cannot be told from the photo: unknown.\n{concepts}\n"
    'Answer with one JSON object that has exactly these concepts as keys and "yes", "no" or "unknown" as values, and '
    "nothing else."
)


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
    vlm_rate: Annotated[float | None, typer.Option(min=0.01, help="Most requests per minute.")] = None,
    vlm_price: Annotated[
        str | None, typer.Option(help="Prices per million tokens, in and out, such as 0.15,0.60, for --dry-run.")
    ] = None,
    strike: Annotated[
        bool,
        typer.Option("--strike", help="At the end, forbid all classes the concepts that the encoder does not see."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what asking would cost, without asking.")] = False,
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

    endpoint = _checked(page, read, by, vlm_url, vlm_model, vlm_rate, vlm_price, dry_run=dry_run)
    if strike and (page is not None or dry_run):
        raise typer.BadParameter("--strike is for answers that are there: leave it out with --page and --dry-run")
    _check_files(knowledge, page, read)
    opened, loaded = EmbeddingStore.open(store), ConceptModel.load(model)
    known = Knowledge.read(knowledge) if as_place(knowledge).exists() else Knowledge.of([])
    with bar(silent=as_json) as tell:
        tell(0, 0, "scoring the photos")
        session = Session.begin(loaded, opened, known, knowledge, answers)
    if session.unnamed:
        note(f"note: {counted(session.unnamed, 'photo')} left out, whose paths no table can hold", silent=as_json)
    if page is not None:
        _write_page(session, page, by or "", silent=as_json, as_json=as_json)
        return
    if dry_run and endpoint is not None:
        _show_cost(session, endpoint, vlm_price, as_json=as_json)
        return
    interrupt.keep(f"answers so far are in {visible(str(knowledge))}; the same command goes on from there")
    failed: dict[str, str] = {}
    if read is not None:
        session.add(_checked_answers(read, session, opened, loaded))
    elif endpoint is not None:
        failed = _ask_model(session, endpoint, silent=as_json)
    else:
        ask_person(session, login_name() if by is None else by, errors if as_json else console)
    unseen = session.contradicted()
    struck = session.strike((by or login_name()) if endpoint is None else endpoint.model) if strike else []
    _show_result(session, failed, unseen, struck, as_json=as_json)


def _checked(
    page: Path | None,
    read: Path | None,
    by: str | None,
    url: str | None,
    name: str | None,
    rate: float | None,
    price: str | None,
    *,
    dry_run: bool,
) -> Endpoint | None:
    """Where a model answers, if one does; misuse where options do not go together."""
    from ccr.vocab.llm import Endpoint

    given = [option for option, value in (("--page", page), ("--read", read), ("--vlm-url", url)) if value is not None]
    if len(given) > 1:
        raise typer.BadParameter(f"one of --page, --read and --vlm-url at a time, got {' and '.join(given)}")
    if by is not None and given and given != ["--page"]:
        raise typer.BadParameter(f"--by is for answers in the terminal or on a page: leave it out with {given[0]}")
    if url is None:
        for option, value in (("--vlm-model", name), ("--vlm-rate", rate), ("--vlm-price", price)):
            if value is not None:
                raise typer.BadParameter(f"{option} is for a vision-language model: give --vlm-url, too")
        if dry_run:
            raise typer.BadParameter("--dry-run says what a vision-language model would cost: give --vlm-url, too")
        return None
    if name is None:
        raise typer.BadParameter("--vlm-url needs the model's name there: give --vlm-model")
    return Endpoint(url, name, per_minute=rate)


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


def _ask_model(session: Session, endpoint: Endpoint, *, silent: bool) -> dict[str, str]:
    """Ask a model all that is open; why it failed, by photo."""
    from ccr.encoders.assets import cache_folder
    from ccr.vocab.llm import answered

    failed: dict[str, str] = {}
    with bar(silent=silent) as tell:
        total, words = session.left, f"asking {endpoint.model}"
        tell(0, total, words)
        asked = _requests(session)
        for question, verdicts in answered(asked, endpoint, cache_folder() / "llm", failed):
            session.answer(session.rows[question.name], verdicts, "llm", endpoint.model)
            tell(session.new, total, words)
    return failed


def _requests(session: Session) -> Iterator[LLMQuestion]:
    """One request per photo and round; a concept whose request failed is left for another run."""
    given_up: set[str] = set()
    failures = 0
    while round_ := _round(session, given_up):
        for row, names in round_.items():
            concepts = [name for name in names if name not in given_up]
            picture = session.picture(row) if concepts else None
            if picture is None:
                continue
            yield _question(session.paths[row], concepts, picture)
            done = all(row in ladder.asked for ladder in session.ladders if ladder.concept in concepts)
            failures = 0 if done else failures + 1
            given_up |= set() if done else set(concepts)
            if failures >= MOST_FAILURES:
                return


def _round(session: Session, given_up: set[str]) -> dict[int, list[str]]:
    """The concepts to ask about now, by the row of the photo."""
    asked: dict[int, list[str]] = {}
    for ladder in session.ladders:
        for row in [] if ladder.concept in given_up else session.next(ladder):
            asked.setdefault(row, []).append(ladder.concept)
    return asked


def _question(path: str, concepts: list[str], picture: Image.Image) -> LLMQuestion:
    import json

    from ccr.show.page import jpeg_address
    from ccr.vocab.llm import LLMQuestion, answer_tokens, parse_verdicts

    prompt = PROMPT.format(concepts=json.dumps(concepts, ensure_ascii=False))
    shown = (jpeg_address(picture, MODEL_PIXELS),)
    return LLMQuestion(path, prompt, partial(parse_verdicts, concepts), shown, answer_tokens(concepts))


def _show_cost(session: Session, endpoint: Endpoint, prices: str | None, *, as_json: bool) -> None:
    """Print an upper bound of the cost: the first round exactly, and one request for each later answer, because which
    photo it needs depends on earlier answers."""
    from ccr.cli.common_photo import show_estimate
    from ccr.encoders.assets import cache_folder
    from ccr.vocab.llm import ANSWER_TOKENS, PICTURE_TOKENS, TOKEN_CHARACTERS, estimated

    first = _round(session, set())
    pictures = ((row, session.picture(row)) for row in first)
    questions = [_question(session.paths[row], first[row], picture) for row, picture in pictures if picture is not None]
    cost = estimated(questions, endpoint, cache_folder() / "llm")
    later = session.left - sum(map(len, first.values()))
    longest = max((len(ladder.concept) for ladder in session.ladders), default=0)
    tokens = (len(PROMPT) + longest) // TOKEN_CHARACTERS + 1 + PICTURE_TOKENS
    cost = cost._replace(
        requests=cost.requests + later,
        prompt_tokens=cost.prompt_tokens + later * tokens,
        answer_tokens=cost.answer_tokens + later * ANSWER_TOKENS,
    )
    show_estimate(cost, endpoint.url, prices, option="--vlm-price", as_json=as_json)


def _write_page(session: Session, out: Path, by: str, *, silent: bool, as_json: bool) -> None:
    from ccr.show.page import jpeg_address
    from ccr.show.questions_page import PhotoQuestion, questions_page

    check_name(by, "--by")
    addresses: dict[int, str] = {}
    asked: list[tuple[Ladder, int]] = []
    with bar(silent=silent) as tell:
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


def _checked_answers(file: Path, session: Session, store: EmbeddingStore, model: ConceptModel) -> Knowledge:
    """The answers of a page; an error where they are not about this store's photos and this model's concepts."""
    from ccr.knowledge import Knowledge

    told = Knowledge.read(file)
    splits = dict(zip(map(str, store.paths), store.splits, strict=True))
    for answer in told:
        problem = _problem(answer, splits, model)
        if problem:
            raise CCRError(f"{file} must hold answers about photos of {store.path} that {problem}")
    return told


def _problem(answer: Answer, splits: Mapping[str, Any], model: ConceptModel) -> str:
    """Validate one answer read from a questions page: the rule it breaks and the remedy, or an empty string."""
    if not answer.photo:
        return f"name the photo, got none for {answer.concept!r}: merge tables of classes by `ccr knowledge merge`"
    if answer.photo not in splits:
        close = did_you_mean(answer.photo, splits)
        return f"the store has, got {answer.photo!r}{close}: give the store that the page was made for"
    if splits[answer.photo] == "test":
        return f"are not of the test split, got {answer.photo!r}: delete its lines"
    if answer.concept not in model.names and answer.concept not in model.provenance.left_out:
        close = did_you_mean(answer.concept, model.names)
        return (
            f"are about the model's concepts, got {answer.concept!r}{close}: give the model that the page was made for"
        )
    return ""


def _show_result(
    session: Session, failed: dict[str, str], unseen: list[str], struck: list[str], *, as_json: bool
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
        highlight=False,
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
            highlight=False,
        )
