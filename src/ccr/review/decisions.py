"""Decisions: what reviewers answered about the claims of models, as an append-only log of JSON lines.

A line is a decision (who, when, class, concept, answer, reason, which model) or takes one back. Lines are never
changed: the log survives refits, another model of the same list, several writers at once and a crash amid a line.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

import numpy as np

from ccr.concepts import Concepts
from ccr.errors import CCRError, FormatError, WriteError
from ccr.explain.terms import PlainResult
from ccr.io.files import MOST_BYTES, lock, open_regular
from ccr.knowledge import UNSEEN, Answer, Knowledge, Verdict
from ccr.metrics import cohens_kappa
from ccr.utils.texts import check_name, timestamp, visible

Reply = Literal["yes", "no", "unclear"]
Reason = Literal["", "background", "wrong of this class", "true of all classes", "not to be seen", "never"]
#: Number of reviewers who must agree: one, two, or all that are in the log.
Policy = Literal["one", "two", "all"]
REPLIES, REASONS, POLICIES = get_args(Reply), get_args(Reason), get_args(Policy)
#: Sources whose answers count as a reviewer's own; those of a language model and WordNet are to be confirmed.
TRUSTED = ("person", "file", UNSEEN)
#: A sketch of a concept's embedding: products with so many fixed directions, in units of `STEP`. Embedded again on
#: another machine a text moves by about 1e-6; taught by other photos it moves by more than `SAME` units.
SKETCH, STEP, SAME = 16, 1e-4, 10
_DIGEST = re.compile("(?:[0-9a-fA-F]{4})*")
#: Reviewers whose answers are compared with each other's, at most: pairs grow with their square.
MOST_COMPARED = 20
#: Between the names of reviewers who agree.
_JOIN = " and "
#: State of a log that was not read yet.
_NEVER: tuple[int, ...] = ()
_REMEDY = "mend or delete that line; the others stay as they are"


@dataclass(frozen=True)
class Decision(PlainResult):
    """One answer of one reviewer to "the class `label` shows `concept`?"; `label` None is every class at once.

    `model` is the digest of the model that made the claim, `digest` that of the concept (`concept_digests`): a concept
    that was taught anew has another one, and is asked again.
    """

    id: str
    by: str
    at: str
    label: str | None
    concept: str
    answer: Reply
    reason: Reason = ""
    model: str = ""
    digest: str = ""


@dataclass(frozen=True)
class Vote:
    """One reviewer's answer about a claim; `source` is person, or the source that a table of knowledge names."""

    by: str
    answer: Reply
    reason: Reason
    at: str
    source: str = "person"


@dataclass(frozen=True)
class ReviewerAgreement(PlainResult):
    """Agreement of two reviewers on the `questions` that both answered: the `share` of equal answers, and Cohen's
    `kappa`, which is 0 for chance; None where it is not defined."""

    first: str
    second: str
    questions: int
    share: float | None
    kappa: float | None


class Dispute(NamedTuple):
    """A claim that somebody confirms and somebody else rejects."""

    label: str
    concept: str
    votes: tuple[Vote, ...]


@lru_cache(maxsize=8)
def _directions(dimensions: int) -> np.ndarray:
    return np.random.default_rng(38).standard_normal((dimensions, SKETCH))


@lru_cache(maxsize=4)
def concept_digests(concepts: Concepts) -> dict[str, str]:
    """A sketch of every concept's embedding, its text's or what photos taught, in hexadecimal digits, by name;
    `same_concept` compares two. A hash would take the last digit of a float for another concept. Known for the last
    lists, for every answer asks for them."""
    rows = np.asarray(concepts.embeddings, np.float64)
    values = np.round(rows @ _directions(rows.shape[1]) / STEP).clip(-32_768, 32_767).astype(">i2")
    return {name: row.tobytes().hex() for name, row in zip(concepts.names, values, strict=True)}


def same_concept(first: str, second: str) -> bool:
    """Whether two digests are of one concept; an empty digest, of an answer by words alone, fits all."""
    if not first or not second or first == second:
        return True
    if len(first) != len(second):
        return False
    one, two = (np.frombuffer(bytes.fromhex(text), ">i2").astype(int) for text in (first, second))
    return bool(np.abs(one - two).max() <= SAME)


class Decisions:
    """The decisions of a log.

    Parameters
    ----------
    path : the file, made by the first decision; None keeps decisions in memory alone.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = None if path is None else Path(path)
        self._all: dict[str, Decision] = {}
        self._undone: set[str] = set()
        self._stamps: set[tuple[str, str]] = set()
        self._offset, self._lines, self._taken, self._read = 0, 0, hashlib.sha256(), _NEVER
        self._effective: tuple[Decision, ...] | None = None
        self._groups: tuple[tuple[Decision, ...], dict[str, list[Decision]], dict[str, None]] | None = None
        self._lock = threading.RLock()  # a server's threads share one log
        self.refresh()

    def __len__(self) -> int:
        """Decisions that were not taken back."""
        return len(self.effective)

    def __iter__(self) -> Iterator[Decision]:
        """The decisions that were not taken back, oldest first."""
        return iter(self.effective)

    @property
    def effective(self) -> tuple[Decision, ...]:
        """The decisions that were not taken back, oldest first."""
        if self._effective is None:
            self._effective = tuple(one for one in self._all.values() if one.id not in self._undone)
        return self._effective

    @property
    def reviewers(self) -> tuple[str, ...]:
        """Reviewers, in the order of their first decisions."""
        return tuple(self._grouped[1])

    def refresh(self) -> None:
        """Read what was added since, by other writers too; all of it, where lines were changed. A damaged line is said
        each time, until it is mended. A last line that a crash left unfinished does not count."""
        if self.path is None:
            return
        with self._lock:
            content, read = self._content(self.path)
            if read == self._read:
                return
            if hashlib.sha256(content[: self._offset]).digest() != self._taken.digest():
                self._forget()
            self._take(content[self._offset :])
            self._read = read

    def _content(self, path: Path) -> tuple[bytes, tuple[int, ...]]:
        """The bytes of the log, none where there is no file, and what changes when they do; no bytes of a log that is
        as it was."""
        try:
            with open_regular(path, MOST_BYTES) as stream:
                found = os.fstat(stream.fileno())
                read = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
                return (b"" if read == self._read else stream.read()), read
        except (FileNotFoundError, NotADirectoryError):
            return b"", (0,)
        except OSError as error:
            raise FormatError(f"{path} cannot be read ({error.strerror}): check the path") from None

    def decide(
        self,
        label: Any,
        concept: str,
        answer: str,
        *,
        by: str,
        reason: str = "",
        model: str = "",
        digest: str = "",
    ) -> Decision:
        """Log an answer about the class `label`, None: every class. It is on the disk when this returns."""
        said = {"class": None if label is None else str(label), "concept": concept, "answer": answer, "reason": reason}
        made = _checked(
            {"id": secrets.token_hex(8), "by": by, "at": timestamp(), **said, "model": model, "digest": digest}
        )
        self._append([made.to_dict()])
        return made

    def strike(self, concept: str, *, by: str, model: str = "", digest: str = "") -> Decision:
        """Log that the concept is never a reason for any class; a later decision about one class counts over it."""
        return self.decide(None, concept, "no", by=by, reason="never", model=model, digest=digest)

    def undo(self, id: str | None = None, *, by: str) -> Decision:
        """Take back a reviewer's decision, by default the last one, by another line of the log."""
        self.refresh()
        own = [one for one in self.effective if one.by == by]
        found = own[-1] if own and id is None else next((one for one in own if one.id == id), None)
        if found is None:
            what = "no decision is left" if id is None else f"no decision {visible(str(id))!r} of theirs is there"
            raise CCRError(f"only a reviewer's own decisions can be taken back, and for {visible(by)!r} {what}")
        self._append([{"undo": found.id, "by": by, "at": timestamp()}])
        return found

    def of(self, concepts: Concepts | None) -> Decisions:
        """The decisions that are about these concepts as they are now, under the names that they have now; None: all.

        A decision is left out if the concept of its name was taught anew since; it follows a concept that was only
        renamed. The result is in memory alone.
        """
        if concepts is None:
            return self
        digests = concept_digests(concepts)
        kept, names = Decisions(), dict[tuple[str, str], str | None]()
        kept._stamps = self._stamps
        for one in self.effective:
            known = (one.concept, one.digest)
            if known not in names:
                names[known] = _name_now(one, digests)
            if names[known] is not None:
                kept._all[one.id] = replace(one, concept=cast(str, names[known]))
        return kept

    def votes(
        self, label: Any, concept: str, *, known: Knowledge | None = None, viewer: str | None = None
    ) -> tuple[Vote, ...]:
        """The last answer of every reviewer about a claim, and of a table `known` the one that it has from somebody.

        A `viewer` who has not decided yet sees the table's alone: reviewers are blind to each other until then.
        """
        table: dict[str, Vote] = {}
        told = None if known is None else known.find(label, concept)
        if told is not None and told.source in TRUSTED and told.answer != "unknown" and not self._is_own(told):
            name = told.by or told.source
            reason: Reason = "not to be seen" if told.source == UNSEEN else ""
            table[name] = Vote(name, told.answer, reason, told.at, told.source)
        said: dict[str, Vote] = {}
        for one in self._grouped[0].get(concept, ()):
            if one.label is None or one.label == str(label):
                said[one.by] = Vote(one.by, one.answer, one.reason, one.at)
        if viewer is not None and viewer not in table | said:
            return tuple(vote for name, vote in table.items() if name not in said)
        return tuple((table | said).values())

    def verdict(self, votes: Sequence[Vote], policy: Policy = "one") -> Reply | Literal["disputed", "open"]:
        """Verdict of the votes about a claim: yes or no where enough reviewers agree and none says the opposite."""
        check_policy(policy)
        said = {vote.answer for vote in votes}
        if {"yes", "no"} <= said:
            return "disputed"
        answers: tuple[Literal["yes", "no"], ...] = ("yes", "no")
        for answer in answers:
            count = sum(vote.answer == answer for vote in votes)
            enough = count >= (2 if policy == "two" else 1)
            if policy == "all":
                enough = 0 < count == len(votes) and {vote.by for vote in votes} >= set(self.reviewers)
            if enough:
                return answer
        return "unclear" if "unclear" in said else "open"

    def knowledge(
        self,
        policy: Policy = "one",
        *,
        classes: Iterable[Any] | None = None,
        concepts: Concepts | None = None,
        known: Knowledge | None = None,
    ) -> Knowledge:
        """Decisions as knowledge, source person: the verdicts of yes and no by this policy.

        `classes` are those that a concept that was struck is "no" for, by default those of the log; `concepts`, if
        given, leaves out what was decided before a concept was taught anew. With a table `known` the result is that
        table, decided: where reviewers dispute it or find it unclear, it says nothing.
        """
        check_policy(policy)
        own = self.of(concepts)
        every = [str(label) for label in classes] if classes is not None else own._labels
        asked = {(label, one.concept) for one in own for label in (every if one.label is None else [one.label])}
        said = [own._told(label, concept, policy, known) for label, concept in sorted(asked)]
        rest = [one for one in known or () if one.photo or not ((one.label, one.concept) in asked or own._is_own(one))]
        return Knowledge.of([*rest, *(one for one in said if one is not None)])

    def agreements(self) -> tuple[ReviewerAgreement, ...]:
        """Agreement of each pair of reviewers; of many reviewers, of the `MOST_COMPARED` who answered most."""
        most = {by for by, _ in Counter(one.by for one in self.effective).most_common(MOST_COMPARED)}
        said = {by: self._said(by) for by in self.reviewers if by in most}
        return tuple(_agreement(*pair, said) for pair in combinations(said, 2))

    def agreement(self, first: str, second: str) -> ReviewerAgreement:
        """Agreement of two reviewers on what both answered; a concept that both struck counts as one question."""
        return _agreement(first, second, {by: self._said(by) for by in (first, second)})

    def disputes(self, *, known: Knowledge | None = None) -> tuple[Dispute, ...]:
        """The claims on which somebody says yes and somebody else no."""
        asked = {(label, one.concept) for one in self for label in (self._labels if one.label is None else [one.label])}
        found = [Dispute(label, concept, self.votes(label, concept, known=known)) for label, concept in sorted(asked)]
        return tuple(one for one in found if self.verdict(one.votes) == "disputed")

    @property
    def _labels(self) -> list[str]:
        return sorted({one.label for one in self.effective if one.label is not None})

    @property
    def _grouped(self) -> tuple[dict[str, list[Decision]], dict[str, None]]:
        """The decisions by concept, oldest first, and the reviewers; made anew when there are others."""
        now = self.effective
        if self._groups is None or self._groups[0] is not now:
            by_concept: dict[str, list[Decision]] = {}
            for one in now:
                by_concept.setdefault(one.concept, []).append(one)
            self._groups = (now, by_concept, dict.fromkeys(one.by for one in now))
        return self._groups[1:]

    def _told(self, label: str, concept: str, policy: Policy, known: Knowledge | None) -> Answer | None:
        votes = self.votes(label, concept, known=known)
        verdict = self.verdict(votes, policy)
        if verdict not in ("yes", "no"):
            return None
        agreed = [vote for vote in votes if vote.answer == verdict]
        here = [vote.at for vote in agreed if (vote.by, vote.at) in self._stamps]
        if not here:  # the table's own answer, which nobody here shares or disputes
            return None if known is None else known.find(label, concept)
        names = _JOIN.join(vote.by for vote in agreed)
        return Answer(label, concept, cast(Verdict, verdict), "person", names, max(here))

    def _is_own(self, answer: Answer) -> bool:
        """Whether a table has this answer from the log, by way of a model that was fitted with it: there it counts."""
        return any((name, answer.at) in self._stamps for name in answer.by.split(_JOIN))

    def _said(self, by: str) -> dict[tuple[str | None, str], Reply]:
        """A reviewer's last answers by class and concept; a strike takes the place of those before it."""
        said: dict[tuple[str | None, str], Reply] = {}
        for one in (one for one in self.effective if one.by == by):
            if one.label is None:
                for question in [question for question in said if question[1] == one.concept]:
                    said[question] = one.answer
            said[one.label, one.concept] = one.answer
        return said

    def _forget(self) -> None:
        self._all, self._undone, self._stamps = {}, set(), set()
        self._offset, self._lines, self._taken, self._read = 0, 0, hashlib.sha256(), _NEVER
        self._effective = None

    def _take(self, added: bytes) -> None:
        """Read whole lines; the rest is the beginning of one that is being written, or that a crash cut off."""
        *whole, _ = added.split(b"\n")
        for line in whole:
            if line.strip():
                self._read_line(line, self._lines + 1)
            self._lines += 1
            self._offset += len(line) + 1
            self._taken.update(line + b"\n")

    def _read_line(self, line: bytes, number: int) -> None:
        try:
            fields = json.loads(line)
            if not isinstance(fields, dict):
                raise CCRError(f"a line is one JSON object, got {type(fields).__name__}")
            self._remember(fields)
        except (ValueError, RecursionError) as error:
            reason = str(error) if isinstance(error, CCRError) else "it is no JSON"
            raise FormatError(f"line {number} of {self.path} is damaged: {visible(reason)}; {_REMEDY}") from None

    def _remember(self, fields: Mapping[str, Any]) -> None:
        self._effective = None
        if "undo" in fields:
            found = self._all.get(str(fields["undo"]))
            if found is None or found.by != fields.get("by"):
                raise CCRError(f"it takes back {fields['undo']!r}, which is no earlier decision of theirs")
            self._undone.add(found.id)
            return
        made = _checked(fields)
        self._all.setdefault(made.id, made)
        self._stamps.add((made.by, made.at))

    def _append(self, lines: Sequence[Mapping[str, Any]]) -> None:
        if self.path is None:
            for line in lines:
                self._remember(line)
            return
        self.refresh()  # a damaged log is said before anything is added
        append_lines(self.path, lines)
        self.refresh()


def append_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Append objects to a log, each as a line of JSON: all of them are on disk when this returns, or none."""
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
    with _appending(path) as handle:
        _write(handle, text)


def check_policy(policy: Any) -> None:
    """Refuse a policy that is none."""
    if policy not in POLICIES:
        raise CCRError(f"a policy is one of {', '.join(POLICIES)} (how many reviewers must agree), got {policy!r}")


def _checked(fields: Mapping[str, Any]) -> Decision:
    """The decision of a line; an error that names what is wrong with it."""
    names = ("id", "by", "at", "concept", "answer", "reason", "model", "digest")
    texts, label = {name: fields.get(name, "") for name in names}, fields.get("class")
    for name, text in {**texts, "class": "" if label is None else label}.items():
        if not isinstance(text, str):
            raise CCRError(f"a decision's {name} must be a text, got {text!r}")
        check_name(text, f"a decision's {name}")
    for name in ("id", "by", "concept"):
        if not texts[name].strip():
            raise CCRError(f"a decision's {name} must not be empty: say who decided (by) about which concept")
    if label is not None and not label.strip():
        raise CCRError("a decision is about a class, or None for every class, got an empty name")
    answer, reason = texts["answer"], texts["reason"]
    if answer not in REPLIES:
        raise CCRError(f"an answer is one of {', '.join(REPLIES)}, got {answer!r}")
    if reason not in REASONS:
        raise CCRError(f"a reason is one of {', '.join(REASONS[1:])}, or none, got {reason!r}")
    if reason and answer != "no":
        raise CCRError(f"a reason is for the answer no, got {answer!r} because of {reason!r}: leave the reason out")
    if (label is None) != (reason == "never"):
        raise CCRError('only a concept that is struck for every class (None) has the reason "never": use strike')
    if _DIGEST.fullmatch(texts["digest"]) is None:
        raise CCRError(f"a concept's digest is made of hexadecimal digits, got {texts['digest']!r}")
    bare = {"by": texts["by"].strip(), "concept": texts["concept"].strip()}
    return Decision(label=None if label is None else label.strip(), **cast(Any, {**texts, **bare}))


def _name_now(one: Decision, digests: Mapping[str, str]) -> str | None:
    """The name under which a decision's concept is in a list; None where it is not there, or was taught anew."""
    if one.concept in digests:
        return one.concept if same_concept(one.digest, digests[one.concept]) else None
    if not one.digest:
        return None
    return next((name for name, digest in digests.items() if same_concept(one.digest, digest)), None)


def _agreement(
    first: str, second: str, said: Mapping[str, Mapping[tuple[str | None, str], Reply]]
) -> ReviewerAgreement:
    asked = {**said[first], **said[second]}
    pairs = [(_answer(said[first], *question), _answer(said[second], *question)) for question in sorted(asked, key=str)]
    both = [(one, two) for one, two in pairs if one is not None and two is not None]
    share = sum(one == two for one, two in both) / len(both) if both else None
    return ReviewerAgreement(first, second, len(both), share, cohens_kappa(both))


def _answer(said: Mapping[tuple[str | None, str], Reply], label: str | None, concept: str) -> Reply | None:
    return said.get((label, concept), said.get((None, concept)))


@contextmanager
def _appending(path: Path) -> Iterator[int]:
    """The file, open for appending whole lines by one writer at a time; an unfinished last line is taken away."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists()
        # Not through a link: a folder from elsewhere would choose which file is written to.
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
        handle = os.open(path, flags, 0o666)
        try:
            lock(handle)
            _drop_unfinished(handle)
            yield handle
        finally:
            os.close(handle)  # and with it the lock
        if is_new and os.name == "posix":  # the name of a new file must last, too
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        remedy = "check the path, its permissions and the free space"
        raise WriteError(error.errno or errno.EIO, f"{path} cannot be written ({reason}): {remedy}") from error


def _write(handle: int, text: bytes) -> None:
    """Append the text durably; nothing of it stays where the disk has no room for all."""
    before = os.fstat(handle).st_size
    try:
        if os.write(handle, text) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, before)
        raise


def _drop_unfinished(handle: int) -> None:
    """Cut the file after its last whole line: what follows is of a writer that was killed, and was never confirmed."""
    end = os.fstat(handle).st_size
    place, tail = end, b""
    while place and b"\n" not in tail:
        start = max(0, place - 4096)
        os.lseek(handle, start, os.SEEK_SET)
        tail, place = os.read(handle, place - start) + tail, start
    kept = place + tail.rfind(b"\n") + 1
    if kept < end:
        os.ftruncate(handle, kept)
