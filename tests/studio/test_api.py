"""The API: what the page asks and scripts can ask, against the library's own answers."""

from __future__ import annotations

import csv
import io
import re
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix
from starlette.testclient import TestClient

from ccr.data.store import EmbeddingStore
from ccr.model import ConceptModel
from ccr.photos.on_photos import explain_image
from ccr.vocab import read_concepts
from ccr_studio.service.guards import access_for
from ccr_studio.serving import NOBODY, POLICY, model_session, open_workbench, studio_app
from ccr_studio.work.workbench import Workbench
from tests.data.helpers import PixelEncoder, bomb_png, encoded, folder_files
from tests.studio.helpers import HOSTILE, client_of, colour_picture, finish, make_bench


def get(client: TestClient, path: str, **values: Any) -> Any:
    answer = client.get(f"/api/{path}", params=values)
    assert answer.status_code == 200, answer.text
    return answer.json()


def post(client: TestClient, path: str, body: Any = None, status: int = 200) -> Any:
    answer = client.post(f"/api/{path}", json={} if body is None else body)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_a_photo_is_an_exact_sum_and_moves_with_its_code(client: TestClient, model: ConceptModel, store: Any) -> None:
    shown, own = get(client, "photos/7"), model.explain(store[7])
    total = shown["bias"] + sum(term["contribution"] for term in shown["contributions"])
    assert total == pytest.approx(shown["logit"], abs=1e-9)
    assert shown["prediction"] == own.prediction
    assert shown["counterfactual"]["becomes"] == own.counterfactual().becomes
    other = next(name for name in model.classes.tolist() if name != own.prediction)
    assert get(client, "photos/7/contrast", other=other)["difference"] == pytest.approx(own.contrast(other).difference)
    codes = {own.active[0]: 0.0, next(name for name in model.names if name not in own.active): 0.9}
    moved, expected = post(client, "photos/7/intervene", {"codes": codes}), own.intervene(codes)
    assert moved["logit"] == pytest.approx(expected.after.logit)
    assert moved["changed"] == expected.changed
    assert {shift["concept"] for shift in moved["shifts"]} == set(codes)


def test_a_page_around_a_photo_begins_one_before_it(client: TestClient) -> None:
    asked: dict[str, Any] = {"sort": "confidence", "split": "val"}
    order = [photo["row"] for photo in get(client, "photos", **asked)["photos"]]
    for at, row in enumerate(order):
        page = get(client, "photos", around=row, limit=3, **asked)
        assert [photo["row"] for photo in page["photos"]] == order[max(at - 1, 0) : max(at - 1, 0) + 3]
        assert page["offset"] == max(at - 1, 0)
    assert get(client, "photos", around=0, **asked)["offset"] == 0  # a training photo is not among them


def test_nearest_photos_are_the_nearest_training_photos(client: TestClient, bench: Workbench) -> None:
    rows = bench.now().images.prepared.numpy()
    train = [row for row in bench.photos.training.tolist() if row != 7]
    best = sorted(train, key=lambda row: -float(rows[row] @ rows[7]))[:8]
    assert [photo["row"] for photo in get(client, "photos/7")["nearest"]] == best


def test_where_a_concept_is_adds_up_with_what_no_patch_adds(client: TestClient, bench: Workbench) -> None:
    picture = bench.photos.store.image(7)
    why = explain_image(bench.now().model, PixelEncoder(), picture)
    concept = why.where.concepts[0]
    found = get(client, "photos/7/where", concept=concept)
    np.testing.assert_allclose(found["values"], why.where.code_map(concept).map.ravel(), atol=1e-6)
    assert len(found["values"]) == found["rows"] * found["columns"]
    assert 0 <= found["left"] < found["left"] + found["width"] <= 1
    absent = next(name for name in bench.now().model.names if name not in why.where.concepts)
    refused = client.get("/api/photos/7/where", params={"concept": absent})
    assert refused.status_code == 422
    assert "does not show" in refused.json()["error"]


def test_mistakes_are_counted_as_scikit_learn_counts_them(client: TestClient, model: ConceptModel, store: Any) -> None:
    validation = store.select("val")
    expected = confusion_matrix(validation.y, model.predict(validation), labels=model.classes)
    found = get(client, "mistakes")
    assert found["counts"] == expected.tolist()
    assert found["right"] == int(np.trace(expected))
    everything = get(client, "mistakes", scope="shown")
    wrong = everything["confused"][0]
    cell = get(client, "mistakes/cell", scope="shown", truth=wrong["truth"], predicted=wrong["predicted"])
    assert cell["n"] == wrong["errors"] == len(cell["photos"])
    ahead = [model.explain(store[photo["row"]]).contrast(wrong["truth"]).difference for photo in cell["photos"]]
    assert cell["difference"] == pytest.approx(np.mean(ahead), abs=1e-5)
    assert all(term["contribution"] > 0 for term in cell["spoke_for"])


def test_a_concepts_page_agrees_with_the_librarys_audit(client: TestClient, bench: Workbench) -> None:
    model, rows = bench.now().model, np.flatnonzero(bench.photos.open)
    part = bench.photos.store.select(rows=rows)
    name = model.names[2]
    page, drift = get(client, "concept", name=name), get(client, "concept/drift", name=name)
    most = model.images_of(part, name, top=12)[name]
    assert [photo["row"] for photo in page["most"]] == [int(rows[image.row]) for image in most]
    own = next(one for one in model.audit(part).concepts if one.concept == name)
    assert drift["fidelity"] == pytest.approx(own.fidelity)
    assert (drift["gained"]["count"], drift["lost"]["count"]) == (own.gained, own.lost)
    weights = {line["class"]: line["weight"] for line in page["weights"]}
    column = model.head.coef[:, model.row(name)]
    assert weights == pytest.approx({str(c): w for c, w in zip(model.classes, column, strict=True) if w})
    assert len(get(client, "concepts")["concepts"]) == len(model.names)


def test_words_find_the_photos_that_show_them(client: TestClient, bench: Workbench) -> None:
    seen = bench.now()
    direction = seen.model.space.own_texts(PixelEncoder().embed_texts(["green thing"]))[0]
    scores = seen.images.prepared.numpy() @ direction
    shown = np.flatnonzero(bench.photos.open)
    best = shown[np.argsort(-scores[shown], kind="stable")[:5]]
    found = get(client, "search", words="  green   thing ", limit=5)
    assert [photo["row"] for photo in found["photos"]] == best.tolist()
    assert not found["known"]
    assert get(client, "search", words="word 3")["nearest"]


def test_a_dropped_photo_is_answered_like_one_of_the_store(client: TestClient, model: ConceptModel) -> None:
    picture = colour_picture("lime", 999)
    sent = client.post("/api/uploads", content=encoded(picture), headers={"X-File-Name": "my%20lime.png"})
    assert sent.status_code == 200
    key = sent.json()["id"]
    shown = get(client, f"photos/{key}")
    expected = model.explain(PixelEncoder().embed_images([picture])[0])
    assert (shown["name"], shown["prediction"]) == ("my lime.png", expected.prediction)
    assert shown["logit"] == pytest.approx(expected.logit, abs=1e-4)
    assert client.get(f"/api/thumbnails/{key}").headers["content-type"] == "image/jpeg"
    for content, status in ((b"no picture", 422), (b"", 422), (bomb_png(), 422), (b"x" * (33 << 20), 413)):
        refused = client.post("/api/uploads", content=content)
        assert refused.status_code == status
        assert refused.json()["error"]
        assert "max_pixels" not in refused.json()["error"]  # which is an argument of the library


def test_thumbnails_are_made_once_and_only_of_the_stores_own_list(client: TestClient, bench: Workbench) -> None:
    pictures = get(client, "state")["pictures"]
    first = client.get(f"/api/thumbnails/3?size=160&of={pictures}")
    assert first.content[:2] == b"\xff\xd8"
    assert "immutable" in first.headers["cache-control"]
    bench.thumbnails.store = None  # it is not asked again
    assert client.get("/api/thumbnails/3?size=160").content == first.content
    for key in ("-1", "104", "999999999999999", "..%2F..%2Fetc%2Fpasswd", "3.5", "u123", "٣"):
        assert client.get(f"/api/thumbnails/{key}").status_code in (404, 422)
    assert client.get("/api/thumbnails/3?size=7").status_code == 422


def test_edits_refit_and_effect_by_script(client: TestClient, bench: Workbench, tmp_path: Path) -> None:
    name = bench.now().model.names[0]
    assert post(client, "edits", {"action": "rename", "concept": name, "to": "stripe"})["version"] == "1"
    assert "stripe" in [line["name"] for line in get(client, "concepts")["concepts"]]
    assert post(client, "concepts", {"name": "warm light"})["position"] == 2
    job = post(client, "refit", {"fidelity": 0.9})
    assert job["state"] == "running"
    assert "a refit is running" in post(client, "undo", status=422)["error"]
    finish(bench)
    done = get(client, "refit")
    assert done["state"] == "done", done
    assert done["curve"][0]["epoch"] == 1
    effect = get(client, "effect")
    rows = bench.photos.validation
    before, after = bench.base(), bench.now()
    assert effect["before"] == pytest.approx(before.right[rows].mean())
    assert effect["after"] == pytest.approx(after.right[rows].mean())
    assert sum(line["n"] for line in effect["classes"]) == len(rows)
    for line in effect["classes"]:
        assert line["after_interval"][0] <= line["after"] <= line["after_interval"][1]
    assert post(client, "undo")["version"] == "2"
    assert post(client, "redo")["version"] == "3"
    groups = get(client, "differences", other="0")["groups"]
    assert groups["both"] + groups["first"] + groups["second"] + groups["neither"] == int(bench.photos.open.sum())
    beside = get(client, "differences/3", other="0")
    assert beside["second"]["logit"] == pytest.approx(before.explain(3).logit)
    saved = post(client, "save", {"name": "mended"})
    again = ConceptModel.load(saved["path"])
    assert [entry["action"] for entry in again.provenance.edits] == ["rename", "add", "fit"]
    assert Path(saved["path"]) == tmp_path / "models" / "mended"
    assert "exists already" in post(client, "save", {"name": "mended"}, 409)["error"]
    assert {"id": "saved:mended", "words": "saved: mended", "flattered": True} in get(client, "models")["models"]
    assert get(client, "differences", other="saved:mended")["groups"]["differ"] == 0
    for bad in ("../out", "a/b", ".hidden", "x" * 81, ""):
        assert client.post("/api/save", json={"name": bad}).status_code == 422


def test_looks_at_test_photos_are_counted_and_asked_for(client: TestClient, bench: Workbench) -> None:
    shown = get(client, "photos", limit=500)
    assert {photo["split"] for photo in shown["photos"]} == {"train", "val"}
    assert np.isnan(np.frombuffer(client.get("/api/map/colours").content, "<f4")[bench.photos.test]).all()
    assert get(client, "state")["looks"] == 0
    effect = post(client, "effect/test")
    assert (effect["n"], effect["looks"]) == (20, 1)
    assert post(client, "effect/test")["looks"] == 1  # the same look at the same model
    get(client, "photos", split="test")
    get(client, "mistakes", scope="test")
    assert get(client, "state")["looks"] == 3
    post(client, "edits", {"action": "pin", "concept": bench.now().model.names[0]})
    assert post(client, "effect/test")["looks"] == 4


def test_what_the_model_says_of_test_photos_is_counted_nowhere_unasked(client: TestClient, bench: Workbench) -> None:
    """Beside the filter of splits stood how many of them are wrong."""
    seen, test = bench.now(), bench.photos.test
    for asked in ({"right": "wrong"}, {"predicted": "apple"}, {"low": 0.9}, {"concept": "word 0", "above": 0.2}):
        assert get(client, "photos", counts=True, limit=0, **asked)["counts"]["splits"]["test"] == len(test)
    apples = int((seen.truth[test] == seen.number("apple")).sum())
    named = get(client, "photos", counts=True, limit=0, classes="apple", right="wrong")
    assert named["counts"]["splits"]["test"] == apples
    assert get(client, "state")["looks"] == 0
    wrong = get(client, "photos", counts=True, limit=0, split="test", right="wrong")
    assert wrong["counts"]["splits"]["test"] == int((~seen.right[test]).sum())
    assert get(client, "state")["looks"] == 1
    post(client, "edits", {"action": "pin", "concept": seen.model.names[0]})
    get(client, f"photos/{test[0]}")  # by its address
    get(client, f"photos/{bench.photos.training[0]}")
    assert get(client, "state")["looks"] == 2


def test_exports_can_be_read_back_and_are_inert(client: TestClient, bench: Workbench, tmp_path: Path) -> None:
    post(client, "edits", {"action": "rename", "concept": bench.now().model.names[0], "to": "=cmd()"})
    (tmp_path / "list.txt").write_bytes(client.get("/api/exports/concepts.txt").content)
    assert read_concepts(tmp_path / "list.txt") == list(bench.state.texts.names)
    table = client.get("/api/photos.csv", params={"split": "val", "sort": "confidence"})
    rows = list(csv.DictReader(io.StringIO(table.text)))
    assert [int(row["row"]) for row in rows] == bench.photos.validation[
        np.argsort(bench.now().confidence[bench.photos.validation], kind="stable")
    ].tolist()
    assert table.headers["x-model-version"] == "1"
    assert client.get("/api/exports/edits.json").json()["edits"][0]["action"] == "rename"
    report = client.get("/api/exports/report.html")
    assert HOSTILE not in report.text
    assert "attachment" in report.headers["content-disposition"]
    assert "20 validation photos" in report.text


def test_formulas_in_names_stay_text(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    from ccr_studio.api import photos as exports

    monkeypatch.setattr(bench.photos, "name", lambda row: "=HYPERLINK(1)")
    line = exports.photos_csv(bench.now(), np.array([3])).splitlines()[1]
    assert ",'=HYPERLINK(1)," in line


def test_a_lasso_gives_a_selection_that_a_link_can_name(client: TestClient, bench: Workbench) -> None:
    while get(client, "map")["state"] != "ready":
        pass
    places = np.frombuffer(client.get("/api/map/places").content, "<u2").reshape(-1, 2) / 65535
    found = post(client, "map/lasso", {"corners": [[-1, -1], [0.5, -1], [0.5, 2], [-1, 2]]})
    inside = np.flatnonzero((places[:, 0] < 0.5) & bench.photos.open)
    listed = get(client, "photos", selection=found["id"], limit=500)
    assert [photo["row"] for photo in listed["photos"]] == inside.tolist()
    assert get(client, f"selections/{found['id']}")["n"] == found["n"] == len(inside)


@pytest.mark.parametrize("path", ["photos?split=test", "mistakes?scope=test", "map", "differences?other=0&scope=test"])
@pytest.mark.parametrize("mode", ["no-cors", "navigate"])
def test_another_sites_page_cannot_have_looks_counted(
    client: TestClient, bench: Workbench, path: str, mode: str
) -> None:
    """As an <img> or a link on it asks: without Origin."""
    before = (bench.folder / "session.json").read_bytes()
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": mode}
    assert client.get(f"/api/{path}", headers=headers).status_code == 403
    assert (bench.folder / "session.json").read_bytes() == before
    assert bench.layout._thread is None  # no map was begun
    assert client.get("/", headers={**headers, "Sec-Fetch-Mode": "navigate"}).status_code == 200


@pytest.mark.parametrize(
    "path",
    ["mistakes?scpe=test", "state?x=1", "photos?splt=test", "search?words=a&lmit=2", "mistakes?scope=train&scope=test"],
)
def test_a_misspelt_argument_is_not_ignored(client: TestClient, path: str) -> None:
    """/api/mistakes?scpe=test answered for another scope."""
    answer = client.get(f"/api/{path}")
    assert answer.status_code == 422
    assert answer.json()["error"]
    assert client.get("/api/photos?classes=apple&classes=lime").status_code == 200


def test_guards_stand_before_the_studio(bench: Workbench, client: TestClient) -> None:
    page = client.get("/")
    policy = page.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert not re.search(r"<script>|\son\w+=|style=", page.text)
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 421
    origin = {"Origin": "http://evil.example"}
    assert client.post("/api/undo", headers=origin).status_code == 403
    assert client.post("/api/undo", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert client.get("/static/../app.py").status_code == 404
    assert client.get("/static/%2e%2e/app.py").status_code == 404
    token = "secret-" * 4
    app = studio_app(bench, access=access_for("0.0.0.0", token, policy=POLICY + NOBODY))
    guarded = TestClient(app, base_url="http://studio.example", follow_redirects=False)
    assert guarded.get("/api/state").status_code == 401
    assert guarded.get("/").status_code == 401
    assert guarded.get("/api/state", headers={"Authorization": f"Bearer {token}"}).status_code == 200
    opened = guarded.get("/", params={"token": token})
    assert opened.status_code == 303
    assert "HttpOnly" in opened.headers["set-cookie"]


def test_one_of_several_who_save_one_name_gets_it(client: TestClient, bench: Workbench) -> None:
    """Six at once were all answered 200, and five models were gone."""
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: client.post("/api/save", json={"name": "race"}), range(6)))
    assert sorted(answer.status_code for answer in answers) == [200, *[409] * 5]
    assert all("exists already" in answer.json()["error"] for answer in answers if answer.status_code == 409)
    assert [path.name for path in bench.models.iterdir()] == ["race"]
    assert ConceptModel.load(bench.models / "race").names == bench.now().model.names


def test_a_name_that_another_process_takes_meanwhile_is_not_replaced(
    client: TestClient, bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(*_: Any) -> None:
        (bench.models / "race").mkdir(parents=True)
        (bench.models / "race" / "theirs").write_text("theirs")

    saved = ConceptModel.save

    def save(model: ConceptModel, path: Any) -> None:
        saved(model, path)
        taken()

    monkeypatch.setattr(ConceptModel, "save", save)
    assert client.post("/api/save", json={"name": "race"}).status_code == 409
    assert [path.name for path in bench.models.rglob("*")] == ["race", "theirs"]


def test_read_only_writes_nothing_at_all(
    store: EmbeddingStore, model: ConceptModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a session in the temporary folder, nor thumbnails, maps, selections, words."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("CCR_CACHE", str(tmp_path / "cache"))
    copied = EmbeddingStore.open(shutil.copytree(store.path, tmp_path / "store"))
    before = folder_files(tmp_path)
    folder = model_session(copied, model, read_only=True)
    bench = open_workbench(copied, model, folder, read_only=True, models=tmp_path / "models")
    bench.words._load = PixelEncoder
    bench.start()
    with client_of(bench) as client:
        assert post(client, "lessons", {"name": "x", "shows": [1], "lacks": [2]}, 403)
        assert not len(bench.words._kept)  # refused before words are embedded
        looks = ["state", "photos?split=test", "mistakes?scope=test", "effect", "search?words=red", "map", "models"]
        looks += ["map/places", "thumbnails/3", "exports/report.html", "differences?other=0"]
        for path in looks:
            assert client.get(f"/api/{path}").status_code == 200, path
        post(client, "selections", {"rows": [1, 2]})
        assert client.post("/api/uploads", content=encoded(colour_picture("apple", 9))).status_code == 200
    assert folder_files(tmp_path) == before
    assert {path.name for path in tmp_path.iterdir()} == {"temporary", "store"}


def test_read_only_shows_and_changes_nothing(store: EmbeddingStore, model: ConceptModel, tmp_path: Path) -> None:
    bench = make_bench(store, model, tmp_path, read_only=True)
    client = client_of(bench)
    asked = {
        "edits": {"action": "pin", "concept": model.names[0]},
        "concepts": {"name": "new"},
        "lessons": {"name": "new", "shows": [1, 2], "lacks": [3, 4]},
        "undo": {},
        "redo": {},
        "refit": {},
        "save": {"name": "mine"},
    }
    for path, body in asked.items():
        assert "read-only" in post(client, path, body, 403)["error"]
    assert client.delete("/api/refit").status_code == 403
    assert get(client, "state")["read_only"]
    assert get(client, "photos/3")["prediction"]
    assert post(client, "photos/3/intervene", {"codes": {model.names[0]: 1.0}})
    assert post(client, "selections", {"rows": [1, 2]})["n"] == 2
    assert not (tmp_path / "session").exists()
    assert not (tmp_path / "models").exists()
    bench.close()


def test_scripts_predict_and_explain_by_the_model_as_it_is(client: TestClient, bench: Workbench) -> None:
    row = bench.photos.store[3].astype(float).tolist()
    before = client.post("/v1/explain/embedding", json={"embedding": row}).json()
    assert before["model"].endswith("(version 0)")
    assert before["logit"] == pytest.approx(bench.now().explain(3).logit, abs=1e-4)
    post(client, "edits", {"action": "suppress", "concept": before["contributions"][0]["concept"]})
    after = client.post("/v1/explain/embedding", json={"embedding": row}).json()
    assert after["model"].endswith("(version 1)")
    assert before["contributions"][0]["concept"] not in [term["concept"] for term in after["contributions"]]
    photo = encoded(colour_picture("apple", 5))
    answer = client.post("/v1/predict", files={"photos": ("a.png", photo)}).json()
    assert answer["results"][0]["prediction"]["prediction"] in bench.now().classes
    paths = client.get("/openapi.json").json()["paths"]
    assert {"/v1/predict", "/v1/explain", "/api/edits", "/api/refit", "/api/photos"} <= set(paths)


def test_below_a_proxys_prefix_all_addresses_are_relative(bench: Workbench) -> None:
    app = studio_app(bench, access=access_for("127.0.0.1", None, policy=POLICY + NOBODY), root_path="/studio")
    client = TestClient(app, base_url="http://127.0.0.1", root_path="/studio")
    page = client.get("/studio/")
    assert page.status_code == 200
    linked = re.findall(r'(?:src|href)="([^"#]+)"', page.text)
    assert len(linked) >= 5
    for address in linked:
        assert not address.startswith(("/", "http"))
        assert client.get(f"/studio/{address}").status_code == 200
    assert client.get("/studio/api/state").json()["photos"] == len(bench.photos)
    scripts = (Path(studio_app.__code__.co_filename).parent / "static").glob("*.js")
    assert not [
        path for path in scripts if re.search(r'["\'`]/(?:api|static)|https?://(?!www\.w3\.org)', path.read_text())
    ]
