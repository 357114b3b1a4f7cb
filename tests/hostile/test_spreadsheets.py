"""Every CSV that ccr writes is inert in a spreadsheet and in a terminal, and its numbers are numbers."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest

import ccr
from ccr.explain.terms import Contribution
from ccr.photos.run import Prediction, write_table
from ccr.utils.texts import from_cell, has_control, to_cell
from ccr_lab.experiments.cache import records_csv
from ccr_studio.work.corrections import Corrections

FORMULAS = [
    '=HYPERLINK("http:x")',
    "+cmd/-rf.jpg",
    "-2+3",
    "@at",
    "\t=1",
    "\r=1",
    "'=1",
    "a\x1b[2Jb",
    "\u202e=1",
    "\uff1d1+1",
    "\uff20at",
]


def assert_inert(text: str, numbers: tuple[str, ...]) -> None:
    """No cell begins as a formula unless it is a number, and none has a control character."""
    for row in csv.DictReader(io.StringIO(text, newline="")):
        for name, cell in row.items():
            assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", f"{name}{cell}"), cell
            if cell and cell[0] in "=+-@\t\r\uff1d\uff0b\uff0d\uff20":
                assert name.startswith(numbers), (name, cell)
                float(cell)


@pytest.mark.parametrize("name", FORMULAS)
def test_predictions_do_not_compute(name: str) -> None:
    """`ccr predict --out x.csv` wrote classes, concepts and paths as they are."""
    term = Contribution(concept=name, code=0.5, weight=-1.0, contribution=-0.5)
    item = Prediction(
        path=name, prediction=name, probability=0.7, runner_up=name, runner_up_probability=0.3,
        logit=-1.5, bias=-1.0, concepts=(term,), others=-0.0, error=None,
    )  # fmt: skip
    stream = io.BytesIO()
    write_table(stream, ".csv", [item, item], explained=1, classes=np.array([name]))
    text = stream.getvalue().decode()
    assert_inert(text, ("logit", "bias", "contribution", "others"))
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert len(rows) == 2
    assert float(rows[0]["logit"]) == -1.5
    assert from_cell(rows[0]["prediction"]) == from_cell(to_cell(name))


@pytest.mark.parametrize("name", FORMULAS)
def test_records_of_studies_do_not_compute(name: str) -> None:
    text = records_csv(
        [{name: name, "value": -0.25, "count": 3}, {name: None, "value": np.float32(-1.5), "count": None}]
    )
    assert_inert(text, ("value", "count"))
    rows = list(csv.reader(io.StringIO(text)))
    assert rows[1][1:] == ["-0.25", "3"]
    assert rows[2] == ["", "-1.5", ""]


@pytest.mark.parametrize("name", [name for name in FORMULAS if not has_control(name)])
def test_corrections_do_not_compute(name: str, tmp_path: Path) -> None:
    corrections = Corrections(tmp_path / "corrections.jsonl")
    corrections.add(1, name, "concept", "yes", concept=name, by=name)
    text = corrections.csv()
    assert_inert(text, ("row",))
    assert next(csv.DictReader(io.StringIO(text)))["concept"] == to_cell(name)


def test_every_module_that_writes_a_table_writes_its_cells_alike() -> None:
    """Each has a test of its own; a new writer is reminded of the one function that makes texts inert."""
    source = Path(ccr.__file__).parents[1]
    writers = [path for path in source.glob("ccr*/**/*.py") if re.search(r"csv\.(Dict)?[wW]riter\(", path.read_text())]
    assert len(writers) > 1
    assert [path.name for path in writers if "to_cell(" not in path.read_text()] == []
