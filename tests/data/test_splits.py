from collections import Counter, defaultdict
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccr.data.datasets import Sample, content_hash, open_dataset, split_dataset
from ccr.data.datasets.base import make_dataset
from ccr.errors import CCRError, CCRWarning
from tests.data.helpers import write_image


@dataclass(frozen=True)
class Bytes:
    """A source whose content is given."""

    data: bytes

    def read(self, max_bytes: int = 256) -> bytes:
        return self.data


def dataset_of(contents, labels):
    samples = [
        Sample(str(row), Bytes(bytes([c])), label) for row, (c, label) in enumerate(zip(contents, labels, strict=True))
    ]
    return make_dataset({"kind": "test", "path": "test"}, samples)


def splits_of(dataset):
    return [sample.split for sample in dataset]


def test_shares_are_kept_in_every_class():
    dataset = split_dataset(dataset_of(range(200), ["a", "b"] * 100), val=0.1, test=0.2)
    counts = Counter((sample.label, sample.split) for sample in dataset)
    for label in "ab":
        assert (counts[label, "train"], counts[label, "val"], counts[label, "test"]) == (70, 10, 20)


def test_seeds_give_the_same_and_other_splits():
    dataset = dataset_of(range(100), ["a"] * 100)
    assert splits_of(split_dataset(dataset, seed=1)) == splits_of(split_dataset(dataset, seed=1))
    assert splits_of(split_dataset(dataset, seed=1)) != splits_of(split_dataset(dataset, seed=2))


@given(
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from("abc")), min_size=1, max_size=80),
    st.floats(0, 0.45),
    st.floats(0, 0.45),
    st.integers(0, 5),
)
def test_copies_stay_together_and_shares_are_never_exceeded(rows, val, test, seed):
    dataset = split_dataset(dataset_of(*zip(*rows, strict=True)), val=val, test=test, seed=seed)
    places = defaultdict(set)
    for sample in dataset:
        places[content_hash(sample.source.read())].add(sample.split)
    assert all(len(names) == 1 for names in places.values())
    sizes = Counter(splits_of(dataset))
    assert sizes["train"] >= 1
    assert sizes["test"] <= test * len(rows) + 2  # rounding, one half a class
    assert sizes["val"] <= val * len(rows) + 2


def grouped(counts):
    """Two classes, each with groups of so many images."""
    labels = [(name, f"{name}{number}") for name in "ab" for number, count in enumerate(counts) for _ in range(count)]
    dataset = dataset_of(range(len(labels)), [label for label, _ in labels])
    samples = [replace(sample, group=group) for sample, (_, group) in zip(dataset, labels, strict=True)]
    return make_dataset(dataset.origin, samples)


@pytest.mark.parametrize("counts", [(30, 30, 30, 30), (10, 10, 10), (50, 20), (7, 7, 7, 7, 7, 7, 7, 7, 7)])
@pytest.mark.parametrize("shares", [(0.1, 0.2), (0.45, 0.05)])
@pytest.mark.parametrize("seed", range(3))
def test_groups_larger_than_the_test_share_are_tested_all_the_same(counts, shares, seed):
    """Four trees of thirty photos each: one of them is a quarter, and no test at all would say nothing."""
    dataset = split_dataset(grouped(counts), val=shares[0], test=shares[1], seed=seed)
    places = defaultdict(set)
    for sample in dataset:
        places[sample.group].add(sample.split)
    assert all(len(splits) == 1 for splits in places.values())
    for label in "ab":
        found = Counter(next(iter(splits)) for group, splits in places.items() if group[0] == label)
        assert found["train"] >= 1
        assert found["test"] >= 1


def test_a_class_of_one_group_is_named():
    with pytest.warns(CCRWarning, match="a class of one group has no test images, .*: a, b; give images"):
        assert set(splits_of(split_dataset(grouped((20,))))) == {"train"}


def test_copies_in_files_stay_together(tmp_path):
    for row in range(30):
        write_image(tmp_path / "a" / f"{row}.png", row % 10)
    dataset = open_dataset(tmp_path, val=0.2, test=0.3)
    places = defaultdict(set)
    for sample in dataset:
        places[sample.source.read()].add(sample.split)
    assert all(len(names) == 1 for names in places.values())
    assert dataset.splits == {"test": 9, "train": 15, "val": 6}


@pytest.mark.parametrize(("val", "test"), [(0.5, 0.5), (-0.1, 0.2), (0, 1)])
def test_impossible_shares_are_refused(val, test):
    with pytest.raises(CCRError, match="sum below 1"):
        split_dataset(dataset_of([1], ["a"]), val=val, test=test)


def test_an_unreadable_file_still_has_a_split(tmp_path):
    (tmp_path / "m.csv").write_text("path,label\ngone.png,a\nlost.png,a\n")
    assert set(splits_of(open_dataset(tmp_path / "m.csv"))) == {"train"}


@given(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=20), st.floats(0, 0.99), st.floats(0, 0.99), st.integers(0, 5)
)
def test_every_class_stays_in_train(labels, val, test, seed):
    shares = (val, test) if val + test < 0.999 else (val / 2, test / 2)
    dataset = split_dataset(dataset_of(range(len(labels)), labels), val=shares[0], test=shares[1], seed=seed)
    assert {sample.label for sample in dataset if sample.split == "train"} == set(labels)


def test_files_over_the_limit_are_not_read(tmp_path):
    for row in range(6):
        write_image(tmp_path / "a" / f"{row}.png", 1)
    size = (tmp_path / "a/1.png").stat().st_size
    assert set(open_dataset(tmp_path, test=0.5, max_bytes=size).splits) == {"train"}  # all are one content
    assert set(open_dataset(tmp_path, test=0.5, max_bytes=size - 1).splits) == {"train", "val", "test"}
