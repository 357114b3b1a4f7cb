"""The service says what is known of every term's claim, and of all claims of its model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from starlette.testclient import TestClient

from ccr.knowledge import Knowledge
from ccr_studio.service.app import create_app
from ccr_studio.service.guards import access_for
from ccr_studio.service.limits import RequestLimits
from ccr_studio.service.service import Served, Service
from tests.serve.conftest import ADDRESS, photo


def test_terms_have_claims_and_the_model_its_counts_and_digest(served: Served, limits: RequestLimits) -> None:
    model = served.model
    table = np.where(np.arange(len(model.names)) % 2, 1, -1) * np.ones((len(model.classes), 1))
    known = Knowledge(model.classes.tolist(), model.names, table)
    informed = replace(model, provenance=replace(model.provenance, knowledge=known))
    app = create_app(
        Service(lambda: Served("colours", informed, served.encoder), limits=limits),
        access=access_for("127.0.0.1", None),
    )
    with TestClient(app, base_url=ADDRESS) as client:
        explained = client.post("/v1/explain", files={"photo": photo("red")}).json()
        predicted = client.post("/v1/predict?concepts=9", files=[("photos", photo("red"))]).json()
        info = client.get("/v1/model").json()
    for terms in (explained["contributions"], predicted["results"][0]["prediction"]["contributions"]):
        assert terms
        for term in terms:
            said = "confirmed" if model.row(term["concept"]) % 2 else "contradicted"
            assert term["claim"] == (said if term["weight"] > 0 else None)
    assert info["knowledge"] == known.digest
    assert info["claims"] == informed.claim_counts


def test_a_model_without_knowledge_says_unknown(client: TestClient) -> None:
    explained = client.post("/v1/explain", files={"photo": photo("red")}).json()
    assert {term["claim"] for term in explained["contributions"] if term["weight"] > 0} == {"unknown"}
    info = client.get("/v1/model").json()
    assert info["knowledge"] is None
    assert info["claims"]["confirmed"] == 0
