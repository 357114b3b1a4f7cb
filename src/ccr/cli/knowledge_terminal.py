"""The questions of `ccr knowledge ask-photos`, answered by a person in the terminal."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.markup import escape

from ccr.cli.common import note
from ccr.cli.common_photo import STOP, columns_for, draw_photo, read_key
from ccr.errors import CCRError
from ccr.utils.texts import check_name, visible

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

    from ccr.data.store import EmbeddingStore
    from ccr.knowledge import Knowledge, Verdict
    from ccr.model import ConceptModel

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

        label, photo, at = self.label(row), self.paths[row], _now()
        told = [Answer(label, concept, said, source, by, at, photo) for concept, said in verdicts.items()]
        self.add(Knowledge.of(told))

    def add(self, told: Knowledge) -> None:
        """Take answers into the table and write it."""
        from ccr.knowledge import Knowledge

        before, self.known = len(self.known), Knowledge.merged(self.known, told)
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
            self.known = self.known.with_unseen(struck, self.classes, by=by, at=_now())
            self.known.write(self.file)
        return struck

    def _remember(self, told: Knowledge) -> None:
        values = {"yes": 1, "no": -1, "unknown": 0}
        for answer in told:
            if answer.photo in self.rows and answer.concept in self._by_name:
                kept = self.known.find(None, answer.concept, photo=answer.photo) or answer  # a person's counts
                self._by_name[answer.concept].asked[self.rows[answer.photo]] = values[kept.answer]


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


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


def login_name() -> str:
    """Login name of the current user; empty if the system has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return ""


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
        highlight=False,
    )
    out.print(
        f"Does this photo show [bold]{escape(visible(ladder.concept))}[/bold]?\n[dim]{HELP}[/dim]", highlight=False
    )
