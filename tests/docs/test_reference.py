"""The reference says what docstrings say, in the style of this project and in numpydoc's."""

from __future__ import annotations

from tools.site.docstrings import numpydoc


def test_words_after_the_colon_become_a_description() -> None:
    text = "Sum.\n\nParameters\n----------\nlength : how many, from 1.\nsign : which; both\n    are allowed.\n"
    moved = "Sum.\n\nParameters\n----------\nlength\n    how many, from 1.\nsign\n    which; both\n    are allowed."
    assert numpydoc(text) == moved


def test_types_stay_types() -> None:
    text = "Sum.\n\nParameters\n----------\nout : str or Path\n    The folder.\nval, test : float\n    Shares."
    assert numpydoc(text) == text


def test_docstrings_without_parameters_stay() -> None:
    assert numpydoc("One line: with a colon.") == "One line: with a colon."
