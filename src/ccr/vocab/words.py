"""Random words: concepts that have nothing to do with the images, for control experiments."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ccr.errors import CCRError
from ccr.vocab.read import read_concepts

WORDS_FILE = Path(__file__).parent / "random_words.txt"


def random_words(n: int, *, seed: int, exclude: Iterable[str] = ()) -> list[str]:
    """Different English words that have nothing to do with images: the same for the same seed, and fewer of them are
    the first of more. When the single words are used up, pairs of words follow.

    Parameters
    ----------
    n : int
        How many, from 1 to the number of words and pairs of words (some 380,000).
    seed : int
        Which ones, and in which order; from 0.
    exclude : iterable of str
        Texts, such as class names: words that occur in one of them are left out.
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
