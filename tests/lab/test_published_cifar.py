import numpy as np
import pytest
from PIL import Image

from ccr.data.datasets import BadImage, locate, open_dataset
from ccr.errors import CCRError, FormatError
from ccr_lab.published import open_published
from ccr_lab.published.cifar import CIFAR10_CLASSES
from tests.lab.published_files import (
    BATCHES,
    facts,
    pixels_of,
    write_cifar10,
    write_cifar100,
    write_lines,
    write_records,
)


def check_records(dataset, made):
    expected = [
        (f"{name}#{row}", dataset.classes[label], "test" if name.startswith("test") else "train")
        for name, (_, labels) in made.items()
        for row, label in enumerate(labels)
    ]
    assert facts(dataset) == expected
    for sample in dataset:
        name, row = sample.key.split("#")
        assert np.array_equal(pixels_of(sample), made[name][0][int(row)])
        assert np.array_equal(locate(dataset.origin, sample.key).read(), made[name][0][int(row)])


@pytest.mark.parametrize("given", ["cifar-10-batches-bin", "."])
def test_cifar10(tmp_path, given):
    made = write_cifar10(tmp_path / "cifar-10-batches-bin")
    dataset = open_published("cifar10", tmp_path / given)
    assert dataset.classes == CIFAR10_CLASSES
    check_records(dataset, made)
    assert facts(open_dataset(tmp_path / given)) == facts(dataset)
    assert locate({**dataset.origin, "path": str(tmp_path)}, "test_batch.bin#1").read().shape == (32, 32, 3)


@pytest.mark.parametrize("given", ["cifar-100-binary", "."])
def test_cifar100_has_the_fine_labels(tmp_path, given):
    made = write_cifar100(tmp_path / "cifar-100-binary")
    dataset = open_published("cifar100", tmp_path / given)
    assert dataset.classes == tuple(f"kind of {number}" for number in range(100))
    check_records(dataset, made)
    assert facts(open_dataset(tmp_path / given)) == facts(dataset)


def test_cifar10_class_names_are_known_without_their_file(tmp_path):
    write_cifar10(tmp_path)
    (tmp_path / "batches.meta.txt").unlink()
    assert open_published("cifar10", tmp_path).classes == CIFAR10_CLASSES


def test_records_are_read_when_asked_for(tmp_path):
    write_cifar10(tmp_path)
    dataset = open_published("cifar10", tmp_path)
    last = dataset.samples[-1]
    (tmp_path / "test_batch.bin").write_bytes(b"\0" * 3073)
    assert dataset.samples[-7].source.read().max() == 0
    with pytest.raises(BadImage, match=r"record 6 of test_batch\.bin"):
        last.image()
    (tmp_path / "test_batch.bin").unlink()
    with pytest.raises(BadImage, match="record 6"):
        last.image()


@pytest.mark.parametrize("key", ["../../x.bin#1", "data_batch_1.bin", "data_batch_1.bin#-1", "batches.meta.txt#0"])
def test_a_key_that_is_no_record_is_refused(tmp_path, key):
    write_cifar10(tmp_path)
    with pytest.raises(FormatError, match="is no image of the cifar10-binary data set"):
        locate(open_published("cifar10", tmp_path).origin, key)


def test_cifar10_from_the_npm_package_needs_every_batch(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (2, 1024, 3), dtype=np.uint8)
    for name in [*BATCHES, "test_batch.bin"]:
        Image.fromarray(pixels).save(package / name.replace(".bin", ".png"))
    (package / "train_lables.json").write_text("[7, 3]")
    (package / "test_lables.json").write_text("[1, 2]")
    for given in (tmp_path, package):
        dataset = open_published("cifar10", given)
        assert [sample.label for sample in dataset][:2] == ["horse", "cat"]
        assert np.array_equal(pixels_of(dataset.select("test").samples[1]), pixels[1].reshape(32, 32, 3))
    (package / "data_batch_4.png").unlink()
    with pytest.raises(FormatError, match=r"all of CIFAR-10 .* has no data_batch_4\.png\."):
        open_published("cifar10", tmp_path)


PICKLED = [
    ("cifar10", "cifar-10-batches-py", ["data_batch_1", "test_batch", "batches.meta"], "cifar-10-binary.tar.gz"),
    ("cifar100", "cifar-100-python", ["train", "test", "meta"], "cifar-100-binary.tar.gz"),
]


@pytest.mark.parametrize(("name", "folder", "files", "archive"), PICKLED)
def test_pickles_are_refused_unread(tmp_path, name, folder, files, archive):
    (tmp_path / folder).mkdir()
    for file in files:
        (tmp_path / folder / file).write_bytes(b"cos\nabort\n(tR.")  # would end the process
    for given in (tmp_path, tmp_path / folder):
        with pytest.raises(CCRError, match=f"no pickle is ever loaded .*{archive}"):
            open_published(name, given)
        with pytest.raises(CCRError, match="no pickle is ever loaded"):
            open_dataset(given)


def test_the_binary_version_is_used_when_the_pickled_one_is_beside_it(tmp_path):
    write_cifar100(tmp_path / "cifar-100-binary")
    write_lines(tmp_path / "cifar-100-python/train", ["x"])
    assert len(open_published("cifar100", tmp_path)) == 10


@pytest.mark.parametrize("size", [0, 1, 3072, 2 * 3073 - 1])
def test_wrong_sizes_of_records_are_refused(tmp_path, size):
    write_cifar10(tmp_path)
    (tmp_path / "data_batch_2.bin").write_bytes(b"\0" * size)
    with pytest.raises(FormatError, match=rf"data_batch_2\.bin must be records of 3073 bytes, got {size} bytes"):
        open_published("cifar10", tmp_path)


def test_labels_out_of_range_are_refused(tmp_path):
    made = write_cifar10(tmp_path / "a")
    write_records(tmp_path / "a/data_batch_3.bin", made["data_batch_3.bin"][0], [[1], [9], [10], [0]])
    with pytest.raises(FormatError, match=r"record 2 of .*data_batch_3\.bin has the label 10; labels are 0 to 9"):
        open_published("cifar10", tmp_path / "a")
    made = write_cifar100(tmp_path / "b")
    write_records(tmp_path / "b/test.bin", made["test.bin"][0], [[0, 1], [200, 99], [0, 100], [0, 0]])
    with pytest.raises(FormatError, match=r"record 2 of .*test\.bin has the label 100"):
        open_published("cifar100", tmp_path / "b")


@pytest.mark.parametrize("names", [["a"] * 100, [str(number) for number in range(99)], []])
def test_bad_class_names_of_cifar100_are_refused(tmp_path, names):
    write_cifar100(tmp_path)
    write_lines(tmp_path / "fine_label_names.txt", names)
    with pytest.raises(FormatError, match=r"fine_label_names\.txt must hold 100 different class names"):
        open_published("cifar100", tmp_path)
