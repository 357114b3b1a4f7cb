"""A part of the long runs of `python -m tools.fuzz`: the same cases every time, few enough for every change."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tools.fuzz.__main__ import survives
from tools.fuzz.areas import Areas

CASES = {
    "images": 1500,
    "models": 150,
    "stores": 120,
    "chunks": 40,
    "manifests": 100,
    "arrays": 300,
    "concept lists": 300,
    "options": 25,
    "knowledge": 300,
    "decisions": 200,
    "signed models": 150,
    "judged sheets": 150,
    "answered pages": 150,
    "corrections": 150,
    "language models": 150,
    "text adapters": 100,
    "parquet": 150,
    "tar": 150,
    "hub": 60,
    "object store": 40,
    "service": 400,
    "studio": 300,
    "studio that only shows": 200,
    "studio of reviewers": 200,
    "sessions": 30,
    "uploads": 150,
    "connections": 60,
}


@pytest.fixture(scope="module")
def areas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Areas]:
    with closing(Areas(tmp_path_factory.mktemp("fuzz"))) as opened:
        yield opened


@pytest.mark.parametrize("area", CASES)
def test_damaged_input_gives_an_answer_or_an_error_in_words(areas: Areas, area: str, tmp_path: Path) -> None:
    fell = {seed: story for seed in range(CASES[area]) if (story := survives(areas, area, seed)) is not None}
    assert not fell, "\n".join(f"seed {seed}:\n{story}" for seed, story in fell.items())


def test_every_route_of_the_studio_is_asked(areas: Areas) -> None:
    """Each operation of the OpenAPI several times, by studios that may write, take answers alone, or only show."""
    for api in (areas.servers.studio, areas.servers.reviewed, areas.servers.shown, areas.servers.service):
        for number, operation in enumerate(api.operations):
            for seed in range(4):
                api.ask(random.Random(f"{number} {seed}"), operation)


def test_every_area_is_tried(areas: Areas) -> None:
    assert set(CASES) == set(areas.named())
