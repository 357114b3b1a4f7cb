"""Knowledge: which concept is true of which class or photo, who said so, and when (Knowledge, docs/method.md)."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ccr.errors import CCRError, FormatError
from ccr.io.files import check_rows, format_errors, read_regular, write_bytes
from ccr.io.remote import as_place
from ccr.utils.texts import check_name, closest, from_cell, to_cell

if TYPE_CHECKING:
    from scipy import sparse

YES, NO, UNKNOWN = 1, -1, 0
Verdict = Literal["yes", "no", "unknown"]
_WORDS: dict[int, Verdict] = {YES: "yes", NO: "no", UNKNOWN: "unknown"}
#: Spellings of answers in a file or a table of texts; an empty cell of a wide table is no answer at all.
_VALUES = {"yes": YES, "y": YES, "true": YES, "no": NO, "n": NO, "false": NO, "unknown": UNKNOWN, "unclear": UNKNOWN}
#: Source of a "no" for every class, about a concept whose answers about photos contradict its scores: the encoder does
#: not see it. It counts over a person's yes, which is about the class.
UNSEEN = "unseen"
#: Sources of answers, the least trusted first; any other name counts as a file.
SOURCES = ("wordnet", "llm", "file", "person", UNSEEN)
#: Sources without a person: a yes of theirs forbids nothing and starts concepts, but confirms no claim.
MACHINES = SOURCES[:2]
COLUMNS = ("class", "concept", "answer", "source", "by", "at", "photo")
_REMEDY = "see docs/knowledge.md for the columns"


@dataclass(frozen=True)
class Answer:
    """One answer to "is `concept` true of the class `label`?", or, where `photo` is given, of that photo.

    `source` is person, file, llm, wordnet, unseen or another name; `by` is who answered, `at` when (ISO 8601); both may
    be empty. The answer "unknown" means that a reviewer was asked and could not tell.
    """

    label: str
    concept: str
    answer: Verdict
    source: str = "file"
    by: str = ""
    at: str = ""
    photo: str = ""

    def to_dict(self) -> dict[str, str]:
        """The columns of a file by name."""
        fields = asdict(self)
        return {"class": fields.pop("label"), **fields}


class Conflict(NamedTuple):
    """A yes and a no to the same question: the answer that counts, and the one that it overrules."""

    kept: Answer
    overruled: Answer


@dataclass(frozen=True)
class Unmatched:
    """Names that stand on one side only: in the knowledge (`extra`), or in the data that it is for (`missing`).

    `meant` maps a name of the knowledge that has no counterpart to the name of the data that it resembles.
    """

    extra_classes: tuple[str, ...]
    missing_classes: tuple[str, ...]
    extra_concepts: tuple[str, ...]
    missing_concepts: tuple[str, ...]
    meant: Mapping[str, str]


class _Columns(NamedTuple):
    """Answers as parallel arrays: numbers of subject (classes first, then photos) and concept, the value, and positions
    of source, author, time, and of a photo's class, in a pool of texts."""

    subject: np.ndarray
    concept: np.ndarray
    value: np.ndarray
    source: np.ndarray
    by: np.ndarray
    at: np.ndarray
    label: np.ndarray

    def take(self, rows: np.ndarray) -> _Columns:
        return _Columns(*(column[rows] for column in self))


class Knowledge:
    """A table of which concept is true of which class: yes, no or unknown, each answer with its source, author and
    time.

    Also holds answers about single photos. Frozen; one answer per question. Where several were given, a concept struck
    as unseen stays so; else a person's counts over a file's, a file's over a language model's, that over WordNet's;
    among equals the later one (`at`), then the one given last. `conflicts` lists the answers that were overruled by
    their opposite.

    Parameters
    ----------
    classes, concepts : names, all different.
    table : (classes, concepts). Texts "yes", "no", "unknown" or ""; booleans, where False is no; or numbers, where 1 is
        yes, -1 is no, and 0 or NaN is unknown. None entries are unknown. Unknown entries are not answers.
    source, by, at : of all these answers.
    """

    classes: tuple[str, ...]
    concepts: tuple[str, ...]
    photos: tuple[str, ...]
    conflicts: tuple[Conflict, ...]
    _texts: tuple[str, ...]
    _columns: _Columns
    _keys: np.ndarray

    def __init__(
        self,
        classes: Iterable[Any],
        concepts: Iterable[str],
        table: Any,
        *,
        source: str = "file",
        by: str = "",
        at: str = "",
    ) -> None:
        rows, names = _unique(classes, "class"), _unique(concepts, "concept")
        values = _checked_table(table, (len(rows), len(names)))
        subject, concept = (index.astype(np.int64) for index in np.nonzero(values))
        time_of(at)
        source, by = source.strip(), by.strip()
        _check_plain({"source": source, "author": by})
        texts = list(dict.fromkeys((source or "file", by, at, "")))
        codes = [np.full(len(subject), texts.index(text), np.int32) for text in (source or "file", by, at, "")]
        self._fill(rows, names, (), _Columns(subject, concept, values[subject, concept], *codes), texts)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"knowledge is frozen, {name} cannot be set: merge it with other answers instead")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"knowledge is frozen, {name} cannot be deleted: take a part of it by about instead")

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._freeze()  # arrays that were copied or unpickled can be written to

    def _fill(
        self,
        classes: Sequence[str],
        concepts: Sequence[str],
        photos: Sequence[str],
        columns: _Columns,
        texts: Sequence[str],
    ) -> Knowledge:
        """Resolve the answers and freeze; every question keeps the answer that counts."""
        self.__dict__.update(
            classes=tuple(classes), concepts=tuple(concepts), photos=tuple(photos), _texts=tuple(texts)
        )
        ranks = [SOURCES.index(text if text in SOURCES else "file") for text in texts] or [0]
        rank = np.array(ranks)[columns.source]
        time = np.array([time_of(text, strict=False) for text in texts] or [0.0])[columns.at]
        key = columns.subject * max(len(concepts), 1) + columns.concept
        order = np.lexsort((np.arange(len(key)), time, rank, key))
        last = np.ones(len(key), bool)
        last[:-1] = key[order[1:]] != key[order[:-1]]
        self.__dict__.update(_columns=columns.take(order[last]), _keys=key[order[last]])
        self._freeze()
        lost = order[~last]
        against = columns.value[lost] * self._columns.value[np.searchsorted(self._keys, key[lost])] < 0
        overruled = columns.take(lost[against])
        kept = np.searchsorted(self._keys, key[lost[against]])
        self.__dict__["conflicts"] = tuple(
            Conflict(self._answer(self._columns, int(row)), self._answer(overruled, number))
            for number, row in enumerate(kept)
        )
        return self

    def _freeze(self) -> None:
        for column in (*self._columns, self._keys, *(self.__dict__[name] for name in {"table"} & self.__dict__.keys())):
            column.setflags(write=False)

    @classmethod
    def of(cls, answers: Iterable[Answer]) -> Knowledge:
        """The knowledge that these answers make."""
        given = list(answers)
        classes: dict[str, int] = {}
        photos: dict[str, int] = {}
        concepts: dict[str, int] = {}
        texts = {"": 0}
        subjects, columns = [], []
        for answer in given:
            if answer.answer not in _VALUES:
                raise CCRError(f"an answer is yes, no or unknown, got {answer.answer!r} for {answer.concept!r}")
            label, concept, photo, source, by = (
                str(name).strip() for name in (answer.label, answer.concept, answer.photo, answer.source, answer.by)
            )
            if not concept:
                raise CCRError(f"every answer needs a concept, got an empty name for {label or photo!r}: fill it in")
            if not label and not photo:
                raise CCRError(f"an answer is about a class or a photo, got neither for the concept {concept!r}")
            _check_plain({"class": label, "concept": concept, "photo": photo, "source": source, "author": by})
            time_of(answer.at)
            named, pool = (photo, photos) if photo else (label, classes)
            subjects.append((bool(photo), pool.setdefault(named, len(pool))))
            # The class of an answer about it is its subject: told twice, the same answers had another digest.
            facts = [
                texts.setdefault(text, len(texts)) for text in (source or "file", by, answer.at, label if photo else "")
            ]
            columns.append((concepts.setdefault(concept, len(concepts)), _VALUES[answer.answer], *facts))
        data = np.array(columns, np.int64).reshape(-1, 6)
        subject = np.array([number + len(classes) * photo for photo, number in subjects], np.int64)
        codes = [data[:, column].astype(np.int32) for column in range(2, 6)]
        parts = _Columns(subject, data[:, 0], data[:, 1].astype(np.int8), *codes)
        return cls.__new__(cls)._fill(list(classes), list(concepts), list(photos), parts, list(texts))

    def merge(self, *others: Knowledge) -> Knowledge:
        """All answers of this and others, by the precedence of sources and times; of equals, the last one's count."""
        parts = (self, *others)
        names: list[dict[str, int]] = [{}, {}, {}, {}]
        for part in parts:
            for pool, given in zip(names, (part.classes, part.concepts, part.photos, part._texts), strict=True):
                for name in given:
                    pool.setdefault(name, len(pool))
        classes, concepts, photos, texts = names
        columns = []
        for part in parts:
            subject = [classes[name] for name in part.classes]
            subject += [len(classes) + photos[name] for name in part.photos]
            code = np.array([texts[text] for text in part._texts], np.int32)
            own = part._columns
            columns.append(
                _Columns(
                    np.array(subject, np.int64)[own.subject],
                    np.array([concepts[name] for name in part.concepts], np.int64)[own.concept],
                    own.value,
                    *(code[column] for column in (own.source, own.by, own.at, own.label)),
                )
            )
        together = _Columns(*(np.concatenate(column) for column in zip(*columns, strict=True)))
        merged = Knowledge.__new__(Knowledge)._fill(list(classes), list(concepts), list(photos), together, list(texts))
        every = [*(pair for part in parts for pair in part.conflicts), *merged.conflicts]
        merged.__dict__["conflicts"] = tuple(dict.fromkeys(every))
        return merged

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Knowledge:
        """The answers of a file.

        A CSV (or a table with semicolons or tabs) or Parquet file has one row per answer, with the columns class,
        concept and answer, and optionally source, by, at and photo; or it is wide: a first column `class` and a column
        for each concept (or `concept` and a column for each class), with yes, no or nothing in every cell.
        """
        file = as_place(path)
        rows = _parquet_rows(file) if file.suffix.lower() == ".parquet" else _csv_rows(file)
        return cls.of(_answers(rows, str(path)))

    def write(self, path: str | os.PathLike[str], *, wide: bool = False) -> None:
        """Write a CSV or Parquet file: one row per answer, or `wide`, a row per class and a column per concept, which
        has no room for sources, authors, times and photos."""
        parquet = as_place(path).suffix.lower() == ".parquet"
        if wide and self.photos:
            raise CCRError(f"a wide table has no room for answers about photos, got {len(self.photos)}: drop wide")
        if wide:
            body = zip(self.classes, self.table, strict=True)
            cells = ([name, *(_WORDS[int(value)] if value else "" for value in row)] for name, row in body)
            rows = [["class", *self.concepts], *cells]
            _check_wide(rows[0])
        else:
            rows = [list(COLUMNS), *([answer.to_dict()[name] for name in COLUMNS] for answer in self)]
        if parquet:
            import pyarrow as pa
            import pyarrow.parquet as pq

            table = pa.table({name: [row[at] for row in rows[1:]] for at, name in enumerate(rows[0])})
            buffer = io.BytesIO()
            pq.write_table(table, buffer)
            write_bytes(path, buffer.getvalue())
            return
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows([to_cell(cell) for cell in row] for row in rows)
        write_bytes(path, text.getvalue().encode())

    def __len__(self) -> int:
        """Questions that have an answer."""
        return len(self._keys)

    def __repr__(self) -> str:
        photos = f", {len(self.photos)} photos" if self.photos else ""
        counts = self.counts
        summary = ", ".join(f"{counts[word]} {word}" for word in ("yes", "no", "unknown") if counts[word])
        return f"Knowledge({len(self.classes)} classes x {len(self.concepts)} concepts{photos}: {summary or 'empty'})"

    def __eq__(self, other: object) -> bool:
        return self.digest == other.digest if isinstance(other, Knowledge) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def __iter__(self) -> Iterator[Answer]:
        """Every answer, classes first, then photos."""
        return (self._answer(self._columns, row) for row in range(len(self)))

    @property
    def counts(self) -> Mapping[str, int]:
        """Answers by what they say: yes, no, unknown."""
        return Counter({word: int((self._columns.value == value).sum()) for value, word in _WORDS.items()})

    @cached_property
    def table(self) -> np.ndarray:
        """(classes, concepts) int8: 1 yes, -1 no, 0 unknown."""
        table = np.zeros((len(self.classes), len(self.concepts)), np.int8)
        of_class = self._columns.subject < len(self.classes)
        table[self._columns.subject[of_class], self._columns.concept[of_class]] = self._columns.value[of_class]
        table.setflags(write=False)
        return table

    @cached_property
    def unseen(self) -> Mapping[str, Answer]:
        """Concepts that were struck for every class because the encoder does not see them, each with an answer that
        says so."""
        own = self._columns
        struck = np.array([text == UNSEEN for text in self._texts] or [False])[own.source]
        struck &= (own.value == NO) & (own.subject < len(self.classes))
        found = [self._answer(own, row) for row in np.flatnonzero(struck).tolist()]
        return {one.concept: one for one in found}

    def with_unseen(self, concepts: Iterable[str], classes: Iterable[Any], *, by: str = "", at: str = "") -> Knowledge:
        """The same answers, and "no" for each of these concepts and all classes: the encoder does not see them."""
        labels = [str(label) for label in classes]
        struck = [Answer(label, concept, "no", UNSEEN, by, at) for concept in concepts for label in labels]
        return self.merge(Knowledge.of(struck))

    @cached_property
    def digest(self) -> str:
        """A fingerprint of all answers, whatever their order."""
        own, state = self._columns, hashlib.sha256()
        subjects = [f"c{name}" for name in self.classes] + [f"p{name}" for name in self.photos]
        columns = []
        texts = [(own.source, self._texts), (own.by, self._texts), (own.at, self._texts), (own.label, self._texts)]
        for column, names in [(own.subject, subjects), (own.concept, self.concepts), *texts]:
            used, number = np.unique(column, return_inverse=True)
            spelled = [names[at] for at in used]
            order = np.argsort(np.argsort(np.array(spelled, object), kind="stable"), kind="stable")
            state.update(json.dumps(sorted(spelled)).encode())
            columns.append(order[number] if len(used) else number)
        for column in (*columns, own.value):
            state.update(np.ascontiguousarray(column[np.lexsort((columns[1], columns[0]))], np.int64).tobytes())
        return state.hexdigest()[:16]

    def find(self, label: Any, concept: str, *, photo: str = "") -> Answer | None:
        """The answer to one question; None where there is none."""
        subject, column = self._subjects.get((bool(photo), str(photo or label))), self._places.get(concept)
        if subject is None or column is None:
            return None
        key = subject * len(self.concepts) + column
        row = int(np.searchsorted(self._keys, key))
        return self._answer(self._columns, row) if row < len(self) and self._keys[row] == key else None

    def aligned(self, classes: Iterable[Any], concepts: Sequence[str], *, by_people: bool = False) -> np.ndarray:
        """Answers (classes, concepts) int8 for these classes and concepts, 0 where there is none; `by_people`: also
        where only WordNet or a language model says yes."""
        rows = np.array([self._subjects.get((False, str(name)), -1) for name in classes], np.int64)
        columns = np.array([self._places.get(name, -1) for name in concepts], np.int64)
        answers = np.zeros((len(rows), len(columns)), np.int8)
        there = np.ix_(rows >= 0, columns >= 0)
        table = self._table_of_people if by_people else self.table
        answers[there] = table[np.ix_(rows[rows >= 0], columns[columns >= 0])]
        return answers

    @property
    def _table_of_people(self) -> np.ndarray:
        columns, table = self._columns, self.table.copy()
        machine = np.array([text in MACHINES for text in self._texts] or [False])[columns.source]
        machine &= (columns.value == YES) & (columns.subject < len(self.classes))
        table[columns.subject[machine], columns.concept[machine]] = UNKNOWN
        return table

    def aligned_photos(self, concepts: Sequence[str]) -> sparse.csr_matrix:
        """Answers (photos, concepts) int8, CSR, in the order of `photos`; 0 where there is none."""
        from scipy import sparse  # half a second that predictions need not wait for

        columns = np.full(len(self.concepts), -1, np.int64)
        for at, name in enumerate(concepts):
            if name in self._places:
                columns[self._places[name]] = at
        subject, concept, value = self._columns[:3]
        own = (subject >= len(self.classes)) & (columns[concept] >= 0) & (value != 0) if len(self) else slice(0)
        places = (subject[own] - len(self.classes), columns[concept[own]])
        return sparse.csr_matrix((value[own], places), shape=(len(self.photos), len(concepts)), dtype=np.int8)

    def about(self, classes: Iterable[Any] | None = None, concepts: Iterable[str] | None = None) -> Knowledge:
        """The answers about these classes and concepts alone (None: all of them); of photos, all that are about these
        concepts."""
        subject = np.ones(len(self.classes) + len(self.photos), bool)
        if classes is not None:
            wanted = {str(name) for name in classes}
            subject[: len(self.classes)] = [name in wanted for name in self.classes]
        concept = np.ones(len(self.concepts), bool)
        if concepts is not None:
            known = set(concepts)
            concept[:] = [name in known for name in self.concepts]
        kept = np.flatnonzero(subject[self._columns.subject] & concept[self._columns.concept])
        number = np.cumsum(subject) - 1, np.cumsum(concept) - 1
        columns = self._columns.take(kept)
        columns = columns._replace(subject=number[0][columns.subject], concept=number[1][columns.concept])
        rows = [name for name, there in zip(self.classes, subject[: len(self.classes)], strict=True) if there]
        names = [name for name, there in zip(self.concepts, concept, strict=True) if there]
        return Knowledge.__new__(Knowledge)._fill(rows, names, self.photos, columns, self._texts)

    def renamed(self, concept: str, to: str) -> Knowledge:
        """The same answers with the concept under another name; answers that name has already join them."""
        if concept not in self._places or concept == to:
            return self
        about = self.about(concepts=[concept])
        moved = Knowledge.__new__(Knowledge)._fill(about.classes, [to], about.photos, about._columns, about._texts)
        return self.about(concepts=set(self.concepts) - {concept}).merge(moved)

    def shuffled(self, seed: int = 0) -> Knowledge:
        """A control: the same answers about classes, each concept's given to other classes at random. What it gains in
        accuracy is not meaning."""
        rng = np.random.default_rng(seed)
        order = np.array([rng.permutation(len(self.classes)) for _ in self.concepts], np.int64)
        order = order.reshape(len(self.concepts), len(self.classes)).T
        return Knowledge(self.classes, self.concepts, np.take_along_axis(self.table, order, axis=0), source="shuffled")

    def unmatched(self, classes: Iterable[Any], concepts: Iterable[str]) -> Unmatched:
        """Names that the knowledge and the data do not share, with what was probably meant."""
        sides = [(self.classes, [str(name) for name in classes]), (self.concepts, list(concepts))]
        extra, missing, meant = [], [], {}
        for own, theirs in sides:
            ours, others = set(own), set(theirs)
            extra.append(tuple(name for name in own if name not in others))
            missing.append(tuple(name for name in theirs if name not in ours))
            if missing[-1]:
                for name in extra[-1]:
                    close = closest(name, missing[-1])
                    if close is not None:
                        meant[name] = close
        return Unmatched(extra[0], missing[0], extra[1], missing[1], meant)

    def packed(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Names in JSON types, and arrays, from which `unpacked` makes the same knowledge."""
        names = {"classes": list(self.classes), "concepts": list(self.concepts), "photos": list(self.photos)}
        columns = self._columns._replace(
            subject=self._columns.subject.astype(np.int32), concept=self._columns.concept.astype(np.int32)
        )
        return {**names, "texts": list(self._texts)}, columns._asdict()

    @classmethod
    def unpacked(cls, names: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Knowledge:
        """The knowledge that was `packed`; an error where names and arrays do not fit together."""
        pools = [_pool(names, name) for name in ("classes", "concepts", "photos", "texts")]
        limits = (len(pools[0]) + len(pools[2]), len(pools[1]), None, *[len(pools[3])] * 4)
        columns, length = [], len(arrays["value"])
        for name, limit in zip(_Columns._fields, limits, strict=True):
            column = arrays[name]
            low, high = (-1, 1) if limit is None else (0, limit - 1)
            bad = column.shape != (length,) or column.dtype.kind != "i"
            if bad or (length and not (low <= int(column.min()) and int(column.max()) <= high)):
                raise FormatError(f"the knowledge's {name} is damaged: save the model again")
            columns.append(column.astype(np.int64 if name in ("subject", "concept") else column.dtype))
        return cls.__new__(cls)._fill(pools[0], pools[1], pools[2], _Columns(*columns), pools[3])

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.concepts)}

    @cached_property
    def _subjects(self) -> dict[tuple[bool, str], int]:
        every = [(False, name) for name in self.classes] + [(True, name) for name in self.photos]
        return {subject: number for number, subject in enumerate(every)}

    def _answer(self, columns: _Columns, row: int) -> Answer:
        subject = int(columns.subject[row])
        about_photo = subject >= len(self.classes)
        return Answer(
            label=self._texts[columns.label[row]] if about_photo else self.classes[subject],
            concept=self.concepts[columns.concept[row]],
            answer=_WORDS[int(columns.value[row])],
            source=self._texts[columns.source[row]],
            by=self._texts[columns.by[row]],
            at=self._texts[columns.at[row]],
            photo=self.photos[subject - len(self.classes)] if about_photo else "",
        )


def time_of(at: str, *, strict: bool = True) -> float:
    """Seconds since 1970 of a time in ISO 8601, so that times in different zones compare; no time is the earliest."""
    if not at:
        return -np.inf
    try:
        moment = datetime.fromisoformat(at.replace("Z", "+00:00"))
    except ValueError:
        if not strict:
            return -np.inf
        raise CCRError(f"a time is written as 2026-11-18 or 2026-11-18T09:30:00+00:00, got {at!r}") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


def _unique(names: Iterable[Any], what: str) -> list[str]:
    if isinstance(names, str):
        raise CCRError(f"{what} names must be a list of texts, got the one text {names!r}: put it in a list")
    texts = [str(name.item() if isinstance(name, np.generic) else name).strip() for name in names]
    for name in texts:
        if not name:
            raise CCRError(f"a {what}'s name must not be empty")
        check_name(name, f"a {what}'s name")
    twice = [name for name, count in Counter(texts).items() if count > 1]
    if twice:
        raise CCRError(f"{what} names must be different, got {twice[0]!r} twice: drop one")
    return texts


def _checked_table(table: Any, shape: tuple[int, int]) -> np.ndarray:
    cells = np.asarray(table)
    if cells.shape != shape:
        turned = ": it is (concepts, classes), so give its transpose" if cells.shape == shape[::-1] else ""
        raise CCRError(f"the table must be (classes, concepts) = {shape}, got {cells.shape}{turned}")
    if cells.dtype == bool:
        return np.where(cells, YES, NO).astype(np.int8)
    if cells.dtype.kind in "iuf":
        values = np.nan_to_num(cells.astype(np.float64), nan=0.0)
        bad = ~np.isin(values, (YES, NO, UNKNOWN))
    else:
        values = np.zeros(shape)
        bad = np.zeros(shape, bool)
        for at in np.ndindex(shape):
            value = _cell_value(cells[at])
            values[at], bad[at] = value or 0, value is None
    if bad.any():
        row, column = np.argwhere(bad)[0]
        shown = cells[row, column].item() if isinstance(cells[row, column], np.generic) else cells[row, column]
        raise CCRError(
            f"a table holds yes, no and unknown (or True and False, or 1, -1 and 0), got {shown!r} in row "
            f"{row}, column {column}"
        )
    return values.astype(np.int8)


def _cell_value(cell: Any) -> int | None:
    """The value of one entry of a table; None where it is none."""
    if cell is None or type(cell).__name__ == "NAType" or (isinstance(cell, (float, np.floating)) and np.isnan(cell)):
        return UNKNOWN
    if isinstance(cell, (bool, np.bool_)):
        return YES if cell else NO
    if isinstance(cell, (int, float, np.number)):
        return int(cell) if cell in (YES, NO, UNKNOWN) else None
    word = str(cell).strip().casefold()
    return _VALUES.get(word) if word else UNKNOWN


def _check_plain(texts: Mapping[str, str]) -> None:
    for what, text in texts.items():
        check_name(text, f"{'an' if what == 'author' else 'a'} {what}'s name")


def _check_wide(heading: Sequence[str]) -> None:
    """Refuse a wide table that would not be read as it was written."""
    lower = [name.casefold() for name in heading]
    twice = [name for name, count in Counter(lower).items() if count > 1]
    if twice:
        raise CCRError(f"a wide table's columns must differ by more than case, got {twice[0]!r} twice: drop wide")
    if _is_long(lower):
        raise CCRError("a wide table with columns concept and answer would be read as one row per answer: drop wide")


def _is_long(lower: Iterable[str]) -> bool:
    """Whether a table with these columns has one row per answer."""
    return {"concept", "answer"} <= set(lower)


def _pool(names: Mapping[str, Any], name: str) -> list[str]:
    texts = names.get(name)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts) or len(set(texts)) < len(texts):
        raise FormatError(f"the knowledge's {name} must be different texts: save the model again")
    for text in texts:
        check_name(text, f"of the knowledge's {name}, each")
    return texts


def _csv_rows(file: Any) -> Iterator[tuple[int, dict[str, str]]]:
    with format_errors(file, "be a CSV table in UTF-8 with a heading, such as class,concept,answer", _REMEDY):
        text = read_regular(file).decode("utf-8-sig")
        heading = text.partition("\n")[0]
        # The first one: names further on may have others, as in class;red, ripe
        mark = min((mark for mark in ",;\t" if mark in heading), key=heading.index, default=",")
        reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=mark)
        names = [from_cell(name).strip() for name in next(reader, [])]
        _check_heading(names, str(file))
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            if len(row) > len(names):
                raise FormatError(
                    f"line {reader.line_num} of {file} has {len(row)} cells, its heading {len(names)}: put names with "
                    "commas in quotes"
                )
            yield reader.line_num, dict(zip(names, [from_cell(cell).strip() for cell in row], strict=False))


def _parquet_rows(file: Any) -> Iterator[tuple[int, dict[str, str]]]:
    import pyarrow.parquet as pq

    with format_errors(file, "be a Parquet table with the columns class, concept, answer", _REMEDY):
        content = read_regular(file)
        source = pq.ParquetFile(io.BytesIO(content))
        check_rows(source.metadata.num_rows, len(content))
        table = source.read()
        table.validate(full=True)
        _check_heading(table.column_names, str(file))
        for number, row in enumerate(table.to_pylist(), start=1):
            yield number, {name: "" if cell is None else str(cell).strip() for name, cell in row.items()}


def _check_heading(names: Sequence[str], path: str) -> None:
    lower = [name.casefold() for name in names]
    twice = [name for name, count in Counter(lower).items() if count > 1]
    if twice:
        raise FormatError(f"the columns of {path} must be different, got {twice[0]!r} twice: drop one")
    if not lower or (lower[0] not in ("class", "concept") and not _is_long(lower)):
        raise FormatError(
            f"{path} must have the columns class, concept and answer, or a first column class and one per concept; its "
            f"heading is {', '.join(names[:6]) or 'empty'}"
        )


def _answers(rows: Iterable[tuple[int, dict[str, str]]], path: str) -> Iterator[Answer]:
    """The answers of a file's rows, by the names of its columns; errors name the line."""
    for number, row in rows:
        by_name = {name.casefold(): cell for name, cell in row.items()}
        try:
            if _is_long(by_name):
                yield _long_answer(by_name)
            else:
                yield from _wide_answers(row)
        except CCRError as error:
            raise FormatError(f"line {number} of {path}: {error}") from None


def _long_answer(row: Mapping[str, str]) -> Answer:
    value = _VALUES.get(row["answer"].casefold())
    if value is None:
        raise CCRError(f"the answer must be yes, no or unknown, got {row['answer']!r}: correct the cell")
    for name in ("concept",) if row.get("photo") else ("class", "concept"):
        if not row.get(name):
            raise CCRError(f"every answer needs a {name}, got an empty cell: fill it in, or delete the line")
        check_name(row[name], f"a {name}'s name")
    time_of(row.get("at", ""))
    source = row.get("source") or ("person" if row.get("by") else "file")
    facts = {name: row.get(name, "") for name in ("by", "at", "photo")}
    return Answer(row.get("class", ""), row["concept"], _WORDS[value], source, **facts)


def _wide_answers(row: Mapping[str, str]) -> Iterator[Answer]:
    (heading, name), *cells = row.items()
    if not name:
        raise CCRError(f"every row needs a {heading}, got an empty cell: fill it in, or delete the line")
    for other, cell in cells:
        if not cell:
            continue
        value = _VALUES.get(cell.casefold())
        if value is None:
            raise CCRError(f"a cell must be yes, no or empty, got {cell!r} in the column {other!r}: correct it")
        label, concept = (name, other) if heading.casefold() == "class" else (other, name)
        yield Answer(label, concept, _WORDS[value])
