"""Photos of requests that come at the same time are embedded together, and no request pays for another."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families

from ccr_studio.service.limits import Busy, Meters, RequestLimits
from ccr_studio.service.service import Batcher
from tests.data.helpers import PixelEncoder, picture


class Watched(PixelEncoder):
    """Notes the sizes of its batches; may be held up, and does not bear pictures of one size."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []
        self.free = threading.Event()
        self.free.set()

    def embed_images(self, images: Any, *, batch_size: int | None = None) -> np.ndarray:
        self.free.wait(20)
        images = list(images)
        self.batches.append(len(images))
        if any(image.size == (3, 3) for image in images):
            raise RuntimeError("cannot bear it")
        return np.vstack([super(Watched, self).embed_images([image]) for image in images])


def alone(image: Image.Image) -> np.ndarray:
    return PixelEncoder().embed_images([image])[0]


def test_requests_at_the_same_time_share_batches_and_get_their_own_rows() -> None:
    encoder, pictures = Watched(), [picture(seed) for seed in range(40)]

    async def ask() -> list[np.ndarray]:
        batcher = Batcher(RequestLimits(batch=16), Meters())
        requests = [batcher.embed(encoder, pictures[at : at + 2]) for at in range(0, 40, 2)]
        return await asyncio.gather(*requests)

    rows = np.vstack(asyncio.run(ask()))
    assert encoder.batches == [16, 16, 8]
    np.testing.assert_array_equal(rows, [alone(image) for image in pictures])


def test_a_photo_that_the_encoder_cannot_bear_fails_alone() -> None:
    encoder = Watched()

    async def ask() -> list[Any]:
        batcher = Batcher(RequestLimits(), Meters())
        images = [picture(1), picture(2, (3, 3)), picture(3)]
        return await asyncio.gather(*(batcher.embed(encoder, [image]) for image in images), return_exceptions=True)

    first, second, third = asyncio.run(ask())
    assert isinstance(second, RuntimeError)
    np.testing.assert_array_equal([first[0], third[0]], [alone(picture(1)), alone(picture(3))])


def test_two_encoders_are_never_mixed() -> None:
    """The model, and its encoder, may change between two requests."""
    one, two = Watched(), Watched()

    async def ask() -> None:
        batcher = Batcher(RequestLimits(), Meters())
        await asyncio.gather(*(batcher.embed(encoder, [picture(1)]) for encoder in (one, two, two, one)))

    asyncio.run(ask())
    assert (one.batches, two.batches) == ([1, 1], [2])


def test_more_than_may_wait_is_refused_and_what_nobody_waits_for_is_not_embedded() -> None:
    encoder = Watched()
    encoder.free.clear()

    async def ask() -> None:
        batcher = Batcher(RequestLimits(waiting=3, batch=1), Meters())
        first = asyncio.create_task(batcher.embed(encoder, [picture(0)]))
        await asyncio.sleep(0.05)  # the encoder is busy with it
        given_up = asyncio.create_task(batcher.embed(encoder, [picture(1), picture(2)]))
        last = asyncio.create_task(batcher.embed(encoder, [picture(3)]))
        await asyncio.sleep(0)
        assert batcher.waiting == 3
        with pytest.raises(Busy, match="3 photos wait"):
            await batcher.embed(encoder, [picture(4)])
        given_up.cancel()
        await asyncio.sleep(0)
        encoder.free.set()
        np.testing.assert_array_equal((await last)[0], alone(picture(3)))
        await first
        assert batcher.waiting == 0

    asyncio.run(ask())
    assert encoder.batches == [1, 1]


def test_meters_are_what_prometheus_reads() -> None:
    """Read back by the parser of Prometheus' own client."""
    meters = Meters()
    for value in (0.003, 1.5, 99.0):
        meters.seconds.labels('a"b\\\n').observe(value)
    meters.photos.inc(10_000_001)
    samples = {
        (sample.name, sample.labels.get("le")): sample
        for family in text_string_to_metric_families(meters.text())
        for sample in family.samples
    }
    assert samples["ccr_photos_total", None].value == 10_000_001
    assert samples["ccr_request_seconds_bucket", "0.005"].value == 1
    assert samples["ccr_request_seconds_bucket", "2.5"].value == 2
    assert samples["ccr_request_seconds_bucket", "+Inf"].value == samples["ccr_request_seconds_count", None].value == 3
    assert samples["ccr_request_seconds_sum", None].labels == {"route": 'a"b\\\n'}


def test_two_services_of_a_process_count_apart() -> None:
    first, second = Meters(), Meters()
    first.photos.inc(3)
    assert (first.total("ccr_photos"), second.total("ccr_photos")) == (3, 0)
