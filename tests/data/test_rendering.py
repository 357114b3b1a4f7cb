"""Pictures of words, and the files that keep embeddings of texts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccr.data.encoders.rendering import render
from ccr.data.encoders.text_cache import TextCache


def ink(picture):
    """Where a picture is not white: (224, 224)."""
    return np.asarray(picture.convert("L")) < 255


def box(picture):
    """First and last inked row and column."""
    rows, columns = (np.flatnonzero(ink(picture).any(axis=axis)) for axis in (1, 0))
    return rows[0], rows[-1], columns[0], columns[-1]


@pytest.mark.parametrize("text", ["red", "a photo of long curved bill", "supercalifragilistic", "word " * 40])
def test_words_are_centred_whole_and_large(text):
    picture = render(text)
    assert picture.size == (224, 224)
    top, bottom, left, right = box(picture)
    assert min(top, left) >= 4
    assert max(bottom, right) <= 219
    assert abs(left + right - 223) <= 6
    assert abs(top + bottom - 223) <= 24  # letters with tails hang below the line


def test_words_are_wrapped_before_they_shrink():
    one, three = box(render("striped")), box(render("striped striped striped"))
    assert three[1] - three[0] > 3 * (one[1] - one[0])
    assert abs((three[3] - three[2]) - (one[3] - one[2])) <= 2


@pytest.mark.parametrize(
    "text", ["苹果", "яблоко", "red 🍎", "\u03b1", "", "  ", "a\u200bb", "a" * 200, "\uffff", "\ud800"]
)
def test_what_the_font_lacks_or_cannot_fit_is_not_drawn(text):
    assert render(text) is None


def test_accents_and_spaces_change_no_picture():
    assert render("café  au lait").tobytes() == render("cafe\u0301 au\tlait ").tobytes()
    assert render("café").tobytes() == render("cafe").tobytes()
    assert render("cafe").tobytes() != render("cafo").tobytes()


@given(st.text(max_size=60))
def test_every_text_has_a_picture_or_none(text):
    picture = render(text)
    assert picture is None or (ink(picture).any() and not ink(picture)[:, [0, -1]].any())


KEYS = st.lists(st.one_of(st.none(), st.text(max_size=8)), min_size=2, max_size=2)
ROWS = st.lists(st.floats(width=32, allow_nan=False), min_size=3, max_size=3)


@given(st.lists(st.tuples(KEYS, ROWS), max_size=5))
def test_the_cache_answers_as_a_dictionary_does(tmp_path_factory, entries):
    cache, known = TextCache(tmp_path_factory.mktemp("texts"), 3), {}
    for key, row in entries:
        cache.keep(np.array(row, dtype=np.float32), *key)
        known[tuple(key)] = np.array(row, dtype=np.float32)
    assert all(cache.get(*key).tobytes() == row.tobytes() for key, row in known.items())
    assert cache.get("never", "kept", "as three words") is None


@pytest.mark.parametrize("damage", [b"", b"x", b"x" * 44, b"x" * 45])
def test_a_damaged_file_counts_as_absent(tmp_path, damage):
    cache, row = TextCache(tmp_path, 3), np.arange(3, dtype=np.float32)
    cache.keep(row, "red")
    (path,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    path.write_bytes(damage)
    assert cache.get("red") is None
    cache.keep(row, "red")
    assert np.array_equal(cache.get("red"), row)
    assert TextCache(tmp_path, 4).get("red") is None


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path):
    (tmp_path / "file").touch()
    cache = TextCache(tmp_path / "file", 3)
    cache.keep(np.zeros(3, dtype=np.float32), "red")
    assert cache.get("red") is None
