"""`ccr knowledge ask-photos`: answers about single photos, from a person, a page or a vision-language model."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.markup import escape

from ccr.cli.common import Json, bar, console, errors, note, print_json
from ccr.cli.common_data import kept_answers
from ccr.cli.common_photo import STOP, columns_for, draw_photo, login_name, read_key, show_estimate
from ccr.errors import CCRError
from ccr.io.files import check_writable, write_text
from ccr.io.remote import as_place
from ccr.utils import processes as interrupt
from ccr.utils.texts import check_name, counted, did_you_mean, timestamp, visible

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

    from ccr.data.store import EmbeddingStore
    from ccr.knowledge import Answer, Knowledge, Verdict
    from ccr.model import ConceptModel
    from ccr.vocab.llm import Endpoint, LLMQuestion

#: The longer side in pixels of a photo that a model is shown, and of one on a page.
MODEL_PIXELS, PAGE_PIXELS = 448, 320
#: Seconds by which the clock of whoever answers a page may be ahead.
AHEAD = 86_400.0
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
    """The endpoint of the model that answers, if one does; misuse where options do not go together."""
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
    from ccr.vocab.llm import answered

    failed: dict[str, str] = {}
    with bar(silent=silent) as tell:
        total, words = session.left, f"asking {endpoint.model}"
        tell(0, total, words)
        asked = _requests(session)
        for question, verdicts in answered(asked, endpoint, kept_answers(), failed):
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

    from ccr.explain.terms import jpeg_address
    from ccr.vocab.llm import LLMQuestion, answer_tokens, parse_verdicts

    prompt = PROMPT.format(concepts=json.dumps(concepts, ensure_ascii=False))
    shown = (jpeg_address(picture, MODEL_PIXELS),)
    return LLMQuestion(path, prompt, partial(parse_verdicts, concepts), shown, answer_tokens(concepts))


def _show_cost(session: Session, endpoint: Endpoint, prices: str | None, *, as_json: bool) -> None:
    """Print an upper bound of the cost: the first round exactly, and one request for each later answer, because which
    photo it needs depends on earlier answers."""
    from ccr.vocab.llm import ANSWER_TOKENS, PICTURE_TOKENS, TOKEN_CHARACTERS, estimated

    first = _round(session, set())
    pictures = ((row, session.picture(row)) for row in first)
    questions = [_question(session.paths[row], first[row], picture) for row, picture in pictures if picture is not None]
    cost = estimated(questions, endpoint, kept_answers())
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
    from ccr.explain.terms import jpeg_address
    from ccr.show.pages import PhotoQuestion, questions_page

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
    from ccr.knowledge.table import time_of

    told, latest = Knowledge.read(file), time.time() + AHEAD
    splits = dict(zip(map(str, store.paths), store.splits, strict=True))
    for answer in told:
        problem = _problem(answer, splits, model)
        if problem:
            raise CCRError(f"{file} must hold answers about photos of {store.path} that {problem}")
        if time_of(answer.at) > latest:
            raise CCRError(
                f"{file} must hold answers that were given already, got the time {answer.at} for {answer.photo!r}: it "
                "would count over every later answer; correct the column at"
            )
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


# The questions of `ccr knowledge ask-photos` and their answers so far.
#: Photos among which questions are chosen, at most, evenly over the store.
MOST_PHOTOS = 16_384
#: After so many failures in a row, photos that cannot be read or requests, nothing more is tried.
MOST_FAILURES = 5


class Ladder(NamedTuple):
    """The photos (m,) of a concept: their scores, whether the model claims it for them, the class that it predicts, and
    answers by row."""

    concept: str
    scores: np.ndarray
    claimed: np.ndarray
    classes: np.ndarray
    asked: dict[int, int | None]

    @property
    def unasked(self) -> int:
        """Classes with a claim about whose photos nobody was asked."""
        from ccr.review.questions import unasked_classes

        return len(unasked_classes(self.claimed, self.classes, self.asked))


class Session:
    """The questions about a store's photos, and the answers so far, each kept in the table of knowledge at once."""

    def __init__(
        self,
        photos: EmbeddingStore,
        ladders: list[Ladder],
        known: Knowledge,
        file: Path,
        answers: int,
        unnamed: int,
        classes: list[str],
    ) -> None:
        self.photos, self.ladders, self.known, self.file, self.answers = photos, ladders, known, file, answers
        self.classes = classes
        self.paths = [str(path) for path in photos.paths]
        self.rows = {path: row for row, path in enumerate(self.paths)}
        self.unnamed, self.new, self._unread = unnamed, 0, 0
        self._by_name = {ladder.concept: ladder for ladder in ladders}
        self._remember(known)
        self.ladders.sort(key=lambda ladder: not (self.given(ladder) and ladder.unasked))

    @classmethod
    def begin(cls, model: ConceptModel, store: EmbeddingStore, known: Knowledge, file: Path, answers: int) -> Session:
        """The questions that are open: first those about answered concepts that a fit gave to further classes, then
        those about the concepts that are claimed most often."""
        rows, unnamed = _askable(store, known)
        photos = store.select(rows=rows)
        ladders = _ladders(model, photos)
        if not ladders:
            raise CCRError("a model without a positive weight claims nothing, so that there is nothing to ask about")
        open_ones = [ladder for ladder in ladders if ladder.concept not in known.unseen]
        return cls(photos, open_ones, known, file, answers, unnamed, [str(label) for label in model.classes.tolist()])

    def next(self, ladder: Ladder) -> list[int]:
        """Rows of the photos to ask about now for a concept."""
        from ccr.review.questions import next_photos

        return next_photos(ladder.scores, ladder.claimed, ladder.asked, answers=self.answers, classes=ladder.classes)

    def spread(self, ladder: Ladder) -> list[int]:
        """Rows of the photos to ask about for a concept, all at once."""
        from ccr.review.questions import spread_photos

        return spread_photos(ladder.scores, ladder.claimed, ladder.asked, answers=self.answers, classes=ladder.classes)

    def given(self, ladder: Ladder) -> int:
        """Answers that a concept has."""
        return sum(value is not None for value in ladder.asked.values())

    @property
    def left(self) -> int:
        """Answers that are missing, at most."""
        return sum(max(0, self.answers - self.given(ladder)) for ladder in self.ladders if self.next(ladder))

    def label(self, row: int) -> str:
        """The photo's class; empty where it has none, or one that no table can hold."""
        label = self.photos.labels[row]
        return "" if label is None or not _plain(str(label)) else str(label)

    def picture(self, row: int) -> Image.Image | None:
        """The photo; None if it cannot be read, which is noted, and it is not asked about again."""
        try:
            picture = self.photos.image(row)
        except CCRError as error:
            self._unread += 1
            if self._unread >= MOST_FAILURES:
                raise
            note(f"note: left out: {error}")
            for ladder in self.ladders:
                ladder.asked.setdefault(row, None)
            return None
        self._unread = 0
        return picture

    def answer(self, row: int, verdicts: Mapping[str, Verdict], source: str, by: str) -> None:
        """Note what a photo shows, by concept, and write the table."""
        from ccr.knowledge import Answer, Knowledge

        label, photo = self.label(row), self.paths[row]
        told = [Answer(label, concept, said, source, by, timestamp(), photo) for concept, said in verdicts.items()]
        self.add(Knowledge.of(told))

    def add(self, told: Knowledge) -> None:
        """Take answers into the table and write it."""
        from ccr.knowledge import Knowledge

        before, self.known = len(self.known), Knowledge.merge(self.known, told)
        self.new += len(self.known) - before
        self.known.write(self.file)
        self._remember(told)

    def contradicted(self) -> list[str]:
        """Concepts that the encoder does not see, as their answers say."""
        import numpy as np

        from ccr.review.questions import contradicts

        found = []
        for ladder in self.ladders:
            said = {row: value for row, value in ladder.asked.items() if value is not None}
            if contradicts(ladder.scores[list(said)], np.array(list(said.values()), np.int8)):
                found.append(ladder.concept)
        return found

    def strike(self, by: str) -> list[str]:
        """Write "no" for every class about the concepts that the encoder does not see, and return their names: the next
        fit leaves them out. Nothing is asked about them again."""
        struck = self.contradicted()
        if struck:
            self.known = self.known.with_unseen(struck, self.classes, by=by, at=timestamp())
            self.known.write(self.file)
        return struck

    def _remember(self, told: Knowledge) -> None:
        values = {"yes": 1, "no": -1, "unknown": 0}
        for answer in told:
            if answer.photo in self.rows and answer.concept in self._by_name:
                kept = self.known.find(None, answer.concept, photo=answer.photo) or answer  # a person's counts
                self._by_name[answer.concept].asked[self.rows[answer.photo]] = values[kept.answer]


def _askable(store: EmbeddingStore, known: Knowledge) -> tuple[np.ndarray, int]:
    """Rows of a store that may be asked about: none of the test split, each path once, at most `MOST_PHOTOS` and those
    with an answer. And how many were left out for a path that no table can hold."""
    import numpy as np

    free = np.flatnonzero(store.splits != "test")
    if not len(free):
        raise CCRError(
            f"answers are never about test photos, and all {len(store)} photos of {store.path} are of the test split: "
            "give a store with others"
        )
    paths = [str(path) for path in store.paths[free]]
    first = dict(reversed(list(zip(paths, free.tolist(), strict=True))))
    named = np.array(sorted(row for path, row in first.items() if _plain(path)), np.int64)
    unnamed = len(first) - len(named)
    if len(named) > MOST_PHOTOS:
        answered = [first[photo] for photo in known.photos if photo in first]
        spread = named[np.linspace(0, len(named) - 1, MOST_PHOTOS).round().astype(np.int64)]
        named = np.union1d(spread, np.array(answered, np.int64))
    return named, unnamed


def _plain(text: str) -> bool:
    """Is a text the same after a table of knowledge held it?"""
    try:
        check_name(text, "a name")
    except CCRError:
        return False
    return bool(text) and text == text.strip()


def _ladders(model: ConceptModel, photos: EmbeddingStore) -> list[Ladder]:
    """The concepts with a positive weight for some class, that with the most claims first."""
    import numpy as np
    import torch

    codes = model.encode(photos)
    winner = model.head.logits(codes).argmax(axis=1)
    used = np.flatnonzero((model.head.coef > 0).any(axis=0))
    dictionary = torch.from_numpy(np.ascontiguousarray(model.concepts.embeddings[used], np.float32))
    scores = np.concatenate([(part @ dictionary.T).numpy() for part in model.images(photos).chunks(len(used))])
    columns, ladders = codes.tocsc(), []
    for number, concept in enumerate(used.tolist()):
        column = columns[:, [concept]].tocoo()
        claimed = np.zeros(len(photos), bool)
        claimed[column.row] = (column.data > 0) & (model.head.coef[winner[column.row], concept] > 0)
        ladders.append(Ladder(model.names[concept], np.ascontiguousarray(scores[:, number]), claimed, winner, {}))
    return sorted(ladders, key=lambda ladder: -int(ladder.claimed.sum()))


#: Lines below a photo.
LINES_BELOW = 6
KEYS = {"y": "yes", "n": "no", "u": "unclear", "b": "back", "s": "skip this concept", STOP: "stop"}
VERDICTS: dict[str, Verdict] = {"y": "yes", "n": "no", "u": "unknown"}
HELP = "  ".join(f"{key} {meaning}" for key, meaning in KEYS.items())


def ask_person(session: Session, by: str, out: Console) -> None:
    """Ask one question after the other until all are answered or the person stops."""
    check_name(by, "--by")
    skipped: set[str] = set()
    before: list[tuple[Ladder, int]] = []
    again: tuple[Ladder, int] | None = None
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


def _open_question(session: Session, skipped: set[str]) -> tuple[Ladder, int] | None:
    for ladder in session.ladders:
        if ladder.concept not in skipped and (rows := session.next(ladder)):
            return ladder, rows[0]
    return None


def _show_question(session: Session, ladder: Ladder, row: int, picture: Image.Image, out: Console) -> None:
    columns = columns_for(picture, below=LINES_BELOW)
    if columns:
        out.file.write(draw_photo(picture, columns) + "\n")
    place, label = str(session.photos.description.get("source", {}).get("path", "")), session.label(row)
    path = Path(place, session.paths[row])
    shown = str(path) if path.is_file() else session.paths[row]
    number = session.ladders.index(ladder) + 1
    out.print(
        f"{escape(visible(shown))}{f' ({escape(label)})' if label else ''}; concept {number} of "
        f"{len(session.ladders)}, answer {session.given(ladder) + 1} of at most {session.answers}",
        style="dim",
    )
    out.print(f"Does this photo show [bold]{escape(visible(ladder.concept))}[/bold]?\n[dim]{HELP}[/dim]")
