"""Pictures: how long a browser keeps a thumbnail, and what is kept of photos that were dropped on the page."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from ccr.errors import CCRError
from ccr.photos.on_photos import explain_image
from ccr_studio import encoder
from ccr_studio.encoder import Uploads
from ccr_studio.photos import Thumbnails
from ccr_studio.work.workbench import Workbench
from tests.data.helpers import PixelEncoder, encoded
from tests.studio.helpers import colour_picture


def test_pictures_are_kept_by_the_browser_for_their_own_store_alone(client: TestClient, bench: Workbench) -> None:
    """Another store on the same port has other photos under the same numbers."""
    pictures = client.get("/api/state").json()["pictures"]
    assert "immutable" in client.get("/api/thumbnails/3", params={"of": pictures}).headers["cache-control"]
    for of in ("", "another"):
        answer = client.get("/api/thumbnails/3", params={"of": of})
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "no-store"
    store, folder = bench.photos.store, bench.folder
    assert Thumbnails(store, folder).digest == pictures
    turned = store.select(rows=np.arange(len(store))[::-1])
    assert len({Thumbnails(part, folder).digest for part in (store, turned, store.select("val"))}) == 3


def test_a_dropped_photo_is_asked_itself_where_a_concept_is(client: TestClient, bench: Workbench) -> None:
    """Not the small JPEG that is shown of it."""
    noise = np.random.default_rng(0).integers(0, 255, (1500, 1500, 3)).astype(np.uint8)
    picture = Image.fromarray(noise)
    key = client.post("/api/uploads", content=encoded(picture)).json()["id"]
    why = explain_image(bench.now().model, PixelEncoder(), picture)
    concept = why.where.concepts[0]
    found = client.get(f"/api/photos/{key}/where", params={"concept": concept}).json()
    np.testing.assert_allclose(found["values"], why.where.code_map(concept).map.ravel(), atol=1e-6)


def test_dropped_photos_are_forgotten_by_number_and_by_size(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [encoded(colour_picture("lime", seed)) for seed in range(3)]
    monkeypatch.setattr(encoder, "KEPT_BYTES", len(files[1]) + len(files[2]))
    uploads = Uploads(bench.words)
    keys = [uploads.add(content, "").id for content in files]
    with pytest.raises(CCRError, match="drop it on the page again"):
        uploads.get(keys[0])
    assert uploads.get(keys[1])
    assert uploads.get(keys[2])
