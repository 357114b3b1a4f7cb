"""Tar shards and Parquet files with images: their samples, labels and splits, and what is wrong with damaged ones."""

import io
import json
import tarfile
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccr.data.datasets import BadImage, locate, open_dataset, open_photos
from ccr.data.datasets.files import expand, split_of_name
from ccr.data.store import EmbeddingStore, embed_dataset
from ccr.errors import CCRError, CCRWarning, FormatError
from tests.data.helpers import PixelEncoder, folder_files, picture


def png(seed):
    stream = io.BytesIO()
    picture(seed).save(stream, "PNG")
    return stream.getvalue()


def write_tar(path, members):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def img2dataset(folder, shards=3, each=6, labels=True):
    """As img2dataset writes it: 00000.tar with 000000000.jpg, .json and .txt."""
    for shard in range(shards):
        members = {}
        for row in range(each):
            key = f"{shard:05}{row:04}"
            members[f"{key}.png"] = png(10 * shard + row)
            members[f"{key}.txt"] = b"a caption"
            facts = {"key": key, "caption": "a caption", **({"label": f"class {row % 2}"} if labels else {})}
            members[f"{key}.json"] = json.dumps(facts).encode()
        write_tar(folder / f"{shard:05}.tar", members)
    return folder


def test_img2dataset_shards_are_a_data_set(tmp_path):
    img2dataset(tmp_path / "s")
    for given_as in (tmp_path / "s", f"{tmp_path}/s/{{00000..00002}}.tar"):
        dataset = open_dataset(given_as)
        assert len(dataset) == 18
        assert dataset.classes == ("class 0", "class 1")
        assert dataset.samples[7].key == "00001.tar/000010001.png"
        assert np.array_equal(np.asarray(dataset.samples[7].image()), np.asarray(picture(11)))
        assert sum(dataset.splits.values()) == 18
        again = locate(dataset.origin, "00001.tar/000010001.png").read()
        assert again == png(11)
    assert len(open_dataset(tmp_path / "s" / "00001.tar")) == 6


def test_a_store_of_shards_is_that_of_the_same_images_in_memory_order(tmp_path):
    img2dataset(tmp_path / "s")
    dataset = open_dataset(tmp_path / "s")
    embed_dataset(dataset, PixelEncoder(), tmp_path / "store", batch_size=4)
    store = EmbeddingStore.open(tmp_path / "store")
    assert list(store.paths) == [sample.key for sample in dataset]
    assert list(store.splits) == [sample.split for sample in dataset]
    assert np.array_equal(np.asarray(store.image(9)), np.asarray(picture(13)))
    embed_dataset(dataset, PixelEncoder(), tmp_path / "with workers", batch_size=4, workers=2)
    assert folder_files(tmp_path / "with workers") == folder_files(tmp_path / "store")


def test_labels_come_from_cls_json_txt_and_folders(tmp_path):
    write_tar(tmp_path / "a.tar", {"1.jpg": png(1), "1.cls": b"cat", "1.json": b'{"label": "dog"}'})
    assert open_dataset(tmp_path / "a.tar").samples[0].label == "cat"
    write_tar(tmp_path / "b.tar", {"1.txt": b" a red cat\n", "1.jpg": png(1), "1.json": b'{"kind": 4}'})
    assert open_dataset(tmp_path / "b.tar").samples[0].label is None
    assert open_dataset(tmp_path / "b.tar", label_column="txt").samples[0].label == "a red cat"
    assert open_dataset(tmp_path / "b.tar", label_column="kind").samples[0].label == "4"
    write_tar(tmp_path / "c.tar", {"train/pear/1.jpg": png(1), "test/fig/2.jpg": png(2)})
    found = open_dataset(tmp_path / "c.tar")
    assert [(sample.label, sample.split) for sample in found] == [("pear", "train"), ("fig", "test")]
    write_tar(tmp_path / "d" / "x-train-000.tar", {"1.jpg": png(1)})
    write_tar(tmp_path / "d" / "x-val-000.tar", {"1.jpg": png(2)})
    assert open_dataset(tmp_path / "d").splits == {"train": 1, "val": 1}


def test_members_that_are_no_files_or_lead_elsewhere_are_data(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        link = tarfile.TarInfo("evil.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        for name in ("../../up.png", "/etc/x.png", "\udcff.png", ".hidden.png"):
            info = tarfile.TarInfo(name)
            info.size = len(png(1))
            archive.addfile(info, io.BytesIO(png(1)))
    dataset = open_dataset(path)
    assert [sample.key for sample in dataset] == ["a.tar/../../up.png", "a.tar//etc/x.png", "a.tar/\\udcff.png"]
    assert all(sample.image().size == (24, 20) for sample in dataset)
    assert sorted(tmp_path.iterdir()) == [path]
    with pytest.raises(FormatError):
        locate({"kind": "tar", "path": str(path)}, "../../etc/passwd.tar/x.png")


@pytest.mark.parametrize("damage", ["cut in a member", "cut between", "heading", "empty", "no tar"])
def test_a_damaged_shard_is_named(tmp_path, damage):
    img2dataset(tmp_path, shards=1)
    path = tmp_path / "00000.tar"
    data = bytearray(path.read_bytes())
    if damage == "cut in a member":
        data = data[: 512 + 100]
    elif damage == "cut between":
        with tarfile.open(path) as archive:
            data = data[: archive.getmembers()[4].offset]
    elif damage == "heading":
        with tarfile.open(path) as archive:
            data[archive.getmembers()[4].offset + 3] ^= 0xFF
    elif damage == "empty":
        data = bytearray()
    else:
        data = bytearray(b"this is no tar file" * 100)
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"00000\.tar"):
        open_dataset(tmp_path)


def test_a_shard_that_is_not_there_is_named(tmp_path):
    img2dataset(tmp_path, shards=1)
    with pytest.raises(FormatError, match=r"00001\.tar.*fetch or write it again"):
        open_dataset(f"{tmp_path}/{{00000..00001}}.tar")


def test_a_bad_image_in_a_shard_is_listed(tmp_path):
    write_tar(tmp_path / "a.tar", {"1.jpg": png(1), "2.jpg": b"none", "3.jpg": png(3)})
    summary = embed_dataset(open_dataset(tmp_path / "a.tar"), PixelEncoder(), tmp_path / "s", workers=0)
    assert [(skipped.path, summary.rows) for skipped in summary.skipped] == [("a.tar/2.jpg", 2)]
    with pytest.raises(BadImage):
        open_dataset(tmp_path / "a.tar").samples[1].image()


def parquet(path, rows, struct=False, groups=2, **columns):
    images = [{"bytes": png(row), "path": None} if struct else png(row) for row in rows]
    table = pa.table({"image": images, **columns})
    pq.write_table(table, path, row_group_size=groups)


@pytest.mark.parametrize("struct", [False, True])
def test_parquet_with_images(tmp_path, struct):
    (tmp_path / "p").mkdir()
    for number in range(2):
        rows = range(5 * number, 5 * number + 5)
        parquet(
            tmp_path / "p" / f"{number}.parquet", rows, struct, label=["a", "b", "a", "b", "a"], split=["train"] * 5
        )
    dataset = open_dataset(tmp_path / "p")
    assert [sample.key for sample in dataset][4:6] == ["0.parquet#4", "1.parquet#0"]
    assert dataset.splits == {"train": 10}
    for row, sample in enumerate(dataset):
        assert np.array_equal(np.asarray(sample.image()), np.asarray(picture(row)))
        assert locate(dataset.origin, sample.key).read() == png(row)
    one = open_dataset(f"{tmp_path}/p/{{0..1}}.parquet").samples[7]
    assert one.source.read() == png(7)
    assert len(open_dataset(tmp_path / "p" / "1.parquet")) == 5


def test_names_of_classes_that_hugging_face_keeps_in_the_schema(tmp_path):
    facts = {"info": {"features": {"label": {"names": ["apple", "pear"], "_type": "ClassLabel"}}}}
    table = pa.table({"image": [png(1), png(2)], "label": [1, 0]})
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(facts)}), tmp_path / "x.parquet")
    assert [sample.label for sample in open_dataset(tmp_path / "x.parquet")] == ["pear", "apple"]


def test_a_table_behaves_as_a_list_of_samples(tmp_path):
    img2dataset(tmp_path)
    samples = open_dataset(tmp_path).samples
    listed = [samples[row] for row in range(len(samples))]
    assert list(samples) == listed
    assert list(samples[3:15:2]) == listed[3:15:2]
    assert samples[-1] == listed[-1]
    assert list(open_dataset(tmp_path).select("test")) == [sample for sample in listed if sample.split == "test"]


def test_patterns():
    assert expand("a/{00..02}.tar") == ["a/00.tar", "a/01.tar", "a/02.tar"]
    assert expand("{train,val}-{9..10}.tar") == ["train-9.tar", "train-10.tar", "val-9.tar", "val-10.tar"]
    for wrong in ("{}.tar", "{5..1}.tar", "{0..99999999}.tar", "{a}.tar", "{0..999}{0..9999}.tar"):
        with pytest.raises(CCRError):
            expand(wrong)
    assert split_of_name("imagenet-val-000123.tar") == "val"
    assert split_of_name("train/00000.tar") == "train"
    assert split_of_name("train-test.tar") is None


@given(st.integers(0, 50), st.integers(0, 60))
def test_a_range_counts_as_python_does(first, more):
    assert expand(f"{{{first:04}..{first + more}}}") == [f"{number:04}" for number in range(first, first + more + 1)]


def test_shards_of_which_some_have_no_split_are_refused(tmp_path):
    for row, name in enumerate(("train-0", "test-0", "extra-0")):
        write_tar(tmp_path / f"{name}.tar", {"cat/1.png": png(row)})
    with pytest.raises(FormatError, match=r"either every image of .* 'extra-0.tar/cat/1.png' has none: give it one"):
        open_dataset(tmp_path)
    assert len(open_photos([tmp_path])) == 3  # where splits do not matter


def test_a_first_folder_is_a_split_only_if_all_are(tmp_path):
    write_tar(tmp_path / "a" / "0.tar", {"dev/1.png": png(1), "cat/1.png": png(2)})
    write_tar(tmp_path / "a" / "1.tar", {"dev/2.png": png(3), "2.png": png(4)})
    assert [sample.label for sample in open_dataset(tmp_path / "a")] == ["dev", "cat", "dev", None]
    write_tar(tmp_path / "b.tar", {"train/cat/1.png": png(1), "test/cat/1.png": png(2), "other/1.png": png(3)})
    with pytest.raises(FormatError, match="'other' is not"):
        open_dataset(tmp_path / "b.tar")


def test_dots_in_the_names_of_images(tmp_path):
    members = {"cat/i.001.png": png(1), "cat/i.002.PNG": png(2), "cat/i.002.cls": b"two", "cat/x.png": png(3)}
    members |= {"cat/x.seg.png": png(4), "cat/x.cls": b"tom", "cat/y.left.png": png(5), "cat/y.json": b'{"label": 7}'}
    write_tar(tmp_path / "a.tar", members)
    dataset = open_dataset(tmp_path / "a.tar")
    assert {sample.key[10:]: sample.label for sample in dataset} == {
        "i.001.png": "cat",
        "i.002.PNG": "two",
        "x.png": "tom",  # x.seg.png is what WebDataset keeps beside it
        "y.left.png": "7",
    }


def test_of_repeated_members_the_last_counts_and_hard_links_are_followed(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, content in (
            ("a.png", png(1)),
            ("a.cls", b"old"),
            ("b.png", png(2)),
            ("a.png", png(3)),
            ("a.cls", b""),
        ):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for name, target in (("c.png", "b.png"), ("d.png", "nowhere.png")):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.LNKTYPE, target
            archive.addfile(link)
    dataset = open_dataset(tmp_path / "a.tar", val=0, test=0)
    assert [sample.key for sample in dataset] == [f"a.tar/{name}.png" for name in "bacd"]
    assert [sample.source.read() for sample in dataset] == [png(2), png(3), png(2), b""]
    assert not dataset.classes
    summary = embed_dataset(dataset, PixelEncoder(), tmp_path / "s", workers=0)
    assert [skipped.path for skipped in summary.skipped] == ["a.tar/d.png"]


def test_shards_in_capitals_are_read_again(tmp_path):
    write_tar(tmp_path / "t" / "X.TAR", {"cat/1.png": png(1)})
    (tmp_path / "p").mkdir()
    parquet(tmp_path / "p" / "Y.PARQUET", range(2), label=["a", "b"])
    for source, key in (("t/X.TAR", "X.TAR/cat/1.png"), ("t", "X.TAR/cat/1.png"), ("p/Y.PARQUET", "Y.PARQUET#1"),
                        ("p", "Y.PARQUET#1")):  # fmt: skip
        dataset = open_dataset(tmp_path / source)
        assert locate(dataset.origin, key).read() == png(1), source


def test_a_damaged_page_of_a_parquet_file_is_a_bad_image(tmp_path):
    parquet(tmp_path / "a.parquet", range(6))
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    start = pq.ParquetFile(tmp_path / "a.parquet").metadata.row_group(1).column(0).data_page_offset
    content[start : start + 40] = bytes(40)
    (tmp_path / "a.parquet").write_bytes(content)
    dataset = open_dataset(tmp_path / "a.parquet")  # which reads images to find copies
    with pytest.raises(BadImage, match=r"a\.parquet is damaged there"):
        dataset.samples[2].image()
    assert embed_dataset(dataset, PixelEncoder(), tmp_path / "s", workers=0).rows == 4


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([b"cat", b" "], ["cat", None]),
        ([float("nan"), 2.0], [None, "2.0"]),
        (["cat ", ""], ["cat", None]),
        ([-1, None], [None, None]),
    ],
)
def test_labels_in_parquet_are_texts_or_none(tmp_path, values, labels):
    parquet(tmp_path / "a.parquet", range(2), label=values)
    assert [sample.label for sample in open_dataset(tmp_path / "a.parquet")] == labels


@pytest.mark.parametrize("label", ["[1, 2]", '{"a": 1}', "NaN", "1" * 3000, '"' + "x" * 2000 + '"'])
def test_a_label_in_a_shard_that_cannot_be_used_is_reported(tmp_path, label):
    """A list, NaN or megabytes of digits made the image unlabelled without a word."""
    members = {f"{name}.{kind}": png(number) for number, name in enumerate("ab") for kind in ("png",)}
    facts = f'{{"label": {label}, "split": "train"}}'.encode()
    write_tar(tmp_path / "x.tar", {**members, "a.json": facts, "b.json": b'{"label": "good", "split": "train"}'})
    with pytest.warns(CCRWarning, match=r"1 label of .*x\.tar cannot be used, such as that of 'x\.tar/a\.json'"):
        samples = list(open_dataset(tmp_path / "x.tar"))
    assert [(sample.label, sample.split) for sample in samples] == [(None, "train"), ("good", "train")]


def test_a_label_that_another_member_gives_is_not_missed(tmp_path):
    write_tar(tmp_path / "x.tar", {"a.png": png(0), "a.cls": b"3", "a.json": b"[]"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (sample,) = open_dataset(tmp_path / "x.tar")
    assert sample.label == "3"


def split_of_each_group(dataset):
    found = {}
    for sample in dataset:
        found.setdefault(sample.group, set()).add(sample.split)
    return found


def photos_of_trees(folder, kind):
    """Sixty photos of ten trees; what `--group` is to find them by: a column of Parquet files, an entry of a tar
    shard's .json, or what is in the members' names."""
    for shard in range(2):
        rows = range(30 * shard, 30 * shard + 30)
        facts = [{"label": f"class {row % 2}", "tree": f"tree {row // 6}"} for row in rows]
        if kind == "parquet":
            folder.mkdir(exist_ok=True)
            parquet(folder / f"{shard}.parquet", rows, **{name: [one[name] for one in facts] for name in facts[0]})
            continue
        members = {}
        for row, fact in zip(rows, facts, strict=True):
            name = f"{row // 6}_{row}"
            members |= {f"{name}.png": png(row), f"{name}.json": json.dumps(fact).encode()}
        write_tar(folder / f"{shard}.tar", members)
    return "/([0-9]+)_" if kind == "pattern" else "tree"


@pytest.mark.parametrize("kind", ["pattern", "json", "parquet"])
def test_groups_of_shards_are_never_divided(tmp_path, kind):
    group = photos_of_trees(tmp_path / "d", kind)
    dataset = open_dataset(tmp_path / "d", group=group, seed=1)
    found = split_of_each_group(dataset)
    assert len(found) == 10
    assert all(len(splits) == 1 for splits in found.values())
    assert set(dataset.splits) == {"train", "val", "test"}
    embed_dataset(dataset, PixelEncoder(), tmp_path / "s", workers=0)
    store = EmbeddingStore.open(tmp_path / "s")
    assert len(set(store.groups.tolist())) == 10
    assert list(store.splits) == [sample.split for sample in dataset]
    alone = split_of_each_group(open_dataset(tmp_path / "d", seed=1))
    assert set(alone) == {None}  # without the option nothing is a group
