"""A small real model behind the API: pictures of three colours, embedded by their pixels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from ccr import ConceptClassifier, Concepts, HardThreshold
from ccr.model import ConceptModel
from ccr_studio.service.app import create_app
from ccr_studio.service.guards import access_for
from ccr_studio.service.limits import RequestLimits
from ccr_studio.service.service import Served, Service
from tests.data.helpers import PixelEncoder, encoded

COLOURS = {"red": (200, 30, 30), "green": (40, 170, 50), "blue <b>": (40, 50, 190)}
ADDRESS = "http://127.0.0.1:8000"


def coloured(name: str, seed: int, size: int = 20) -> Image.Image:
    """A noisy picture of one colour."""
    noise = np.random.default_rng(seed).normal(0, 40, (size, size, 3))
    return Image.fromarray(np.clip(np.array(COLOURS[name]) + noise, 0, 255).astype(np.uint8))


def photo(name: str, seed: int = 100) -> tuple[str, bytes, str]:
    """A file to send."""
    return f"{name}-{seed}.png", encoded(coloured(name, seed)), "image/png"


def small_model() -> ConceptModel:
    encoder = PixelEncoder()
    pictures = [(coloured(name, seed), name) for name in COLOURS for seed in range(30)]
    X = encoder.embed_images([picture for picture, _ in pictures])
    concepts = Concepts([f"shade {row}" for row in range(12)], X[::8][:12])
    fitted = ConceptClassifier(concepts, coder=HardThreshold(length=4), max_iter=20, random_state=0).fit(
        X, [name for _, name in pictures]
    )
    return fitted.model_


@pytest.fixture(scope="session")
def served() -> Served:
    return Served("colours", small_model(), PixelEncoder())


@pytest.fixture(scope="session")
def limits() -> RequestLimits:
    return RequestLimits(request_bytes=200_000, pixels=1_000_000, photos=6, rows=8, seconds=20)


@pytest.fixture
def client(served: Served, limits: RequestLimits) -> Iterator[TestClient]:
    app = create_app(Service(lambda: served, limits=limits), access=access_for("127.0.0.1", None))
    with TestClient(app, base_url=ADDRESS, raise_server_exceptions=False) as opened:
        yield opened
