"""Concept lists in text files, their embeddings, and random words to compare them with."""

from __future__ import annotations

import io
import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from ccr.concepts import Concepts
from ccr.encoders import Encoder
from ccr.errors import CCRError, FormatError
from ccr.io.files import read_regular
from ccr.utils.processes import OnProgress, no_progress
from ccr.utils.texts import check_name

LONGEST_CONCEPT = 200
#: From a # that begins a line or follows a space; "C#" is a text.
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*", re.DOTALL)
#: There, a backslash makes it part of the concept: "\\#1 tag".
_ESCAPED, _ESCAPES = re.compile(r"(?:^|(?<=\s))\\(\\*#)"), re.compile(r"(?:^|(?<=\s))(\\*#)")
_SPACES = re.compile("[ \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]+")
#: Between letters or signs that are not ASCII's, a joiner is part of the spelling: in Persian, Hindi and emoji.
_JOINERS = "\u200c\u200d"
_LONE_JOINER = re.compile(rf"(?<![^\x00-\x7f{_JOINERS}])[{_JOINERS}]|[{_JOINERS}](?![^\x00-\x7f{_JOINERS}])")
#: Texts embedded between two steps of a progress bar: many, because those of equal length are embedded together.
BATCH = 256


def read_concepts(path: str | Path) -> list[str]:
    """Read the concepts of a text file, one per line, in its order.

    Blank lines and comments, from a # at the start or after a space, are left out; a backslash before the # makes it
    part of the concept. Spaces around a concept are trimmed, and those in it are single; invisible characters
    are dropped; text is brought to Unicode's composed form. Two concepts that differ by case alone are the same, and
    refused.

    Parameters
    ----------
    path : a file in UTF-8 of at least one concept, each of at most 200 characters without control characters.
    """
    file = Path(path)
    lines: dict[str, int] = {}
    numbered = concept_lines(file)
    for number, concept in numbered:
        _check(concept, number, lines, file)
        lines[concept.casefold()] = number
    return [concept for _, concept in numbered]


def concept_lines(file: Path) -> list[tuple[int, str]]:
    """The concepts of a text file as they stand, repeated ones too, each with the number of its line, from 1."""
    try:
        text = io.TextIOWrapper(io.BytesIO(read_regular(file)), encoding="utf-8-sig").read()
    except UnicodeDecodeError as error:
        raise FormatError(f"{file} must be a text file in UTF-8, one concept per line: {error}") from error
    except OSError as error:
        raise FormatError(f"the concepts in {file} cannot be read: {error.strerror or error}") from error
    lines = enumerate(text.split("\n"), start=1)  # not splitlines: only line ends end a line
    stripped = ((number, _ESCAPED.sub(r"\1", _COMMENT.sub("", _plain(line)).strip())) for number, line in lines)
    concepts = [(number, line) for number, line in stripped if line]
    if not concepts:
        raise FormatError(f"{file} has no concepts: write one per line, such as 'red skin'")
    return concepts


def concept_line(name: str) -> str:
    """A concept as a line of a text file that `read_concepts` reads."""
    return _ESCAPES.sub(r"\\\1", name) + "\n"


def _plain(line: str) -> str:
    """A line in composed form, with plain single spaces and without characters that take no room: two lines that look
    the same are the same."""
    visible = "".join(sign for sign in line if sign in _JOINERS or unicodedata.category(sign) != "Cf")
    text = _LONE_JOINER.sub("", unicodedata.normalize("NFC", _SPACES.sub(" ", visible)))
    return _SPACES.sub(" ", unicodedata.normalize("NFC", text))


def embed_concepts(
    names: Sequence[str], encoder: Encoder, *, template: str | None = None, tell: OnProgress = no_progress
) -> Concepts:
    """Embed the names of concepts: `Concepts` in the encoder's space.

    Parameters
    ----------
    names : the n concepts' names: different, not empty.
    encoder : what embeds them, into d dimensions; as `load_encoder` gives it.
    template : a text that holds {} once, where the name goes, such as "a photo of {}". None: the encoder's own.
    tell : called as the work goes on with (names embedded, names in all, what is being done).
    """
    rows = []
    for start in range(0, max(len(names), 1), BATCH):  # once for no names at all: the encoder knows their shape
        part = names[start : start + BATCH]
        rows.append(encoder.embed_texts(part, template=template))
        tell(start + len(part), len(names), "embedding concepts")
    return Concepts(names, np.concatenate(rows))


def _check(concept: str, number: int, lines: dict[str, int], file: Path) -> None:
    if len(concept) > LONGEST_CONCEPT:
        raise CCRError(
            f"a concept has at most {LONGEST_CONCEPT} characters, got {len(concept)} in line {number} of {file}: "
            f"{concept[:40]!r}...; use a few words"
        )
    if any(unicodedata.category(character) == "Cc" for character in concept):
        raise CCRError(f"a concept is plain text, got a control character in line {number} of {file}: {concept[:40]!r}")
    check_name(concept, f"the concept in line {number} of {file}")
    first = lines.get(concept.casefold())
    if first is not None:
        raise CCRError(f"concepts must be unique, got {concept!r} in lines {first} and {number} of {file}: drop one")


WORDS_FILE = Path(__file__).parent / "random_words.txt"


def random_words(n: int, *, seed: int, exclude: Iterable[str] = ()) -> list[str]:
    """Different English words that have nothing to do with images: the same for the same seed, and fewer of them are
    the first of more. When the single words are used up, pairs of words follow.

    Parameters
    ----------
    n : how many, from 1 to the number of words and pairs of words (some 380,000).
    seed : which ones, and in which order; from 0.
    exclude : texts, such as class names: words that occur in one of them are left out.
    """
    used = {word for text in exclude for word in re.findall(r"\w+", text.casefold())}
    words = [word for word in read_concepts(WORDS_FILE) if word.casefold() not in used]
    pairs = len(words) * (len(words) - 1) // 2
    if not 1 <= n <= len(words) + pairs:
        raise CCRError(f"there are between 1 and {len(words) + pairs} random words and pairs of words, got n={n}")
    rng = np.random.default_rng(seed)
    chosen = [words[index] for index in rng.permutation(len(words))[:n]]
    if n > len(words):
        first, second = np.triu_indices(len(words), k=1)
        order = rng.permutation(pairs)[: n - len(words)]
        chosen += [f"{words[a]} {words[b]}" for a, b in zip(first[order], second[order], strict=True)]
    return chosen


def control_words(n: int, *, texts: Iterable[str]) -> list[str]:
    """`n` random words, the same ones always, that occur in none of these texts; or, where the texts have used up too
    many of them, that are none of these texts as a whole."""
    known = list(texts)
    try:
        return random_words(n, seed=0, exclude=known)
    except CCRError:
        return random_words(n, seed=0, exclude=[text for text in known if re.fullmatch(r"\w+", text)])
