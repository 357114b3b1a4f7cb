"""The review by the API: claims, evidence, decisions, refits without what was rejected, signature, and roles."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from ccr.data.store import EmbeddingStore
from ccr.model import ConceptModel
from ccr_studio.work.workbench import Workbench
from tests.studio.helpers import client_of, finish, make_bench


def claims_of(client: TestClient, by: str = "ann") -> list[dict[str, Any]]:
    found = client.get("/api/claims", params={"by": by}).json()
    return [claim for one in found["classes"] for claim in one["claims"]]


def decide(client: TestClient, claim: dict[str, Any], answer: str, by: str = "ann", **more: Any) -> None:
    body = {"by": by, "class": claim["class"], "concept": claim["concept"], "answer": answer, **more}
    answered = client.post("/api/decisions", json=body)
    assert answered.status_code == 200, answered.text


def test_every_positive_weight_is_a_claim_with_photos(client: TestClient, bench: Workbench) -> None:
    model, seen = bench.now().model, bench.now()
    claims = claims_of(client)
    assert len(claims) == int((model.head.coef > 0).sum())
    one = claims[0]
    found = client.get("/api/claim", params={"class": one["class"], "concept": one["concept"]}).json()
    assert all(photo["truth"] == one["class"] for photo in found["mine"])
    assert all(photo["truth"] != one["class"] for photo in found["others"])
    assert all(seen.photos.open[photo["row"]] for photo in found["mine"] + found["others"])
    assert 0 <= found["purity"] <= 1
    assert isinstance(client.get("/api/claims/next", params={"class": one["class"]}).json()["concepts"], list)


def test_rejected_claims_are_gone_after_the_refit_and_the_rest_can_be_signed(
    client: TestClient, bench: Workbench
) -> None:
    before = claims_of(client)
    first = before[0]
    assert client.get("/api/review/round").json()["number"] == 0
    decide(client, first, "no", reason="background")
    assert client.post("/api/sign", json={"by": "ann"}).status_code == 422
    client.post("/api/review/refit")
    finish(bench)
    pairs = {(one["class"], one["concept"]) for one in claims_of(client)}
    assert (first["class"], first["concept"]) not in pairs
    asked, changed = {(one["class"], one["concept"]) for one in before}, client.get("/api/review/round").json()
    assert {(one["class"], one["concept"]) for one in changed["gone"]} == asked - pairs
    assert {(one["class"], one["concept"]) for one in changed["new"]} == pairs - asked
    effect = client.get("/api/effect?against=base").json()  # the opened model may be trained on these photos
    assert (changed["number"], changed["honest"]) == (1, True)
    assert [changed[name] for name in ("before", "after", "n")] == [effect[name] for name in ("before", "after", "n")]
    for _ in range(6):
        left = [one for one in claims_of(client) if one["state"] == "open"]
        if not left:
            break
        for one in left:
            decide(client, one, "yes")
    signed = client.post("/api/sign", json={"by": "ann"})
    assert signed.status_code == 200, signed.text
    assert signed.json()["signed"]
    table = client.get("/api/signature").json()["signature"]
    assert len(table["may"]) == len(pairs)
    assert any(one["concept"] == first["concept"] for one in table["never"])
    rows = list(csv.DictReader(io.StringIO(client.get("/api/exports/claims.csv").text)))
    assert {(one["class"], one["concept"], one["by"]) for one in rows if one["answer"] == "yes"} == {
        (*pair, "ann") for pair in pairs
    }
    never = [(one["class"], one["concept"], one["state"], one["reason"]) for one in rows if one["answer"] == "no"]
    assert (first["class"], first["concept"], "rejected", "background") in never
    found = client.get("/api/exports/claims.json").json()
    assert (found["signed"], found["signature"]["by"], len(found["claims"])) == (True, "ann", len(rows))
    bench.edit("suppress", {"concept": bench.now().model.names[0]})
    assert client.get("/api/signature").json()["signature"] is None  # any edit ends it


def test_every_refit_forbids_what_was_rejected_until_it_is_taken_back(client: TestClient, bench: Workbench) -> None:
    """The refit of the bench brought a rejected claim back, and that of the review kept one that was taken back."""
    first = claims_of(client)[0]
    pair = (first["class"], first["concept"])
    decide(client, first, "no")
    client.post("/api/refit", json={})
    finish(bench)
    assert pair not in {(one["class"], one["concept"]) for one in claims_of(client)}
    assert not bench.session.flattered()
    client.post("/api/decisions/undo", json={"by": "ann"})
    client.post("/api/review/refit")
    finish(bench)
    assert pair in {(one["class"], one["concept"]) for one in claims_of(client)}


def test_a_refit_with_only_what_was_confirmed_leaves_nothing_open_and_names_thin_classes(
    client: TestClient, bench: Workbench
) -> None:
    by_class = {name: [one for one in claims_of(client) if one["class"] == name] for name in bench.now().classes}
    first, *rest = (found for found in by_class.values() if len(found) > 1)
    for one in [first[0], *(one for found in rest for one in found)]:  # of the first class, a single reason
        decide(client, one, "yes")
    confirmed = {(one["class"], one["concept"]) for one in claims_of(client) if one["state"] == "confirmed"}
    client.post("/api/review/refit?claims=confirmed")
    finish(bench)
    assert {(one["class"], one["concept"]) for one in claims_of(client)} <= confirmed
    found = client.get("/api/claims", params={"by": "ann"}).json()
    assert found["blocking"] == 0
    reasons = {name: len([pair for pair in confirmed if pair[0] == name]) for name in bench.now().classes}
    thin = {one["class"]: one["reasons"] for one in found["thin"]}
    assert thin.keys() >= {name for name, count in reasons.items() if count < 2}
    assert thin[first[0]["class"]] <= 1


def test_reviewers_are_blind_until_they_decide_and_undo_their_own(client: TestClient) -> None:
    one = claims_of(client)[0]
    decide(client, one, "yes", by="ann")
    assert claims_of(client, "ben")[0]["votes"] == []
    decide(client, one, "no", by="ben")
    assert claims_of(client, "ben")[0]["state"] == "disputed"
    client.post("/api/decisions/undo", json={"by": "ben"})
    assert claims_of(client, "ann")[0]["state"] == "confirmed"
    assert client.post("/api/decisions/undo", json={"by": "ben"}).status_code == 422


def test_decisions_outlive_undo_and_a_new_start(
    store: EmbeddingStore, client: TestClient, bench: Workbench, tmp_path: Path
) -> None:
    one = claims_of(client)[0]
    bench.edit("pin", {"concept": bench.now().model.names[-1]})
    decide(client, one, "yes")
    bench.undo()
    assert claims_of(client)[0]["state"] == "confirmed"
    # Another studio that takes answers alone, beside the one that writes.
    other = make_bench(store, None, tmp_path, read_only=True, decides=True)
    theirs = client_of(other)
    assert claims_of(theirs)[0]["state"] == "confirmed"
    decide(theirs, claims_of(theirs)[1], "no", by="ben")
    assert claims_of(client, "ben")[1]["state"] == "rejected"
    for path in ("review/refit", "undo"):
        assert theirs.post(f"/api/{path}").status_code == 403
    assert theirs.post("/api/sign", json={"by": "ben"}).status_code == 403
    other.close()


def test_a_studio_that_only_shows_takes_no_answers(store: EmbeddingStore, bench: Workbench, tmp_path: Path) -> None:
    reader = make_bench(store, None, tmp_path, read_only=True)
    client = client_of(reader)
    one = claims_of(client)[0]
    body = {"by": "ann", "class": one["class"], "concept": one["concept"], "answer": "yes"}
    assert client.post("/api/decisions", json=body).status_code == 403
    reader.close()


def test_a_concept_that_was_taught_anew_is_asked_again_and_a_renamed_one_is_not(
    client: TestClient, bench: Workbench
) -> None:
    claims = claims_of(client)
    taught = claims[0]
    renamed = next(one for one in claims if one["concept"] != taught["concept"])
    for one in (taught, renamed):
        decide(client, one, "yes")
    bench.teach(taught["concept"], [0, 1, 2], [20, 21, 22])
    bench.edit("rename", {"concept": renamed["concept"], "to": "another name"})
    states = {(one["class"], one["concept"]): one["state"] for one in claims_of(client)}
    assert states[taught["class"], taught["concept"]] == "open"
    assert states[renamed["class"], "another name"] == "confirmed"


@pytest.mark.parametrize("name", ["apple", "plum"])
def test_a_class_has_a_page(client: TestClient, bench: Workbench, name: str) -> None:
    page, seen = client.get("/api/class", params={"name": name}).json(), bench.now()
    own = (seen.truth == seen.number(name)) & seen.photos.open
    assert (page["photos"], page["right"]) == (int(own.sum()), int((own & seen.right).sum()))
    assert all(photo["truth"] == name for photo in page["portraits"])
    assert client.get("/api/class?name=nothing").status_code == 422


@pytest.mark.parametrize(
    ("policy", "states"), [("one", ["confirmed"] * 3), ("two", ["open", "confirmed", "confirmed"])]
)
def test_as_many_must_agree_as_the_policy_says(
    store: EmbeddingStore, model: ConceptModel, tmp_path: Path, policy: Any, states: list[str]
) -> None:
    bench = make_bench(store, model, tmp_path, policy=policy)
    client = client_of(bench)
    one = claims_of(client)[0]
    for by, state in zip(("ann", "ben", "cal"), states, strict=True):
        decide(client, one, "yes", by=by)
        assert claims_of(client, by)[0]["state"] == state
    decide(client, one, "no", by="cal")
    assert claims_of(client, "cal")[0]["state"] == "disputed"
    found = client.get("/api/claims", params={"by": "cal"}).json()
    assert found["policy"] == policy
    assert {(pair["first"], pair["second"], pair["share"]) for pair in found["agreements"]} == {
        ("ann", "ben", 1.0),
        ("ann", "cal", 0.0),
        ("ben", "cal", 0.0),
    }
    bench.close()


def test_all_reviewers_must_agree_by_the_policy_all(store: EmbeddingStore, model: ConceptModel, tmp_path: Path) -> None:
    bench = make_bench(store, model, tmp_path, policy="all")
    client = client_of(bench)
    one, other = claims_of(client)[:2]
    decide(client, other, "yes", by="ben")  # whoever has answered anything is asked about everything
    decide(client, one, "yes", by="ann")
    assert claims_of(client, "ann")[0]["state"] == "open"
    decide(client, one, "yes", by="ben")
    assert claims_of(client, "ann")[0]["state"] == "confirmed"
    bench.close()
