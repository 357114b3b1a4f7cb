"""What is printed of numbers: a probability is never rounded up to certainty."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccr.utils.texts import percent, share_text


@given(st.floats(0, 1), st.integers(0, 2))
def test_only_more_than_99_9_is_called_so_and_nothing_is_100(probability: float, digits: int) -> None:
    shown = percent(probability, digits=digits)
    assert "100" not in shown
    assert shown.startswith(">") == (probability >= 0.9995)
    if not shown.startswith(">"):
        assert abs(float(shown[:-1]) / 100 - probability) <= 0.005 + 1e-9


def test_digits() -> None:
    assert [percent(value) for value in (0, 0.934, 0.984, 0.9949, 0.9996)] == ["0%", "93%", "98%", "99.5%", ">99.9%"]
    assert percent(0.5, digits=1) == "50.0%"


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0%"), (0.12, "12%"), (0.994, "99.4%"), (0.99999, ">99.9%"), (1.0, "100%")]
)
def test_a_share_is_all_only_where_it_is(share: float, text: str) -> None:
    assert share_text(share) == text
