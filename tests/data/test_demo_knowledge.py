"""The demo's table of knowledge fits its photos and its list, and says enough about every class."""

from __future__ import annotations

from importlib.resources import as_file, files

import pytest

from ccr import Knowledge, read_concepts
from ccr.data.store import EmbeddingStore
from tests.docs.workspace import FRUIT

#: Words of the shop, which are no reason for a kind of fruit.
SHOP = ("crate", "box", "bag", "price", "shop", "supermarket", "barcode", "sticker", "tray", "hand", "background")


@pytest.fixture(scope="module")
def table() -> Knowledge:
    with as_file(files("ccr.data").joinpath("demo_knowledge.csv")) as path:
        return Knowledge.read(path)


@pytest.fixture(scope="module")
def names() -> list[str]:
    with as_file(files("ccr.data").joinpath("demo_concepts.txt")) as path:
        return list(read_concepts(path))


def test_its_classes_are_those_of_the_photos(table: Knowledge) -> None:
    assert sorted(table.classes) == sorted(map(str, EmbeddingStore.open(FRUIT).classes))


def test_its_concepts_are_those_of_the_list(table: Knowledge, names: list[str]) -> None:
    assert sorted(table.concepts) == sorted(names)


def test_every_cell_is_answered_by_a_person(table: Knowledge, names: list[str]) -> None:
    assert len(table) == len(table.classes) * len(names)
    assert (table.aligned(table.classes, names) != 0).all()
    assert {(answer.source, answer.by) for answer in table} == {("person", "the ccr developers")}


def test_every_class_has_at_least_five_concepts(table: Knowledge, names: list[str]) -> None:
    yes = (table.aligned(table.classes, names) == 1).sum(axis=1)
    assert {name: int(count) for name, count in zip(table.classes, yes, strict=True) if count < 5} == {}


def test_nothing_of_the_shop_is_a_reason(table: Knowledge) -> None:
    confirmed = {answer.concept for answer in table if answer.answer == "yes"}
    assert [name for name in confirmed if any(word in name.split() for word in SHOP)] == []


def test_no_concept_names_a_class(table: Knowledge, names: list[str]) -> None:
    classes = {name.replace("-", " ").casefold() for name in table.classes} - {"orange"}  # a colour, too
    assert [name for name in names if any(label in name.casefold() for label in classes)] == []
