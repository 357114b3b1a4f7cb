"""`ccr review`: answer the claims of a model until every one is confirmed, and sign it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.markup import escape

from ccr.cli.common import Json, console, fitting, note, print_json
from ccr.cli.common_data import training_rows
from ccr.cli.common_photo import columns_for, draw_photo, login_name, read_key
from ccr.errors import CCRError
from ccr.io.files import check_writable, write_text
from ccr.utils import processes as interrupt
from ccr.utils.texts import counted, csv_text, share_text, visible

if TYPE_CHECKING:
    from PIL import Image

    from ccr.data.store import EmbeddingStore
    from ccr.knowledge import Knowledge
    from ccr.model import ConceptModel
    from ccr.review import Decisions, Review, ReviewEvidence, ReviewQuestion, ReviewRound
    from ccr.review.questions import ClaimPhotos

# The questions of `ccr review`: asked in the terminal with photos drawn, or answered by a table.
#: Keys that say no, each with its reason.
NO = {
    "n": "",
    "1": "background",
    "2": "wrong of this class",
    "3": "true of all classes",
    "4": "not to be seen",
}
KEYS = {
    "y": "yes",
    "n": "no",
    **{key: f"no: {reason}" for key, reason in NO.items() if reason},
    "u": "unclear",
    "x": "never a reason for any class",
    "b": "undo the last answer",
    "s": "skip",
    "o": "open the photos",
    "r": "refit",
    "q": "quit",
}
HELP = "  ".join(f"{key} {meaning}" for key, meaning in KEYS.items())
#: Pixels of a photo on the sheet of a claim, and lines below the sheet.
THUMBNAIL, BELOW = 160, 10


class Asked(NamedTuple):
    """End of a round of questions: "done", "refit" or "quit", and how many answers it brought."""

    end: str
    answers: int


def ask_in_terminal(
    review: Review, evidence: ReviewEvidence, photos: EmbeddingStore | None, by: str, *, ahead: int, heading: str
) -> Asked:
    """Ask one question after the other until all are answered, or a refit or the end is wanted."""
    from ccr.review.asking import claims_to_ask

    given, skipped = 0, set[tuple[str, str]]()
    while True:
        left = [one for one in claims_to_ask(review, evidence, by, ahead=ahead) if _key(one) not in skipped]
        if not left:
            return Asked("done", given)
        one = left[0]
        sheet = _show_photos(one, review, evidence, photos, f"{heading}, {len(left)} to answer")
        key = read_key("> ", KEYS)
        if key in ("q", "r"):
            return Asked({"q": "quit", "r": "refit"}[key], given)
        if key == "s":
            skipped.add(_key(one))
        elif key == "o":
            _open(sheet)
        elif key == "b":
            try:
                review.decisions.undo(by=by)
                given -= 1
            except CCRError as error:
                note(f"note: {error}")
        else:
            _decide(review, one, key, by)
            given += 1


def _decide(review: Review, one: ReviewQuestion, key: str, by: str) -> None:
    if key == "x":
        review.strike(one.concept, by=by)
    elif key in NO:
        review.decide(one.label, one.concept, "no", by=by, reason=NO[key])
    else:
        review.decide(one.label, one.concept, {"y": "yes", "u": "unclear"}[key], by=by)


def _key(one: ReviewQuestion) -> tuple[str, str]:
    return str(one.label), one.concept


def _show_photos(
    one: ReviewQuestion, review: Review, evidence: ReviewEvidence, photos: EmbeddingStore | None, heading: str
) -> Image.Image | None:
    """Print the question with its evidence; the sheet of photos, if there are any."""
    found = evidence.of(one.label, one.concept, review=review)
    sheet = None if photos is None else _sheet(photos, (found.mine, found.others))
    columns = 0 if sheet is None else columns_for(sheet, below=BELOW)
    if sheet is not None and columns:
        typer.echo(draw_photo(sheet, columns))
        console.print(f"above: {len(found.mine)} of the class; below: {len(found.others)} of others", style="dim")
    counts = review.counts()
    progress = f"{heading}; {counts['confirmed']} of {sum(counts.values())} claims confirmed"
    console.print(f"\n{escape(visible(progress))}", style="dim")
    question = f"[bold]{escape(visible(str(one.label)))}[/bold] shows [bold]{escape(visible(one.concept))}[/bold]?"
    console.print(question)
    console.print(escape(_numbers(one, found)), style="dim")
    console.print(escape(HELP), style="dim")
    return sheet


def _numbers(one: ReviewQuestion, found: ClaimPhotos) -> str:
    parts = ["next in line, not a reason yet"] if one.weight is None else []
    if found.adds is not None:
        parts.append(f"adds {found.adds:+.2f}")
    if found.share is not None:
        parts.append(f"{share_text(found.share)} of the class show it")
    if found.purity is not None:
        parts.append(f"{share_text(found.purity)} of those showing it are of the class")
    if found.accuracy_without is not None:
        with_it, without = f"{found.accuracy:.1%}", f"{found.accuracy_without:.1%}"
        parts.append(f"right on {with_it} of these photos, which it may have been trained on, {without} without it")
    return "; ".join(parts)


def _sheet(photos: EmbeddingStore, lines: Sequence[Sequence[int]]) -> Image.Image | None:
    """The photos side by side, a line of them for each group; None where none can be read."""
    from PIL import Image, ImageOps

    def fitted(row: int) -> Image.Image | None:
        with suppress(CCRError):  # a review does without a photo that is gone
            return ImageOps.fit(photos.image(row), (THUMBNAIL, THUMBNAIL))
        return None

    read = [[picture for row in rows if (picture := fitted(row)) is not None] for rows in lines]
    if not any(read):
        return None
    sheet = Image.new("RGB", (max(map(len, read)) * THUMBNAIL, len(read) * THUMBNAIL), "white")
    for down, line in enumerate(read):
        for across, picture in enumerate(line):
            sheet.paste(picture, (across * THUMBNAIL, down * THUMBNAIL))
    return sheet


def _open(sheet: Image.Image | None) -> None:
    if sheet is None:
        note("note: the store's photos cannot be read, so that there is nothing to open")
        return
    with tempfile.NamedTemporaryFile(suffix=".png", prefix="ccr-claim-", delete=False) as file:
        sheet.save(file, "PNG")
    typer.launch(file.name)


ENDINGS = (".csv", ".json", ".html")
#: Claims that are named at the end.
NAMED = 10


def review(
    model: Annotated[Path, typer.Argument(help="Folder of a model; it stays as it is, but for --sign without --out.")],
    store: Annotated[Path | None, typer.Argument(help="Store with labels, to see photos and to refit.")] = None,
    knowledge: Annotated[
        Path | None, typer.Option(help="Table of what is known already. Default: what the model was fitted with.")
    ] = None,
    log: Annotated[
        Path | None, typer.Option(help="Log of the answers. Default: beside --knowledge, or beside the model.")
    ] = None,
    by: Annotated[str | None, typer.Option(help="Who answers or signs. Default: your login name.")] = None,
    policy: Annotated[str, typer.Option(help="How many reviewers must agree on a claim: one, two or all.")] = "one",
    claims: Annotated[
        str | None, typer.Option(help="open or confirmed: which concepts a refit may use. Default: the model's own.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=0, help="Refit when all is answered and ask again, at most so often.")] = 0,
    ahead: Annotated[
        int, typer.Option(min=0, max=50, help="Also ask about so many next in line, for classes that lack reasons.")
    ] = 0,
    answers: Annotated[Path | None, typer.Option(help="Read the answers from this table instead of asking.")] = None,
    folds: Annotated[int, typer.Option(min=2, help="Refits by which accuracy is measured out of fold.")] = 5,
    split: Annotated[
        str | None, typer.Option(help="Measure accuracy on this split instead; the model must not have seen it.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the refitted model. Default: MODEL-reviewed.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Exit 1 while a claim is open or the model unsigned.")] = False,
    sign: Annotated[bool, typer.Option("--sign", help="Sign the model if every claim is confirmed.")] = False,
    export: Annotated[
        Path | None, typer.Option(help="Write what the model may say and may never say: .csv, .json or .html.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Answer every claim of a model, "a Granny-Smith shows glossy skin?", refit, repeat, and sign it.

    Each question comes with photos of the class that show the concept most, and with photos of other classes that show
    it. Keys: y yes, n no, 1 to 4 no with a reason, u unclear, x never a reason for any class, b undo, o open the
    photos, s skip, r refit, q quit. Every answer is in the log at once, and the same command goes on where it stopped.
    A refit forbids what was rejected and grounds what was confirmed; it says which claims went, which are new, and what
    accuracy did on photos that were not trained on. Answers hold for every later model of the same list.

    Example: `ccr review photos-model photos-store --rounds 5 --sign`, then `ccr review photos-model-reviewed --check`

    Without a terminal: `--answers answers.csv --rounds 5`, a table with the columns class, concept, answer and reason.
    """
    from ccr.io.format import check_target, is_model_folder
    from ccr.knowledge import Knowledge
    from ccr.model import ConceptModel
    from ccr.review import Decisions, Review

    given = Options(by, policy, claims, rounds, ahead, answers, folds, split, as_json)
    _check_options(given, store, check=check, sign=sign, export=export)
    target = model.with_name(f"{model.name}-reviewed") if out is None else out
    loaded = ConceptModel.load(model)
    known = loaded.provenance.knowledge if knowledge is None else Knowledge.read(knowledge)
    decisions = Decisions(_log(model, knowledge, log, store))
    if store is not None and not check:
        check_target(target)
        if is_model_folder(target):
            note(f"goes on with {target}, the model of the last round")
            loaded = ConceptModel.load(target)
        interrupt.keep(f"answers so far are in {visible(str(decisions.path))}; the same command goes on from there")
        found = _reviewed(loaded, store, known, decisions, target, given)
    else:
        found = Found(Review(loaded, decisions, known=known, policy=given.policy), [], 0)
        target = model if out is None else out
    if sign and (store is None or not found.review.blocking()):  # else the review is not at its end, and says so
        found = _signed(found, target, by or login_name())
    if export is not None:
        _export(found.review, export, target.name)
    failed = _show(found, target if found.review.model is not loaded else model, check=check, as_json=as_json)
    if failed or (sign and not found.review.model.is_signed):
        raise typer.Exit(1)


class Options(NamedTuple):
    """Command-line options of a review."""

    by: str | None
    policy: Any
    claims: Any
    rounds: int
    ahead: int
    answers: Path | None
    folds: int
    split: str | None
    as_json: bool


class Found(NamedTuple):
    """A review after its rounds, and how many answers were given in them."""

    review: Review
    rounds: list[ReviewRound]
    answers: int


def _check_options(given: Options, store: Path | None, *, check: bool, sign: bool, export: Path | None) -> None:
    from ccr.review.decisions import check_policy

    check_policy(given.policy)
    if given.claims not in (None, "open", "confirmed"):
        raise typer.BadParameter(f"--claims is open or confirmed, got {given.claims!r}")
    if store is None and not (check or sign or export):
        raise typer.BadParameter("a review needs the store, for photos and refits; without: --check, --sign, --export")
    if store is None and (given.answers is not None or given.rounds):
        raise typer.BadParameter("--answers and --rounds are for a review: give the store, too")
    if check and sign:
        raise typer.BadParameter("--check changes nothing, --sign does: give one of them")
    if given.as_json and store is not None and given.answers is None and not check:
        raise typer.BadParameter("--json leaves no room for questions: give --answers")
    if export is not None and export.suffix.lower() not in ENDINGS:
        raise CCRError(f"--export must end in {', '.join(ENDINGS)}, got {export.name!r}")
    if export is not None:
        check_writable(export)


def _log(model: Path, knowledge: Path | None, log: Path | None, store: Path | None) -> Path:
    if log is not None:
        if store is None and not log.exists():
            raise CCRError(f"there is no log {log}: `ccr review` with a store begins one")
        return log
    beside = model if knowledge is None else knowledge.with_suffix("")
    return beside.with_name(f"{beside.name}-decisions.jsonl")


def _reviewed(
    model: ConceptModel,
    path: Path,
    known: Knowledge | None,
    decisions: Decisions,
    target: Path,
    given: Options,
) -> Found:
    """Ask, refit, and again, until nothing is open or nothing new is said."""
    from ccr.data.store import EmbeddingStore
    from ccr.review import Review, ReviewEvidence
    from ccr.review.asking import AnswerTable, review_photos

    opened = EmbeddingStore.open(path)
    photos = review_photos(opened, model)
    table = None if given.answers is None else AnswerTable.read(given.answers)
    who = given.by or login_name()
    if table is None and not who:
        raise CCRError("a decision says who decided, and the system has no login name: give --by")
    done: list[ReviewRound] = []
    total, review = 0, Review(model, decisions, known=known, policy=given.policy)
    while True:
        evidence: ReviewEvidence = ReviewEvidence(review.model, photos)
        heading = f"Round {len(done) + 1}"
        if table is None:
            asked = ask_in_terminal(review, evidence, photos, who, ahead=given.ahead, heading=heading)
        else:
            count = table.answer(review, evidence, by=given.by, otherwise=who or "table", ahead=given.ahead)
            asked = Asked("done", count)
        total += asked.answers
        more = asked.end == "done" and len(done) < given.rounds and _is_news(review, given)
        if asked.end != "refit" and not more:
            return Found(review, done, total)
        done.append(_refitted(review, opened, done, given))
        done[-1].after.save(target)
        _show_round(done[-1], len(done))
        review = Review(done[-1].after, decisions, known=known, policy=given.policy)


def _is_news(review: Review, given: Options) -> bool:
    """Whether a refit would bring the review on: some claim is not confirmed, or more was asked ahead, and since the
    model was fitted something was decided; or other claims are to be permitted."""
    fitted, now, settings = review.model.provenance.knowledge, review.knowledge(), review.model.provenance.settings
    if not len(now):
        return False
    if given.claims not in (None, settings.get("claims", "open")):
        return True
    return bool(review.blocking() or given.ahead) and (fitted is None or fitted.digest != now.digest)


def _refitted(review: Review, store: EmbeddingStore, done: list[ReviewRound], given: Options) -> ReviewRound:
    from ccr.review import review_round

    model, rows = review.model, training_rows(store)
    train = rows.with_labels()
    if train is None:
        raise CCRError(f"a refit needs labels, and {store.path} has none: embed a data set with labels")
    chosen_on_val = model.provenance.settings.get("validation_fraction", 0.1) > 0
    unseen = None if given.split is None else store.select(given.split).with_labels()
    with fitting() as tell:
        return review_round(
            model,
            train,
            knowledge=review.knowledge(),
            claims=given.claims,
            validation=rows.validation if chosen_on_val else None,
            unseen=unseen,
            before=done[-1].accuracy_after if done else None,
            folds=given.folds,
            tell=tell,
        )


def _signed(found: Found, target: Path, by: str) -> Found:
    from ccr.review import Review
    from ccr.review import sign as signed_model

    review = found.review
    if review.model.is_signed:
        return found
    made = signed_model(review.model, review.decisions, by=by, policy=review.policy, known=review.known)
    made.save(target)
    return found._replace(review=Review(made, review.decisions, known=review.known, policy=review.policy))


def _export(review: Review, path: Path, name: str) -> None:
    from ccr.io.provenance import signature_sentence
    from ccr.review import review_rows, unsigned
    from ccr.review.rounds import COLUMNS, review_table

    kind = path.suffix.lower()
    if kind == ".json":
        write_text(path, json.dumps(review_table(review, name), indent=1, ensure_ascii=False) + "\n")
        return
    rows = review_rows(review)
    if kind == ".csv":
        write_text(path, csv_text(COLUMNS, (row.values() for row in rows)))
        return
    from ccr.show.pages import review_page

    signature = review.model.signature
    sentence = signature_sentence(review.model) or f"Not signed: {'; '.join(unsigned(review.model, review))}."
    without = signature.without if signature is not None and review.model.is_signed else ""
    write_text(path, review_page(f"What {name} may say", rows, signed=sentence, without=without))


def _show_round(done: ReviewRound, number: int) -> None:
    note(
        f"round {number}: {counted(len(done.gone), 'claim')} went, {len(done.new)} new, {done.kept} kept; accuracy "
        f"{done.accuracy_before:.1%} -> {done.accuracy_after:.1%} on {done.images:,} {done.measured}"
    )
    for thin in done.thin:
        note(f"note: {thin.remedy}")


def _show(found: Found, target: Path, *, check: bool, as_json: bool) -> bool:
    """Print how the review stands; whether a check fails."""
    from ccr.io.provenance import signature_sentence
    from ccr.review import unsigned
    from ccr.review.rounds import thin_classes

    review = found.review
    left, problems = review.blocking(), unsigned(review.model, review)
    if as_json:
        signature = review.model.signature
        print_json(
            {
                "model": str(target),
                "log": str(review.decisions.path),
                "answers": found.answers,
                "decisions": len(review.decisions),
                "rounds": [done.to_dict() for done in found.rounds],
                "counts": review.counts(),
                "open": [one.to_dict() for one in left],
                "thin": [one.remedy for one in thin_classes(review.model)],
                "agreement": [one.to_dict() for one in review.own.agreements()],
                "disputes": [[one.label, one.concept] for one in review.own.disputes(known=review.known)],
                "signed": review.model.is_signed,
                "signature": None if signature is None else signature.to_dict(),
                "problems": list(problems),
            }
        )
        return check and bool(problems)
    counts = ", ".join(f"{number} {state}" for state, number in review.counts().items() if number)
    console.print(f"{counted(sum(review.counts().values()), 'claim')}: {escape(counts)}", style="bold")
    for one in review.own.agreements():
        if one.share is not None:
            kappa = "" if one.kappa is None else f", kappa {one.kappa:.2f}"
            words = f"{one.first} and {one.second} agree on {share_text(one.share)} of {one.questions} claims{kappa}"
            console.print(escape(words))
    for question in left[:NAMED]:
        console.print(f"  {question.state}: {escape(question.sentence)}")
    if len(left) > NAMED:
        console.print(f"  and {len(left) - NAMED} more")
    if left and not check and len(review.decisions):
        where = visible(str(review.decisions.path))
        rejected = any(one.state == "rejected" for one in left)
        more = (
            "; what was rejected goes with a refit, such as --rounds 5, and with --claims confirmed only what is known "
            "to be true takes its place"
        )
        console.print(f"Answers are in {escape(where)}; the same command goes on from there{more if rejected else ''}")
    total = sum(review.counts().values())
    why = f"{total - len(left):,} of {counted(total, 'claim')} confirmed" if left else problems[0] if problems else ""
    remedy = "" if left or check else " Every claim is confirmed: with --sign it is signed."
    console.print(escape(signature_sentence(review.model) or f"Not signed: {why}.{remedy}"))
    if found.rounds:
        console.print(f"The refitted model is in {escape(str(target))}")
    return check and bool(problems)
