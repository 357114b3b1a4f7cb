from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ccr.errors import CCRError, FormatError
from ccr.vocab import embed_concepts, random_words, read_concepts
from ccr.vocab.lists import WORDS_FILE, _plain, concept_line, control_words
from tests.data.helpers import PixelEncoder


@pytest.fixture
def write(tmp_path):
    def _write(content):
        file = tmp_path / "concepts.txt"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    return _write


def test_one_concept_a_line(write):
    text = "\ufeff# colours\r\nred skin\r\n\r\n  round  \r\ncafe\u0301\r\na#b\r\n{} <b>'\"\r\n"
    assert read_concepts(write(text)) == ["red skin", "round", "café", "a#b", "{} <b>'\""]


def test_comments_end_a_line_and_signs_inside_words_stay(write):
    text = "red skin # seen in most\n  # all of it\nround\t#\nC#\n#1 seed\na#b\n"
    assert read_concepts(write(text)) == ["red skin", "round", "C#", "a#b"]


@pytest.mark.parametrize(
    ("content", "kind", "message"),
    [
        ("red\ngreen\nRED\n", CCRError, "lines 1 and 3"),
        ("caf\u00e9\ncafe\u0301\n", CCRError, "lines 1 and 2"),
        ("x" * 201, CCRError, "at most 200 characters, got 201 in line 1"),
        ("# only this\n\n", FormatError, "has no concepts"),
        (b"\xff\xfe\x00", FormatError, "UTF-8"),
        ("a\x00b", CCRError, "control character in line 1"),
    ],
)
def test_bad_lists_are_explained(write, content, kind, message):
    with pytest.raises(kind, match=message):
        read_concepts(write(content))


def test_a_missing_list_is_explained(tmp_path):
    with pytest.raises(FormatError, match=r"none\.txt cannot be read"):
        read_concepts(tmp_path / "none.txt")


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Z"]), min_size=1, max_size=20)


@given(st.lists(names, min_size=1, max_size=10))
def test_what_is_read_is_unique_trimmed_and_read_again(tmp_path_factory, concepts):
    file = tmp_path_factory.mktemp("v") / "c.txt"
    file.write_text("\n".join(concepts), encoding="utf-8")
    with suppress(CCRError):
        read = read_concepts(file)
        assert all(concept == concept.strip() and not concept.startswith("#") for concept in read)
        assert len({concept.casefold() for concept in read}) == len(read)
        file.write_text("\r\n".join(read), encoding="utf-8", newline="")
        assert read_concepts(file) == read


def test_concepts_are_embedded_as_they_stand_or_in_a_template():
    encoder = PixelEncoder()
    concepts = embed_concepts(["red", "{}"], encoder)
    assert concepts.names == ("red", "{}")
    assert np.allclose(concepts.embeddings, encoder.embed_texts(["red", "{}"]))
    prompted = embed_concepts(["red", "{}"], encoder, template="a photo of {}")
    assert np.allclose(prompted.embeddings, encoder.embed_texts(["a photo of red", "a photo of {}"]))
    with pytest.raises(CCRError, match="exactly once"):
        embed_concepts(["red"], encoder, template="a photo")


def test_embedding_many_concepts_tells_how_far_it_is():
    names, told = [f"word {number}" for number in range(600)], []
    concepts = embed_concepts(names, PixelEncoder(), tell=lambda *step: told.append(step))
    assert np.allclose(concepts.embeddings, PixelEncoder().embed_texts(names))
    assert told == [(done, 600, "embedding concepts") for done in (256, 512, 600)]


@pytest.mark.parametrize(
    "other", ["red  skin", "red\u00a0skin", "\ufeffred skin", "re\u200bd skin", "red skin\u200e", "re\u200dd skin"]
)
def test_lines_that_look_the_same_are_the_same(write, other):
    assert read_concepts(write(f"round\n{other}\n")) == ["round", "red skin"]
    with pytest.raises(CCRError, match="lines 1 and 2"):
        read_concepts(write(f"red skin\n{other}\n"))


def test_joiners_that_are_part_of_the_spelling_stay(write):
    words = ["\u0645\u06cc\u200c\u062e\u0648", "क्\u200dष", "👩\u200d🌾"]
    assert read_concepts(write("\n".join(words))) == words


@given(st.text(st.sampled_from("e é\u0301\u200d\u200c\u200e\u00a0\u212a#"), max_size=12))
def test_a_line_that_was_read_reads_as_itself(text):
    assert _plain(_plain(text)) == _plain(text)


def test_control_words_are_there_whatever_the_list_uses():
    words = read_concepts(WORDS_FILE)
    few = ["red skin", words[0]]
    assert control_words(64, texts=few) == random_words(64, seed=0, exclude=few)
    long = [f"red {word}" for word in words[1:]] + [words[0]]
    found = control_words(len(long), texts=long)
    assert len(set(found)) == len(long)
    assert words[0] not in found


@given(st.lists(st.text("ab #\\\\", min_size=1, max_size=8), min_size=1, max_size=5, unique_by=str.casefold))
def test_lines_are_read_as_they_were_written(names):
    names = list(dict.fromkeys(" ".join(name.split()) for name in names if name.split()))
    assume(names)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "list.txt"
        path.write_text("".join(map(concept_line, names)), encoding="utf-8")
        assert read_concepts(path) == names
