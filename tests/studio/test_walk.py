"""Defects that a walk through the studio found, by the API: each of these was wrong once."""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from ccr.classifier import ConceptClassifier
from ccr.coding import HardThreshold
from ccr.concepts import Concepts
from ccr.data.store import EmbeddingStore
from ccr.knowledge import Answer, Knowledge
from ccr.model import ConceptModel
from ccr_studio.service.guards import SIGN_IN, access_for
from ccr_studio.serving import NOBODY, POLICY, opening_page, studio_app
from ccr_studio.work.session import HONEST
from ccr_studio.work.workbench import OtherStep, Workbench
from tests.data.helpers import PixelEncoder
from tests.studio.helpers import CLASSES, CONCEPTS, client_of, finish, make_bench

TOKEN = "a-token-of-some-length"


def test_a_refit_is_compared_with_the_opened_model_refitted_alike(client: TestClient, bench: Workbench) -> None:
    before = client.get("/api/effect?against=base").json()
    assert before["before_flattered"]
    assert before["flattered"]
    assert "may have been trained on these photos" in client.get("/api/exports/report.html").text
    client.post("/api/refit", json={})
    finish(bench)
    after = client.get("/api/effect?against=base").json()
    assert (after["before_version"], after["before_flattered"], after["flattered"]) == (HONEST, False, False)
    assert client.get("/api/effect?against=opened").json()["before_flattered"]
    assert not client.get("/api/state").json()["flattered"]
    assert "may have been trained on these photos" not in client.get("/api/exports/report.html").text
    # Nothing was changed before the refit, so it is that very model.
    assert np.array_equal(bench.at(HONEST).model.head.coef, bench.now().model.head.coef)


def test_a_weight_that_was_set_to_zero_stays_zero_in_every_refit(bench: Workbench) -> None:
    model = bench.now().model
    number, column = np.unravel_index(model.head.coef.argmax(), model.head.coef.shape)
    concept, label = model.names[column], str(model.classes[number])
    bench.edit("zero_weight", {"concept": concept, "name": label})
    for _ in range(2):
        bench.refit("full", {})
        finish(bench)
        now = bench.now().model
        assert concept not in now.names or now.head.coef[number, now.row(concept)] == 0
    assert now.shown is None  # answers that only forbid say nothing of what photos show
    if concept not in now.names:
        bench.add(concept)
    bench.edit("set_weight", {"concept": concept, "name": label, "value": 1.0})  # a reason again
    bench.refit("full", {})
    finish(bench)
    again = bench.now().model
    assert again.head.coef[number, again.row(concept)] > 0


def test_a_second_lesson_counts_the_photos_of_the_first(bench: Workbench, client: TestClient) -> None:
    bench.teach("word 3", [0, 1, 2], [20, 21, 22])
    bench.teach("word 3", [3, 20], [23])
    page = client.get("/api/concept", params={"name": "word 3"}).json()
    assert page["lesson"]["shows"] == [0, 1, 2, 3, 20]
    assert page["lesson"]["lacks"] == [21, 22, 23]
    assert 0 <= page["lesson"]["error"] <= 1
    assert bench.now().model.provenance.edits[-1]["lacks"] == [21, 22, 23]
    bench.edit("rename", {"concept": "word 3", "to": "stripe"})
    assert client.get("/api/concept", params={"name": "stripe"}).json()["lesson"]["lacks"] == [21, 22, 23]


def test_undo_takes_back_only_the_step_that_was_meant(client: TestClient, bench: Workbench) -> None:
    names = bench.now().model.names
    mine = bench.edit("suppress", {"concept": names[0]}).version
    theirs = bench.edit("suppress", {"concept": names[1]}).version
    refused = client.post("/api/undo", json={"version": mine})
    assert refused.status_code == 409
    assert "meanwhile" in refused.json()["error"]
    assert bench.now().version == theirs
    with pytest.raises(OtherStep):
        bench.undo(expected=mine)
    assert client.post("/api/undo", json={"version": theirs}).status_code == 200
    assert bench.now().version == mine


def test_a_studio_that_only_shows_follows_the_one_that_writes(
    store: EmbeddingStore, model: ConceptModel, bench: Workbench, tmp_path: Path
) -> None:
    reader = make_bench(store, None, tmp_path, read_only=True)
    name = bench.now().model.names[0]
    bench.edit("suppress", {"concept": name})
    assert reader.now().version == bench.now().version
    assert name not in reader.now().model.names
    assert [step.id for step in reader.session.steps] == [step.id for step in bench.session.steps]
    bench.undo()
    assert reader.now().version == "0"
    assert name in reader.snapshot()[1].model.names
    reader.close()


def test_fidelity_is_measured_again_after_an_edit(client: TestClient, bench: Workbench) -> None:
    fitted = {line["name"]: line["fidelity"] for line in client.get("/api/concepts").json()["concepts"]}
    gone = bench.now().model.names[0]
    bench.edit("suppress", {"concept": gone})
    now = {line["name"]: line["fidelity"] for line in client.get("/api/concepts").json()["concepts"]}
    assert now.keys() == fitted.keys() - {gone}
    assert all(found == pytest.approx(fitted[name], abs=0.02) for name, found in now.items())


def test_the_report_names_every_class_and_all_its_reasons(
    store: EmbeddingStore, model: ConceptModel, bench: Workbench
) -> None:
    from ccr_studio.api.bench import report_html

    seen = bench.now()
    rows = bench.photos.validation[seen.truth[bench.photos.validation] != seen.number("plum")]
    html = report_html(seen, rows, "validation", "report", flattered=False)
    assert "Classes without validation photos" in html
    assert "plum" in html.split("Classes without")[1][:200]
    line = next(part for part in html.split("<tr>") if part.startswith("<td") and "plum" in part.split("</td>")[0])
    reasons = [
        name for name, weight in zip(model.names, model.head.coef[seen.number("plum")], strict=True) if weight > 0
    ]
    assert reasons
    assert all(name.split("<")[0] in line for name in reasons)


def test_a_person_without_the_token_is_asked_for_it(bench: Workbench) -> None:
    from dataclasses import replace

    access = replace(access_for("127.0.0.1", TOKEN, policy=POLICY + NOBODY), asks=True)
    client = TestClient(studio_app(bench, access=access), base_url="http://127.0.0.1")
    person = {"Accept": "text/html,*/*"}
    asked = client.get("/", headers=person)
    assert asked.status_code == 401
    assert 'name="token"' in asked.text
    assert TOKEN not in asked.text
    assert client.get("/api/state", headers=person).json()["error"]  # a program's path stays a program's
    wrong = client.post(SIGN_IN, data={"token": "another"}, follow_redirects=False)
    assert wrong.status_code == 401
    assert "not the token" in wrong.text
    assert "set-cookie" not in wrong.headers
    assert client.post(SIGN_IN, data={"token": "x" * 20_000}).status_code == 401
    assert client.post(SIGN_IN, data={"token": TOKEN}, headers={"Host": "evil.example"}).status_code == 421
    right = client.post(SIGN_IN, data={"token": TOKEN}, headers={"Origin": "null"}, follow_redirects=False)
    assert (right.status_code, right.headers["Location"]) == (303, "/")
    assert client.get("/api/state").status_code == 200  # by the cookie


def test_the_page_that_brings_the_token_is_for_its_owner_alone() -> None:
    with opening_page("http://127.0.0.1:8642/", 'a"token<of>some&length') as path:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert 'action="http://127.0.0.1:8642/sign-in"' in path.read_text()
        assert "a&quot;token&lt;of&gt;some&amp;length" in path.read_text()
    assert not path.exists()


def test_expected_refusals_are_quiet_for_the_page_alone(client: TestClient) -> None:
    loud = client.get("/api/concept?name=nothing")
    quiet = client.get("/api/concept?name=nothing", headers={"X-Refusals": "quiet"})
    assert (loud.status_code, quiet.status_code, quiet.headers["X-Refused"]) == (422, 200, "422")
    assert quiet.json() == loud.json()


def test_words_are_searched_with_what_is_known_of_them(
    store: EmbeddingStore, client: TestClient, tmp_path: Path
) -> None:
    told = [Answer(name, "word 3", "yes" if name == "plum" else "no", "person") for name in CLASSES]
    texts = Concepts(CONCEPTS, PixelEncoder().embed_texts(CONCEPTS))
    options = {"knowledge": Knowledge.of(told), "coder": HardThreshold(length=6), "max_iter": 3, "random_state": 0}
    bench = make_bench(
        store, ConceptClassifier(texts, **options).fit(store.select("train")).model_, tmp_path / "knowing"
    )
    knowing = client_of(bench)
    found, bare = (one.get("/api/search", params={"words": "word 3", "limit": 20}).json() for one in (knowing, client))
    plums = [sum(photo["truth"] == "plum" for photo in one["photos"]) for one in (found, bare)]
    assert plums[0] > plums[1]
    assert (found["grounded"], bare["grounded"]) == (True, False)
    assert not knowing.get("/api/search", params={"words": "a new word"}).json()["grounded"]
    bench.close()
