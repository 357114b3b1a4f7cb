"""Sessions of questions: about single photos, answered by a person, a page or a model that sees; and about the claims
of a model, answered by a table. Every answer is kept at once, so that a session goes on where it stopped."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

from ccr.data.store import EmbeddingStore
from ccr.errors import CCRError
from ccr.explain.terms import jpeg_address
from ccr.io.files import format_errors, read_regular
from ccr.knowledge import Answer, Knowledge, Verdict
from ccr.knowledge.table import time_of
from ccr.model import ConceptModel
from ccr.review.questions import (
    Review,
    ReviewEvidence,
    ReviewQuestion,
    contradicts,
    next_photos,
    spread_photos,
    unasked_classes,
)
from ccr.utils.processes import OnProgress
from ccr.utils.texts import check_name, did_you_mean, from_cell, timestamp
from ccr.vocab.llm import (
    ANSWER_TOKENS,
    PICTURE_TOKENS,
    TOKEN_CHARACTERS,
    Endpoint,
    Estimate,
    LLMQuestion,
    answer_tokens,
    answered,
    estimated,
    parse_verdicts,
)

#: Photos among which questions are chosen, at most, evenly over the store.
MOST_PHOTOS = 16_384
#: After so many failures in a row, photos that cannot be read or requests, nothing more is tried.
MOST_FAILURES = 5
#: The longer side in pixels of a photo that a model is shown.
MODEL_PIXELS = 448
#: Seconds by which the clock of whoever answers a page may be ahead.
AHEAD = 86_400.0
PROMPT = (
    "Look at the photo alone. For each of these concepts, say whether the photo plainly shows it: yes; whether it does "
    "not: no; or that it cannot be told from the photo: unknown.\n{concepts}\n"
    'Answer with one JSON object that has exactly these concepts as keys and "yes", "no" or "unknown" as values, and '
    "nothing else."
)
#: Confirmed concepts that a class should have, where the model does not say how many weights.
WANTED = 5


class PhotoLadder(NamedTuple):
    """The photos (m,) of a concept: their scores, whether the model claims it for them, the class that it predicts, and
    answers by row."""

    concept: str
    scores: np.ndarray
    claimed: np.ndarray
    classes: np.ndarray
    asked: dict[int, int | None]

    @property
    def given(self) -> int:
        """Answers that the concept has."""
        return sum(value is not None for value in self.asked.values())

    @property
    def unasked(self) -> int:
        """Classes with a claim about whose photos nobody was asked."""
        return len(unasked_classes(self.claimed, self.classes, self.asked))


class PhotoSession:
    """The questions about a store's photos, and the answers so far, each kept in the table of knowledge at once.

    Parameters
    ----------
    photos : those that may be asked about.
    ladders : one for each concept that is asked about.
    known, file : the answers so far, and the table that they are written to.
    answers : how many a concept gets.
    unnamed : photos left out because no table can hold their paths.
    classes : names of the model's classes.
    log : what is told of photos that cannot be read.
    """

    def __init__(
        self,
        photos: EmbeddingStore,
        ladders: list[PhotoLadder],
        known: Knowledge,
        file: Path,
        answers: int,
        unnamed: int,
        classes: list[str],
        log: Callable[[str], None],
    ) -> None:
        self.photos, self.ladders, self.known, self.file, self.answers = photos, ladders, known, file, answers
        self.classes, self.unnamed, self.new = classes, unnamed, 0
        self.paths = [str(path) for path in photos.paths]
        self.rows = {path: row for row, path in enumerate(self.paths)}
        self._unread, self._log = 0, log
        self._by_name = {ladder.concept: ladder for ladder in ladders}
        self._remember(known)
        self.ladders.sort(key=lambda ladder: not (ladder.given and ladder.unasked))

    @classmethod
    def begin(
        cls,
        model: ConceptModel,
        store: EmbeddingStore,
        known: Knowledge,
        file: Path,
        answers: int,
        log: Callable[[str], None] = lambda line: None,
    ) -> PhotoSession:
        """The questions that are open: first those about answered concepts that a fit gave to further classes, then
        those about the concepts that are claimed most often."""
        rows, unnamed = _askable(store, known)
        photos = store.select(rows=rows)
        ladders = _ladders(model, photos)
        if not ladders:
            raise CCRError("a model without a positive weight claims nothing, so that there is nothing to ask about")
        open_ones = [ladder for ladder in ladders if ladder.concept not in known.unseen]
        return cls(photos, open_ones, known, file, answers, unnamed, list(map(str, model.classes.tolist())), log)

    def next(self, ladder: PhotoLadder) -> list[int]:
        """Rows of the photos to ask about now for a concept."""
        return next_photos(ladder.scores, ladder.claimed, ladder.asked, answers=self.answers, classes=ladder.classes)

    def spread(self, ladder: PhotoLadder) -> list[int]:
        """Rows of the photos to ask about for a concept, all at once."""
        return spread_photos(ladder.scores, ladder.claimed, ladder.asked, answers=self.answers, classes=ladder.classes)

    def next_round(self, given_up: set[str]) -> dict[int, list[str]]:
        """The concepts to ask about now, by the row of the photo, without those that were given up."""
        asked: dict[int, list[str]] = {}
        for ladder in self.ladders:
            for row in [] if ladder.concept in given_up else self.next(ladder):
                asked.setdefault(row, []).append(ladder.concept)
        return asked

    @property
    def left(self) -> int:
        """Answers that are missing, at most."""
        return sum(max(0, self.answers - ladder.given) for ladder in self.ladders if self.next(ladder))

    def label(self, row: int) -> str:
        """The photo's class; empty where it has none, or one that no table can hold."""
        label = self.photos.labels[row]
        return "" if label is None or not _plain(str(label)) else str(label)

    def picture(self, row: int) -> Image.Image | None:
        """The photo; None if it cannot be read, which is told, and it is not asked about again."""
        try:
            picture = self.photos.image(row)
        except CCRError as error:
            self._unread += 1
            if self._unread >= MOST_FAILURES:
                raise
            self._log(f"note: left out: {error}")
            for ladder in self.ladders:
                ladder.asked.setdefault(row, None)
            return None
        self._unread = 0
        return picture

    def answer(self, row: int, verdicts: Mapping[str, Verdict], source: str, by: str) -> None:
        """Note what a photo shows, by concept, and write the table."""
        label, photo = self.label(row), self.paths[row]
        told = [Answer(label, concept, said, source, by, timestamp(), photo) for concept, said in verdicts.items()]
        self.add(Knowledge.of(told))

    def add(self, told: Knowledge) -> None:
        """Take answers into the table and write it."""
        before, self.known = len(self.known), Knowledge.merge(self.known, told)
        self.new += len(self.known) - before
        self.known.write(self.file)
        self._remember(told)

    def contradicted(self) -> list[str]:
        """Concepts that the encoder does not see, as their answers say."""
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
        answered_rows = [first[photo] for photo in known.photos if photo in first]
        spread = named[np.linspace(0, len(named) - 1, MOST_PHOTOS).round().astype(np.int64)]
        named = np.union1d(spread, np.array(answered_rows, np.int64))
    return named, unnamed


def _plain(text: str) -> bool:
    """Is a text the same after a table of knowledge held it?"""
    try:
        check_name(text, "a name")
    except CCRError:
        return False
    return bool(text) and text == text.strip()


def _ladders(model: ConceptModel, photos: EmbeddingStore) -> list[PhotoLadder]:
    """The concepts with a positive weight for some class, that with the most claims first."""
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
        ladders.append(PhotoLadder(model.names[concept], np.ascontiguousarray(scores[:, number]), claimed, winner, {}))
    return sorted(ladders, key=lambda ladder: -int(ladder.claimed.sum()))


# Answers of a page, and of a model that sees.


def read_page_answers(file: Path, store: EmbeddingStore, model: ConceptModel) -> Knowledge:
    """The answers of a page; an error where they are not about this store's photos and this model's concepts."""
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


def ask_seeing_model(session: PhotoSession, endpoint: Endpoint, cache: Path, tell: OnProgress) -> dict[str, str]:
    """Ask a vision-language model all that is open; why it failed, by photo. Answers are kept in `cache`."""
    failed: dict[str, str] = {}
    total, words = session.left, f"asking {endpoint.model}"
    tell(0, total, words)
    for question, verdicts in answered(_requests(session), endpoint, cache, failed):
        session.answer(session.rows[question.name], verdicts, "llm", endpoint.model)
        tell(session.new, total, words)
    return failed


def _requests(session: PhotoSession) -> Iterator[LLMQuestion]:
    """One request per photo and round; a concept whose request failed is left for another run."""
    given_up: set[str] = set()
    failures = 0
    while asked := session.next_round(given_up):
        for row, names in asked.items():
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


def _question(path: str, concepts: list[str], picture: Image.Image) -> LLMQuestion:
    prompt = PROMPT.format(concepts=json.dumps(concepts, ensure_ascii=False))
    shown = (jpeg_address(picture, MODEL_PIXELS),)
    return LLMQuestion(path, prompt, partial(parse_verdicts, concepts), shown, answer_tokens(concepts))


def estimate_session(session: PhotoSession, endpoint: Endpoint, cache: Path) -> Estimate:
    """Upper bound of the cost of `ask_seeing_model`: the first round exactly, and one request for each later answer,
    because which photo it needs depends on earlier answers."""
    first = session.next_round(set())
    pictures = ((row, session.picture(row)) for row in first)
    questions = [_question(session.paths[row], first[row], picture) for row, picture in pictures if picture is not None]
    cost = estimated(questions, endpoint, cache)
    later = session.left - sum(map(len, first.values()))
    longest = max((len(ladder.concept) for ladder in session.ladders), default=0)
    tokens = (len(PROMPT) + longest) // TOKEN_CHARACTERS + 1 + PICTURE_TOKENS
    return cost._replace(
        requests=cost.requests + later,
        prompt_tokens=cost.prompt_tokens + later * tokens,
        answer_tokens=cost.answer_tokens + later * ANSWER_TOKENS,
    )


# Questions about the claims of a model, and a table that answers them.


def claims_to_ask(
    review: Review, evidence: ReviewEvidence, by: str | None, *, ahead: int = 0
) -> Iterator[ReviewQuestion]:
    """The claims that are open for a reviewer, and of each class that has fewer confirmed concepts than weights,
    `ahead` that are next in line."""
    yield from review.open(by)
    if not ahead:
        return
    labels, weights = review.model.classes.tolist(), review.model.provenance.settings.get("weights_per_class")
    wanted = weights if isinstance(weights, int) else WANTED
    confirmed = (review.knowledge().aligned(labels, review.concepts.names) > 0).sum(axis=1)
    for label, count in zip(labels, confirmed.tolist(), strict=True):
        if count < wanted:
            yield from evidence.next_in_line(review, label, count=ahead)


def review_photos(store: EmbeddingStore, model: ConceptModel) -> EmbeddingStore:
    """The photos by which claims are judged: none of the test split, all with a label that the model knows."""
    known = {str(label) for label in model.classes.tolist()}
    rows = [
        row
        for row, (label, split) in enumerate(zip(store.labels, store.splits, strict=True))
        if label is not None and str(label) in known and split != "test"
    ]
    if not rows:
        raise CCRError(f"{store.path} has no photos of the model's classes but for the test split: give its own store")
    return store.select(rows=rows)


class AnswerTable(NamedTuple):
    """A table of answers by class and concept, with a reason for no and its author where it names them; the class "*"
    is every class."""

    said: Mapping[tuple[str, str], tuple[str, str, str]]

    @classmethod
    def read(cls, path: Path) -> AnswerTable:
        """The answers of a CSV or Parquet table, as `ccr fit --knowledge` reads them, and its column `reason`."""
        reasons = _reasons(path) if path.suffix.lower() == ".csv" else {}
        words = {"yes": "yes", "no": "no", "unknown": "unclear"}
        said = {}
        for one in Knowledge.read(path):
            if not one.photo:
                why = reasons.get((one.label, one.concept), "") if one.answer == "no" else ""
                said[one.label, one.concept] = (words[one.answer], why, one.by)
        return cls(said)

    @property
    def struck(self) -> list[str]:
        """The concepts that are never a reason for any class."""
        return [concept for (label, concept), (answer, *_) in self.said.items() if label == "*" and answer == "no"]

    def answer(
        self, review: Review, evidence: ReviewEvidence, *, by: str | None, otherwise: str, ahead: int = 0
    ) -> int:
        """Answer what is open, strikes first; how many answers were given. They are `by` a reviewer, or else by whom
        the table names, or `otherwise`."""
        given, names = 0, set(review.concepts.names)
        struck = {one.concept for one in review.own if one.label is None}
        for concept in self.struck:
            if concept in names and concept not in struck:
                review.strike(concept, by=by or otherwise)
                given += 1
        # The class "*" is never asked about, so that a table's own answers cannot be taken for it.
        for one in list(claims_to_ask(review, evidence, None, ahead=ahead)):
            found = self.said.get((str(one.label), one.concept))
            if found is None:
                continue
            answer, reason, author = found
            who = by or author or otherwise
            if who not in {vote.by for vote in review.question(one.label, one.concept).votes}:
                review.decide(one.label, one.concept, answer, by=who, reason=reason)
                given += 1
        return given


def _reasons(path: Path) -> dict[tuple[str, str], str]:
    """The column `reason` of a table with one row per answer, if it has one."""
    with format_errors(path, "be a CSV table in UTF-8", "see docs/howto/review.md for its columns"):
        lines = read_regular(path).decode("utf-8-sig").splitlines()
        rows = [
            {str(name).strip().casefold(): from_cell(cell or "").strip() for name, cell in row.items()}
            for row in csv.DictReader(lines, restval="")
        ]
    return {(row["class"], row["concept"]): row["reason"] for row in rows if {"class", "concept", "reason"} <= set(row)}
