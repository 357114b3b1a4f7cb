"""`ccr claims`, and what knowledge adds to other commands, as a user types them."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ccr.data.store import EmbeddingStore
from ccr.explain.terms import MARKS, PLAIN_MARKS, Contribution, claim_marks, sum_rows, sum_text
from ccr.knowledge import Knowledge
from ccr.metrics import SHOWN
from ccr.model import ConceptModel
from ccr.show.pages import claims_in_words
from tests.cli.conftest import HOSTILE, as_json, exit_code, run


@pytest.fixture(scope="module")
def informed(model: Path, workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model as one that knows something: the first claim of every class is confirmed by a person whose name is
    a formula, the second is contradicted."""
    from dataclasses import replace

    loaded = ConceptModel.load(model)
    table = np.zeros(loaded.head.coef.shape, np.int8)
    for row, weights in enumerate(loaded.head.coef):
        first, second = np.argsort(-weights)[:2]
        table[row, first], table[row, second] = 1, -1
    known = Knowledge(loaded.classes.tolist(), loaded.names, table, source="person", by="=1+1")
    by_name = dict.fromkeys(loaded.names, 0.9) | {loaded.names[0]: 0.3, loaded.names[1]: float("nan")}
    provenance = replace(loaded.provenance, knowledge=known, transfer=by_name)
    folder = tmp_path_factory.mktemp("informed") / "model"
    replace(loaded, provenance=provenance).save(folder)
    return folder


def test_every_positive_weight_is_a_claim(informed: Path, workspace: Path) -> None:
    found = as_json("claims", informed, workspace / "store")
    loaded = ConceptModel.load(informed)
    assert len(found["claims"]) == int((loaded.head.coef > 0).sum())
    assert found["counts"] == loaded.claim_counts
    assert found["counts"]["confirmed"] == len(loaded.classes)
    assert found["knowledge"] == loaded.provenance.knowledge.digest
    assert "images of store, split" in found["measured"]
    confirmed = [claim for claim in found["claims"] if claim["status"] == "confirmed"]
    assert all(claim["source"] == "person" and claim["by"] == "=1+1" for claim in confirmed)


def test_without_a_store_it_says_where_numbers_come_from(informed: Path) -> None:
    shown = run("claims", informed, "--all")
    assert "training images" in shown.stdout


def test_a_table_is_safe_in_a_spreadsheet_and_whole(informed: Path, tmp_path: Path) -> None:
    run("claims", informed, "--out", tmp_path / "claims.csv")
    with (tmp_path / "claims.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(ConceptModel.load(informed).claims())
    assert {row["by"] for row in rows if row["status"] == "confirmed"} == {"'=1+1"}
    assert not any(cell.startswith(("=", "+", "@")) for row in rows for cell in row.values())


def test_a_page_shows_counts_and_digest_and_runs_nothing(informed: Path, tmp_path: Path) -> None:
    run("claims", informed, "--out", tmp_path / "claims.html")
    text = (tmp_path / "claims.html").read_text(encoding="utf-8")
    loaded = ConceptModel.load(informed)
    assert claims_in_words(loaded.claim_counts) in text
    assert loaded.provenance.knowledge is not None
    assert loaded.provenance.knowledge.digest in text
    assert "<script" not in text
    assert not any(name in text for name in HOSTILE if "<" in name)


def test_one_class_alone_and_bad_input(
    informed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = str(ConceptModel.load(informed).classes[0])
    found = as_json("claims", informed, "--class", name)
    assert {claim["class"] for claim in found["claims"]} == {name}
    for code, said, options in (
        (1, "no class is called", ["--class", "no such class"]),
        (1, "must end in .csv or .html", ["--out", tmp_path / "claims.txt"]),
        (1, "is a folder", ["--out", tmp_path]),
        (2, "give the store, too", ["--split", "test"]),
    ):
        assert exit_code(["claims", informed, *options], monkeypatch) == code
        assert said in " ".join(capsys.readouterr().err.split())
    for _ in range(2):  # a file of an earlier run is replaced
        done = run("claims", informed, "--out", tmp_path / "claims.csv")
        assert done.exit_code == 0


def test_a_model_without_knowledge_has_unknown_claims_alone(model: Path, workspace: Path) -> None:
    found = as_json("claims", model)
    assert found["knowledge"] is None
    assert {claim["status"] for claim in found["claims"]} == {"unknown"}
    measured = as_json("evaluate", model, workspace / "store")
    for name in ("truth", "transfer", "text_fidelity", "claims"):
        assert measured[name] is None
    assert "claims" not in run("evaluate", model, workspace / "store").stdout
    assert "transfer:" not in run("audit", model).stdout


def test_evaluate_measures_truth_transfer_and_claims(informed: Path, workspace: Path) -> None:
    found = as_json("evaluate", informed, workspace / "store", "--split", "train")
    loaded, rows = ConceptModel.load(informed), EmbeddingStore.open(workspace / "store").select("train").with_labels()
    assert rows is not None
    right, answered = 0, 0
    for row, label in zip(np.asarray(rows[:]), rows.y, strict=True):  # term by term, as an explanation shows them
        why = loaded.explain(row)
        spoke = [term for term in why.contributions if term.code > 0 and term.contribution > 0]
        number = loaded.classes.tolist().index(label)
        for term in sorted(spoke, key=lambda term: -term.contribution)[:SHOWN]:
            said = loaded.answers[number, loaded.row(term.concept)]
            right, answered = right + int(said == 1), answered + int(said != 0)
    assert answered > 0
    assert found["truth"] == pytest.approx(right / answered)
    usual = [value for value in loaded.transfer.values() if np.isfinite(value)]
    assert found["transfer"] == pytest.approx(np.mean(usual))
    assert found["claims"] == loaded.claim_counts
    assert found["text_fidelity"]["min"] <= found["text_fidelity"]["mean"]
    shown = run("evaluate", informed, workspace / "store").stdout
    assert "contradicted" in shown
    assert "transfer" in shown


def test_audit_names_concepts_that_do_not_transfer(informed: Path) -> None:
    weak = ConceptModel.load(informed).names[0]
    found = as_json("audit", informed)
    assert found["not_transferring"] == [weak]
    shown = " ".join(run("audit", informed).stdout.split())
    assert "Fidelity is not truth" in shown
    assert "fidelity is to where a concept was grounded" in shown
    assert "transfer below 0.6 (1)" in shown


def test_the_report_and_the_card_say_what_is_known(informed: Path, model: Path, workspace: Path) -> None:
    from ccr.io.hub import model_card
    from ccr.show.report import Measured, headline, report_page

    loaded = ConceptModel.load(informed)
    rows = EmbeddingStore.open(workspace / "store").with_labels()
    text = report_page(loaded, rows, images=2)
    assert claims_in_words(loaded.claim_counts) in text
    assert "Transfer below 0.6" in text
    assert "Claims: " in text
    assert "Fidelity is not truth" in text
    measured = loaded.evaluate(rows)
    for unanswered, told in ((0.4, True), (0.9, False)):  # a share of one in ten says nothing of all
        part = Measured(loaded, replace(measured, truth=1.0, unanswered=unanswered), loaded.predict(rows))
        said = " ".join(headline(part, None, None, rows.y))
        assert ("of the shown concepts with an answer" in said) is told
        assert ("transfer " in said.split("fidelity to the bare")[0]) is told
    digest = loaded.provenance.knowledge.digest
    assert digest in model_card(loaded, name="me/model")
    assert "## Claims" not in model_card(ConceptModel.load(model), name="me/model")


def test_onnx_says_its_claims(informed: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    from ccr.export.onnx_model import write_onnx

    loaded = ConceptModel.load(informed)
    found = write_onnx(loaded, tmp_path / "model.onnx")
    assert found["knowledge"] == loaded.provenance.knowledge.digest
    assert [claim["status"] for claim in json.loads(found["claims"])] == [claim.status for claim in loaded.claims()]


def test_the_service_says_the_claim_of_every_term(informed: Path, model: Path, workspace: Path) -> None:
    from ccr_studio.service.answers import explanation

    row = np.asarray(EmbeddingStore.open(workspace / "store")[0])
    loaded = ConceptModel.load(informed)
    served = explanation("m", loaded, row, against=None, top=10).contributions
    assert [term.claim for term in served] == [term.claim for term in loaded.explain(row).contributions[:10]]


def test_marks_stand_only_where_something_is_known(informed: Path, model: Path, workspace: Path) -> None:
    row = np.asarray(EmbeddingStore.open(workspace / "store")[0])
    without, known = ConceptModel.load(model).explain(row), ConceptModel.load(informed).explain(row)
    assert not any(sign in f"{without}{without._repr_html_()}" for sign in ("✓", "✗"))
    assert [row.claim for row in sum_rows(0.0, known.contributions, 99, informed=True) if row.term is not None] == [
        term.claim for term in known.contributions
    ]
    assert any(sign in known._repr_html_() for sign in MARKS.values())


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "no-such-encoding"])
def test_a_terminal_without_the_signs_gets_words(encoding: str) -> None:
    assert claim_marks(encoding) == PLAIN_MARKS
    assert claim_marks("utf-8") == claim_marks(None) == MARKS
    terms = (Contribution("stem", 1.0, 2.0, 2.0, "confirmed"), Contribution("leaf", 1.0, 1.0, 1.0, "contradicted"))
    text = sum_text("pear", sum_rows(0.0, terms, 5), 3.0, encoding=encoding)
    assert text.isascii()
    assert "stem yes" in text
    assert "leaf no" in text
