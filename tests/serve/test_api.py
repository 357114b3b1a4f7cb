"""The API says what the library says, refuses in words, and its schema is complete."""

from __future__ import annotations

import re

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from ccr import ConceptClassifier, Concepts, HardThreshold, Knowledge
from ccr.knowledge import Answer
from ccr_studio.service.app import create_app
from ccr_studio.service.guards import access_for
from ccr_studio.service.limits import NotReady, RequestLimits
from ccr_studio.service.service import Served, Service
from tests.data.helpers import PixelEncoder, bomb_png, encoded
from tests.serve.conftest import ADDRESS, COLOURS, coloured, photo


def rows_of(names: list[str], seeds: range) -> np.ndarray:
    return np.vstack([PixelEncoder().embed_images([coloured(name, seed)]) for name in names for seed in seeds])


def test_a_photo_is_predicted_as_by_the_library(client: TestClient, served: Served) -> None:
    answer = client.post("/v1/predict", files=[("photos", photo("red"))], params={"classes": 3, "concepts": 2})
    assert answer.status_code == 200
    body = answer.json()
    assert body["model"] == "colours"
    (result,) = body["results"]
    assert result["name"] == "red-100.png"
    row = PixelEncoder().embed_images([PixelEncoder().crop(coloured("red", 100))])
    explanation = served.model.explain(row[0])
    found = result["prediction"]
    assert found["prediction"] == explanation.prediction == "red"
    assert found["probability"] == pytest.approx(explanation.probability, abs=1e-6)
    assert [item["name"] for item in found["classes"]] == [
        served.model.classes[at] for at in np.argsort(-explanation.probabilities)
    ]
    assert found["runner_up"] == found["classes"][1]["name"]
    assert [term["concept"] for term in found["contributions"]] == [
        term.concept for term in explanation.contributions[:2]
    ]


def test_many_photos_come_back_in_order_and_a_bad_one_says_why(client: TestClient) -> None:
    files = [("photos", photo(name)) for name in COLOURS]
    files.insert(1, ("photos", ("no.png", b"not an image", "image/png")))
    results = client.post("/v1/predict", files=files).json()["results"]
    assert [item["name"] for item in results] == ["red-100.png", "no.png", "green-100.png", "blue <b>-100.png"]
    assert [item["prediction"] and item["prediction"]["prediction"] for item in results] == [
        "red", None, "green", "blue <b>",
    ]  # fmt: skip
    assert "not an image" in results[1]["error"]


def test_embeddings_are_predicted_and_explained_as_by_the_library(client: TestClient, served: Served) -> None:
    rows = rows_of(list(COLOURS), range(200, 202))
    answer = client.post("/v1/predict/embeddings", json={"embeddings": rows.tolist()})
    predictions = [item["prediction"] for item in answer.json()["results"]]
    assert predictions == served.model.predict(rows).tolist()
    explained = client.post("/v1/explain/embedding", json={"embedding": rows[0].tolist(), "against": "green"}).json()
    own = served.model.explain(rows[0])
    total = explained["bias"] + sum(term["contribution"] for term in explained["contributions"])
    assert total + explained["other_contributions"] == pytest.approx(explained["logit"])
    assert explained["logit"] == pytest.approx(own.logit)
    assert explained["contrast"]["difference"] == pytest.approx(own.contrast("green").difference)
    change = own.counterfactual()
    assert (explained["counterfactual"] is None) == (change is None)
    if change is not None:
        assert explained["counterfactual"] == pytest.approx(change.to_dict())


def test_thresholds_by_concept_and_probabilities_are_those_of_the_library(limits: RequestLimits) -> None:
    """Of a model with answers about photos: a threshold for each concept, and how likely an image shows it."""
    X = rows_of(list(COLOURS), range(30))
    concepts = Concepts([f"shade {row}" for row in range(12)], X[::8][:12])
    scores = X @ concepts.embeddings.T
    told = [
        Answer("", name, "yes" if score > np.quantile(scores[:, column], 0.8) else "no", "person", photo=str(row))
        for column, name in enumerate(concepts.names)
        for row, score in list(enumerate(scores[:, column].tolist()))[column::9]
    ]
    options = {"knowledge": Knowledge.of(told), "min_probability": 0.3, "max_iter": 12, "random_state": 0}
    y = np.repeat(list(COLOURS), 30)
    model = ConceptClassifier(concepts, coder=HardThreshold(length=4), **options).fit(X, y).model_
    assert len(np.unique(model.rule.bounds)) > 1
    service = Service(lambda: Served("told", model, PixelEncoder()), limits=limits)
    rows, said = rows_of(list(COLOURS), range(200, 202)), 0
    with TestClient(create_app(service, access=access_for("127.0.0.1", None)), base_url=ADDRESS) as client:
        for row in rows:
            answer = client.post("/v1/explain/embedding", json={"embedding": row.tolist(), "top": 9}).json()
            terms = model.explain(row).contributions
            assert [(one["concept"], one["stated"]) for one in answer["contributions"]] == [
                (term.concept, term.stated) for term in terms
            ]
            assert [one["shown"] for one in answer["contributions"]] == pytest.approx([one.shown for one in terms])
            said += len(terms)
    assert said


def test_a_photo_is_embedded_and_explained(client: TestClient, served: Served) -> None:
    body = client.post("/v1/embed", files=[("photos", photo("green"))]).json()
    assert body["fingerprint"] == PixelEncoder().fingerprint
    row = body["results"][0]["embedding"]
    by_row = client.post("/v1/explain/embedding", json={"embedding": row, "top": 3}).json()
    by_photo = client.post("/v1/explain", files={"photo": photo("green")}, data={"top": "3"}).json()
    assert by_photo == by_row
    assert len(by_photo["contributions"]) <= 3


def test_health_metrics_and_the_model_itself(client: TestClient, served: Served) -> None:
    assert client.get("/health").json() == {"status": "ok", "model": "colours", "waiting": 0}
    client.post("/v1/predict", files=[("photos", photo("red")), ("photos", photo("green"))])
    client.get("/made-up-path")
    text = client.get("/metrics").text
    assert "ccr_photos_total 2" in text
    assert 'ccr_requests_total{route="predict",status="200"} 1' in text
    assert 'ccr_requests_total{route="other",status="404"} 1' in text
    assert "made-up" not in text
    info = client.get("/v1/model").json()
    assert info["classes"] == sorted(COLOURS)
    assert info["concepts"] == list(served.model.names)
    assert info["reads_photos"] is True


@pytest.mark.parametrize(
    ("path", "options", "said"),
    [
        ("/v1/predict", {}, "photos: Field required"),
        ("/v1/predict", {"files": [("photos", ("x.png", b"", "image/png"))]}, "the file is empty"),
        ("/v1/predict", {"files": [("photos", photo("red"))] * 7}, "may have 6 photos, got 7"),
        ("/v1/predict", {"files": [("photos", ("x.png", bomb_png(), "image/png"))]}, "more than the limit"),
        ("/v1/predict?classes=-1", {"files": [("photos", photo("red"))]}, "classes"),
        ("/v1/explain", {"files": {"photo": photo("red")}, "data": {"against": "gren"}}, "did you mean 'green'"),
        ("/v1/explain", {"files": {"photo": photo("red")}, "data": {"top": "many"}}, "top"),
        ("/v1/predict/embeddings", {"json": {"embeddings": []}}, "at least 1 item"),
        ("/v1/predict/embeddings", {"json": {"embeddings": [[1.0]]}}, "has 16 numbers, got 1"),
        ("/v1/predict/embeddings", {"json": {"embeddings": [[1.0] * 16] * 9}}, "may have 8 embeddings, got 9"),
        ("/v1/predict/embeddings", {"content": b'{"embeddings": [[NaN]]}'}, "finite number"),
        ("/v1/predict/embeddings", {"json": {"embeddings": [[1.0] * 16], "rows": 2}}, "Extra inputs"),
        ("/v1/predict/embeddings", {"content": b"{" * 100_000}, "lists and objects"),
        ("/v1/predict/embeddings", {"content": b"{" * 4_000}, "body"),
        ("/v1/explain/embedding", {"content": b'{"embedding": [1, 2], "against": "\\ud800"}'}, "against"),
        ("/v1/explain/embedding", {"json": {"embedding": [0.0] * 16}}, ""),
    ],
)  # fmt: skip
def test_what_cannot_be_worked_with_is_refused_in_words(
    client: TestClient, path: str, options: dict, said: str
) -> None:
    headers = {} if "files" in options else {"Content-Type": "application/json"}
    answer = client.post(path, headers=headers, **options)
    assert 400 <= answer.status_code < 500, answer.text
    assert said in answer.json()["error"]


def test_a_photo_larger_than_the_limit_is_refused_before_it_is_decoded(client: TestClient) -> None:
    answer = client.post("/v1/predict", files=[("photos", ("x.png", encoded(Image.new("L", (1200, 1200))), "x"))])
    assert answer.status_code == 422
    assert "1200 x 1200 pixels, more than the limit of 1,000,000" in answer.json()["error"]


def test_the_model_may_change_between_requests_and_be_missing(served: Served) -> None:
    now: list[Served] = []

    def current() -> Served:
        if not now:
            raise NotReady("no model is fitted yet: fit one")
        return now[-1]

    app = create_app(Service(current), access=access_for("127.0.0.1", None))
    with TestClient(app, base_url=ADDRESS) as client:
        assert client.get("/health").status_code == 503
        row = {"embeddings": rows_of(["red"], range(1)).tolist()}
        assert client.post("/v1/predict/embeddings", json=row).json() == {"error": "no model is fitted yet: fit one"}
        now.append(Served("first", served.model))
        assert client.post("/v1/predict/embeddings", json=row).json()["model"] == "first"
        assert client.post("/v1/predict", files=[("photos", photo("red"))]).status_code == 503
        now.append(Served("second", served.model, PixelEncoder()))
        assert client.post("/v1/predict", files=[("photos", photo("red"))]).json()["model"] == "second"


def test_the_schema_names_every_path_with_its_answers_and_refusals(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    assert set(schema["paths"]) == {
        "/health", "/metrics", "/v1/model", "/v1/predict", "/v1/predict/embeddings", "/v1/embed", "/v1/explain",
        "/v1/explain/embedding",
    }  # fmt: skip
    for path, methods in schema["paths"].items():
        for operation in methods.values():
            assert operation["description"], path
            assert {"200", "401", "413", "422", "503"} <= set(operation["responses"]), path
            for status, answer in operation["responses"].items():
                if path != "/metrics" or status != "200":
                    assert "$ref" in answer["content"]["application/json"]["schema"], (path, status)
    refused = schema["paths"]["/v1/predict"]["post"]["responses"]["422"]
    assert refused["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/ErrorAnswer"}
    assert next(iter(schema["components"]["securitySchemes"].values()))["scheme"] == "bearer"


def test_a_browser_is_told_what_the_server_does(client: TestClient) -> None:
    found = client.get("/")
    assert found.status_code == 200
    assert found.headers["content-type"].startswith("text/html")
    assert "POST /v1/predict" in found.text
    assert "GET /health" in found.text
    assert "`" not in found.text


def test_the_example_of_the_page_works(client: TestClient) -> None:
    field, address = re.search(r"curl -F (\w+)=@photo.jpg ([^<]+)<", client.get("/").text).groups()
    assert address.startswith(ADDRESS)
    answered = client.post(address.removeprefix(ADDRESS), files={field: photo("green")})
    assert answered.status_code == 200, answered.text
    assert answered.json()["contributions"]
