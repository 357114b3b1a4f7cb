"""Concept lists in files, their embeddings, and random words to compare them with."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from ccr.core.concepts import Concepts
from ccr.data.encoders import Encoder
from ccr.errors import CCRError, FormatError

LONGEST_CONCEPT = 200
WORDS_FILE = Path(__file__).parent / "random_words.txt"


def read_concepts(path: str | Path) -> list[str]:
    """The concepts of a text file, one a line, in its order.

    Blank lines and lines that begin with # are left out; spaces around a concept are trimmed; text is brought
    to Unicode's composed form. Two concepts that differ by case alone are the same, and refused.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"{file} must be a text file in UTF-8, one concept a line: {error}") from error
    except OSError as error:
        raise FormatError(f"the concepts in {file} cannot be read: {error.strerror or error}") from error
    concepts: list[str] = []
    lines: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):  # not splitlines: only line ends end a line
        concept = unicodedata.normalize("NFC", line).strip()
        if concept and not concept.startswith("#"):
            _check(concept, number, lines, file)
            lines[concept.casefold()] = number
            concepts.append(concept)
    if not concepts:
        raise FormatError(f"{file} has no concepts: write one a line, such as 'red skin'")
    return concepts


def embed_concepts(names: Sequence[str], encoder: Encoder, *, template: str | None = None) -> Concepts:
    """The named concepts in the encoder's space, each put into `template` (None: the encoder's own) first."""
    return Concepts(names, encoder.embed_texts(names, template=template))


def random_words(n: int, *, seed: int, exclude: Iterable[str] = ()) -> list[str]:
    """n different English words that have nothing to do with images, for control experiments: the same for the same
    seed, and fewer are the first of more.

    Words that occur in one of the texts of `exclude` are left out. When the single words are used up, pairs follow.
    """
    used = {part for text in exclude for part in re.findall(r"\w+", text.casefold())}
    words = [word for word in read_concepts(WORDS_FILE) if word.casefold() not in used]
    pairs = len(words) * (len(words) - 1) // 2
    if not 1 <= n <= len(words) + pairs:
        raise CCRError(f"there are between 1 and {len(words) + pairs} random words and pairs of words, got n={n}")
    rng = np.random.default_rng(seed)
    chosen = [words[place] for place in rng.permutation(len(words))[:n]]
    if n > len(words):
        first, second = np.triu_indices(len(words), k=1)
        order = rng.permutation(pairs)[: n - len(words)]
        chosen += [f"{words[a]} {words[b]}" for a, b in zip(first[order], second[order], strict=True)]
    return chosen


def _check(concept: str, number: int, lines: dict[str, int], file: Path) -> None:
    if len(concept) > LONGEST_CONCEPT:
        raise CCRError(
            f"a concept has at most {LONGEST_CONCEPT} characters, got {len(concept)} in line {number} of "
            f"{file}: "
            f"{concept[:40]!r}...; use a few words"
        )
    if any(unicodedata.category(character) == "Cc" for character in concept):
        raise CCRError(f"a concept is plain text, got a control character in line {number} of {file}: {concept[:40]!r}")
    first = lines.get(concept.casefold())
    if first is not None:
        raise CCRError(f"concepts must be unique, got {concept!r} in lines {first} and {number} of {file}: drop one")
