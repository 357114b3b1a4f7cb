"""Small copies of the published data sets, in their real structure."""

import numpy as np

from ccr.data.datasets import locate
from ccr_lab.published.cifar import CIFAR10_CLASSES
from tests.data.helpers import encoded, picture

BATCHES = [f"data_batch_{number}.bin" for number in range(1, 6)]
BIRDS = ["001.Black_footed_Albatross", "002.Laysan_Albatross", "010.Red.winged_Blackbird"]


def write(path, seed):
    """Picture `seed` as what the name says: PNG pixels come back as they were, JPEG bytes do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    form = "PNG" if path.suffix.lower() == ".png" else "JPEG"
    path.write_bytes(encoded(picture(seed), form))
    return path


def write_lines(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def change_line(path, number, text):
    """Another text for line `number`; None takes the line away."""
    lines = path.read_text().splitlines()
    lines[number - 1 : number] = [] if text is None else [text]
    write_lines(path, lines)


def facts(dataset):
    return [(sample.key, sample.label, sample.split) for sample in dataset]


def pixels_of(sample):
    return np.asarray(sample.image())


def check_files(dataset, seeds):
    """Every sample is the picture of its seed, and its key leads back to it."""
    assert {sample.key for sample in dataset} == set(seeds)
    for sample in dataset:
        path = sample.source.path
        expected = encoded(picture(seeds[sample.key]), "PNG" if path.suffix == ".png" else "JPEG")
        assert sample.source.read() == expected
        assert locate(dataset.origin, sample.key).read() == expected


def write_records(path, pixels, labels):
    """Records of label bytes and the red, green and blue planes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    planes = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)
    path.write_bytes(np.concatenate([np.asarray(labels, np.uint8), planes], axis=1).tobytes())


def write_cifar10(folder):
    rng = np.random.default_rng(0)
    made = {}
    for number, name in enumerate([*BATCHES, "test_batch.bin"]):
        rows = 2 + number
        made[name] = rng.integers(0, 256, (rows, 32, 32, 3), dtype=np.uint8), rng.integers(0, 10, rows)
        write_records(folder / name, made[name][0], made[name][1][:, None])
    write_lines(folder / "batches.meta.txt", [*CIFAR10_CLASSES, ""])
    return made


def write_cifar100(folder):
    rng = np.random.default_rng(1)
    made = {}
    for name, rows in (("train.bin", 6), ("test.bin", 4)):
        made[name] = rng.integers(0, 256, (rows, 32, 32, 3), dtype=np.uint8), rng.integers(20, 100, rows)
        coarse = rng.integers(0, 20, rows)
        write_records(folder / name, made[name][0], np.stack([coarse, made[name][1]], axis=1))
    write_lines(folder / "fine_label_names.txt", [f"kind_of_{number}" for number in range(100)])
    return made


def write_cub(folder):
    """Six images: two of every class, the first of them for training. Seeds by key."""
    names = [f"{bird}/{bird[4:]}_{number}.jpg" for bird in BIRDS for number in (7, 3)]
    seeds = {f"images/{name}": seed for seed, name in enumerate(names)}
    for key, seed in seeds.items():
        write(folder / key, seed)
    write_lines(folder / "images.txt", [f"{row} {name}" for row, name in enumerate(names, start=1)])
    write_lines(folder / "image_class_labels.txt", [f"{row} {(row + 1) // 2}" for row in range(1, 7)])
    write_lines(folder / "train_test_split.txt", [f"{row} {row % 2}" for row in range(1, 7)])
    write_lines(folder / "classes.txt", [f"{row} {bird}" for row, bird in enumerate(BIRDS, start=1)])
    return seeds
