"""One case of each area: something is damaged, then read and used. It survives if all that comes of it is an answer or
an error in words (CCRError)."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import random
import shutil
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import load, save

from ccr.classifier import ConceptClassifier
from ccr.data.datasets import locate, open_dataset
from ccr.data.datasets.sources import BadImage, decode
from ccr.data.store import EmbeddingStore, embed_dataset
from ccr.errors import CCRError
from ccr.explain.terms import plain
from ccr.io.provenance import signature_sentence
from ccr.knowledge import Knowledge
from ccr.model import ConceptModel
from ccr.review import Review, review_rows
from ccr.review.decisions import Decisions
from ccr.utils.texts import visible
from ccr.vocab import read_concepts
from tools.fuzz import seeds
from tools.fuzz.mutate import damage_file, damaged_array, damaged_bytes, json_text
from tools.fuzz.remote import Remote
from tools.fuzz.requests import Api, Servers, client_of, one_connection
from tools.fuzz.reviews import Reviews

#: What people may write into a concept list or a table.
LINES = ("red", "", "# no", "red", "\x1b[2J", "\u202egnp", "x" * 500, "é", "\udcff", "a,b", '"', "\x00", "🍎", " \t ")
TAR_NAMES = ("0", "a/0", "train/a/0", "../0", "/0", "a/.0", "0.0", "x" * 300, "\x1b[2J", "\udcff", "é/1", "")
TAR_KINDS = ("png", "json", "cls", "txt", "seg.png", "PNG", "")
#: Of members: files, links of both kinds, a folder, a device, sparse, a pipe, a heading of POSIX.
TAR_TYPES = (b"0", b"0", b"0", b"1", b"2", b"5", b"3", b"S", b"6", b"x", b"L")
ANSWERS = ("yes", "no", "unknown", "", "YES", "1", "maybe", "\x00")


class Areas:
    """The areas, with a folder of whole things and one for each case."""

    def __init__(self, folder: Path) -> None:
        self.case = folder / "case"
        self.photos = seeds.make_photos(folder / "photos")
        self.store = seeds.make_store(self.photos, folder / "store")
        self.model = seeds.make_model(folder / "model")
        self.signed = seeds.make_signed_model(folder / "signed")
        self.images = [path.read_bytes() for path in sorted(self.photos.rglob("*.*"))]
        self.shards = seeds.make_shards(self.photos, folder / "shards")
        self.remote = Remote(self.photos, self.shards, self.store, self.model)
        self.servers = Servers(self.store, folder / "servers", self.images)
        self.reviews = Reviews(self.store, self.servers.model)
        self.X = np.random.default_rng(1).standard_normal((4, seeds.DIMENSION)).astype(np.float32)

    def named(self) -> dict[str, Callable[[random.Random], None]]:
        return {
            "images": self.one_image,
            "models": self.one_model,
            "stores": self.one_store,
            "chunks": self.one_chunk,
            "manifests": self.one_manifest,
            "arrays": self.one_array,
            "concept lists": self.one_concept_list,
            "options": self.one_command,
            "knowledge": self.one_knowledge,
            "decisions": self.one_decision_log,
            "signed models": self.one_signed_model,
            "judged sheets": lambda rng: self.reviews.one_sheet(rng, self.fresh()),
            "answered pages": lambda rng: self.reviews.one_page(rng, self.fresh()),
            "corrections": lambda rng: self.reviews.one_correction_log(rng, self.fresh()),
            "language models": lambda rng: self.reviews.one_language_model(rng, self.fresh()),
            "text adapters": lambda rng: self.reviews.one_text_adapter(rng, self.fresh()),
            "parquet": self.one_parquet,
            "tar": self.one_tar,
            "hub": lambda rng: self.remote.one_hub(rng, self.fresh(), self.X),
            "object store": lambda rng: self.remote.one_object(rng, self.fresh(), self.X),
            "service": lambda rng: self.servers.service.ask(rng),
            "studio": lambda rng: self.servers.studio.ask(rng),
            "studio that only shows": self.one_look,
            "studio of reviewers": self.one_review,
            "sessions": self.one_session,
            "uploads": self.one_upload,
            "connections": lambda rng: one_connection(self.servers, rng),
        }

    def close(self) -> None:
        """End what areas have started."""
        self.servers.close()
        self.reviews.close()
        self.remote.close()

    def fresh(self, source: Path | None = None) -> Path:
        """The folder of the case: empty, or a copy."""
        shutil.rmtree(self.case, ignore_errors=True)
        if source is None:
            self.case.mkdir()
        else:
            shutil.copytree(source, self.case)
        return self.case

    def one_image(self, rng: random.Random) -> None:
        image = decode(damaged_bytes(rng.choice(self.images), rng), max_pixels=1_000_000)
        assert image.mode == "RGB"

    def one_model(self, rng: random.Random) -> None:
        folder = self.fresh(self.model)
        if rng.random() < 0.2:
            damage_file(folder, rng)
        else:
            _change_model(folder, rng)
        model = ConceptClassifier.load(folder)
        assert np.isfinite(model.predict_proba(self.X)).all()
        model.explain(self.X[0]).counterfactual()
        model.model_.evaluate(self.X, model.predict(self.X))

    def one_signed_model(self, rng: random.Random) -> None:
        """A model with answers about photos, their map by class, a calibration and a signature: what was damaged does
        not count as signed, unless it decides nothing."""
        folder = self.fresh(self.signed)
        _change_model(folder, rng)
        model = ConceptModel.load(folder)
        said = self.said(model)
        assert not model.is_signed or said == self.signed_words, "a model that says something else is signed"
        signature_sentence(model)
        if model.provenance.texts is not None:
            review_rows(Review(model, Decisions()))
        model.save(folder / "again")

    def said(self, model: ConceptModel) -> str:
        """All that a model says of some images: classes, sums, prediction sets and a question."""
        assert np.isfinite(model.predict_proba(self.X)).all()
        words = [model.explain(x).to_dict() for x in self.X]
        if model.calibration is not None:
            words += [plain([vars(model.predict_set(self.X)), model.question(self.X[0])])]
        return json.dumps(words, allow_nan=False)

    @cached_property
    def signed_words(self) -> str:
        return self.said(ConceptModel.load(self.signed))

    def one_store(self, rng: random.Random) -> None:
        folder = self.fresh(self.store)
        if rng.random() < 0.5:
            damage_file(folder, rng)
        else:
            description = folder / "store.json"
            description.write_text(json_text(json.loads(description.read_text()), rng))
        store = EmbeddingStore.open(folder)
        _ = store.X, store.y, store.splits, store.paths, store.classes, store.encoder, store.fingerprint
        store.select(rows=[0]).image(0)
        embed_dataset(open_dataset(self.photos), seeds.SmallEncoder(), folder, workers=0, batch_size=2, shard_size=5)

    def one_chunk(self, rng: random.Random) -> None:
        """A run that was stopped, whose chunk was damaged: it must go on, and where bytes were damaged, which their
        checksums tell, end with the same store."""
        folder, options = self.fresh(), {"workers": 0, "batch_size": 2, "shard_size": 5}
        dataset = open_dataset(self.photos)

        def stop(done: int, total: int) -> None:
            if done > 8:
                raise KeyboardInterrupt

        with suppress(KeyboardInterrupt):
            embed_dataset(dataset, seeds.SmallEncoder(), folder, progress=stop, **options)  # type: ignore[arg-type]
        chunk = folder / "progress" / f"chunk_{rng.randrange(2)}.npz"
        by_bytes = rng.random() < 0.5
        chunk.write_bytes((damaged_bytes if by_bytes else _other_chunk)(chunk.read_bytes(), rng))
        embed_dataset(dataset, seeds.SmallEncoder(), folder, **options)  # type: ignore[arg-type]
        for whole in self.store.rglob("*.npy") if by_bytes else ():
            assert (folder / whole.relative_to(self.store)).read_bytes() == whole.read_bytes(), "another store"

    def one_manifest(self, rng: random.Random) -> None:
        folder = self.fresh(self.photos)
        names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.*"))]
        rows = [f"{rng.choice([*names, *LINES, '../x.png'])},{rng.choice(LINES)},train" for _ in range(6)]
        data = "\n".join(["path,label,split", *rows]).encode(errors="surrogateescape")
        (folder / "m.csv").write_bytes(damaged_bytes(data, rng) if rng.random() < 0.5 else data)
        for sample in open_dataset(folder / "m.csv"):
            with suppress(BadImage):
                sample.image()

    def one_array(self, rng: random.Random) -> None:
        folder, stream = self.fresh(), io.BytesIO()
        np.save(stream, np.zeros((3, 4, 4, 3), np.uint8))
        data = stream.getvalue()
        header = damaged_bytes(data[:128], rng) if rng.random() < 0.8 else damaged_bytes(data, rng)
        (folder / "x.npy").write_bytes(header + data[128:])
        for sample in open_dataset(folder / "x.npy"):
            sample.image(max_pixels=1_000_000)

    def one_concept_list(self, rng: random.Random) -> None:
        path = self.fresh() / "concepts.txt"
        data = "\n".join(rng.choices(LINES, k=4)).encode(errors="surrogateescape")
        path.write_bytes(damaged_bytes(data, rng) if rng.random() < 0.5 else data)
        seeds.SmallEncoder().embed_texts(read_concepts(path))

    def one_knowledge(self, rng: random.Random) -> None:
        folder, names = self.fresh(), ("class", "concept", "answer", "source", "by", "at")
        rows = [
            [rng.choice(("apple", "pear", *LINES)), rng.choice(("red", "round", *LINES)), rng.choice(ANSWERS)]
            + [rng.choice(("", "me", *LINES)) for _ in range(3)]
            for _ in range(rng.randrange(8))
        ]
        if rng.random() < 0.5:
            path, stream = folder / "k.csv", io.StringIO(newline="")
            csv.writer(stream).writerows([names, *rows])
            data = stream.getvalue().encode(errors="surrogateescape")
        else:
            path, packed = folder / "k.parquet", io.BytesIO()
            columns = zip(*rows, strict=True) if rows else ((),) * 6
            plain = [[visible(cell) for cell in column] for column in columns]
            pq.write_table(pa.table(dict(zip(names, plain, strict=True))), packed)
            data = packed.getvalue()
        path.write_bytes(damaged_bytes(data, rng) if rng.random() < 0.6 else data)
        known = Knowledge.read(path)
        known.write(folder / "again.csv")
        assert Knowledge.read(folder / "again.csv") == known, "another table"

    def one_decision_log(self, rng: random.Random) -> None:
        """A log with damaged lines or bytes; what can be read takes another decision, and reads the same again."""
        path = self.fresh() / "decisions.jsonl"
        log = Decisions(path)
        with suppress(CCRError):  # names that nobody may write
            for _ in range(rng.randrange(1, 6)):
                by, concept = rng.choice(("me", "you", *LINES)), rng.choice(("red", "round", *LINES))
                log.decide(rng.choice(("apple", "pear", *LINES)), concept, rng.choice(("yes", "no", "unclear")), by=by)
                if rng.random() < 0.3:
                    log.strike(concept, by=by)
                if rng.random() < 0.3:
                    log.undo(by=by)
        if path.exists() and rng.random() < 0.7:
            lines = path.read_bytes().splitlines(keepends=True)
            place = rng.randrange(len(lines))
            lines[place] = json_text(json.loads(lines[place]), rng).encode() + b"\n"
            data = b"".join(lines)
            path.write_bytes(damaged_bytes(data, rng) if rng.random() < 0.5 else data)
        damaged = Decisions(path)
        made = damaged.decide("apple", "red", "yes", by="me")
        again = Decisions(path)
        assert tuple(again) == tuple(damaged), "another log"
        assert made in tuple(again), "the decision is lost"
        again.disputes()
        again.agreements()

    def one_parquet(self, rng: random.Random) -> None:
        """Images in Parquet, of types that are none, nested or repeated, their bytes damaged or not."""
        folder, image = self.fresh(), rng.choice(self.images)
        values: list[Any] = [rng.choice((image, image, b"", None, b"x" * 1000)) for _ in range(5)]
        kinds: tuple[Any, ...] = (
            pa.array(values, pa.binary()),
            pa.array(values, pa.large_binary()),
            pa.array(values, pa.binary()).dictionary_encode(),
            pa.array([{"bytes": value, "path": None} for value in values]),
            pa.array([{"bytes": {"bytes": value}} for value in values]),
            pa.array([[{"bytes": value}] for value in values]),
            pa.array([[value, value] for value in values], pa.list_(pa.binary())),
            pa.array([None] * 5, pa.null()),
        )
        label: Any = rng.choice((["a", "b", "a", None, "b"], [0, 1, 0, 1, None], [[1], [2], [], None, [1]], [0.5] * 5))
        table = pa.table({"image": rng.choice(kinds), rng.choice(("label", "image", "split")) + "s": label})
        stream = io.BytesIO()
        pq.write_table(table, stream, row_group_size=rng.choice((1, 2, 5)))
        data = stream.getvalue()
        (folder / "x.parquet").write_bytes(damaged_bytes(data, rng) if rng.random() < 0.6 else data)
        for sample in open_dataset(folder / "x.parquet"):
            with suppress(BadImage):
                sample.image(max_pixels=1_000_000)

    def one_tar(self, rng: random.Random) -> None:
        """Shards with hostile members beside their images, or damaged bytes."""
        folder = self.fresh(self.shards)
        if rng.random() < 0.5:
            damage_file(folder, rng)
        else:
            path = rng.choice(sorted(folder.glob("*.tar")))
            members = {f"{rng.choice(TAR_NAMES)}.{rng.choice(TAR_KINDS)}": _side(rng) for _ in range(rng.randrange(6))}
            seeds.write_tar(path, members | {"0.png": self.images[0]}, kind=rng.choice(TAR_TYPES))
        labels = rng.choice((None, None, "txt", "label", "nothing"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # labels that cannot be used
            dataset = open_dataset(folder, label_column=labels)
        for sample in dataset:
            with suppress(BadImage):
                sample.image(max_pixels=1_000_000)
            locate(dataset.origin, sample.key)

    def one_look(self, rng: random.Random) -> None:
        self.servers.shown.ask(rng)
        assert not (self.servers.folder / "shown").exists(), "it wrote something"

    def one_review(self, rng: random.Random) -> None:
        reviewed, folder = self.servers.reviewed, self.servers.folder / "reviewed"
        if rng.random() < 0.5:
            reviewed.ask(rng)
        else:
            said = {"by": rng.choice(("me", "you", *LINES[:4])), "class": "class 0", "concept": "concept 1"}
            said["answer"] = rng.choice(("yes", "no", "unclear", "maybe"))
            reviewed.check(reviewed.client.post("/api/decisions", json=said))
        written = {path.name for path in folder.rglob("*") if path.is_file()}
        assert written <= {"decisions.jsonl"}, f"more than answers was written: {sorted(written)}"

    def one_session(self, rng: random.Random) -> None:
        """A session of the studio with a damaged file, entry or model: opened, looked at, and gone on with."""
        folder, kind = self.fresh(self.servers.session), rng.randrange(3)
        if kind == 0:
            damage_file(folder, rng)
        elif kind == 1:
            path = rng.choice([*sorted(folder.rglob("list.json")), *([folder / "session.json"] * 4)])
            path.write_text(json_text(json.loads(path.read_text()), rng))
        else:
            _change_model(rng.choice(sorted(folder.rglob("model"))), rng)
        with client_of(self.servers.bench(folder, None)) as client:
            api = Api(client, self.images)
            api.check(client.get("/api/state"))
            looks = [one for one in api.operations if one.method == "get" and one.path.startswith("/api/")]
            for operation in rng.sample(looks, 4):
                api.ask(rng, operation)
            api.check(client.post("/api/undo"))
            api.ask(rng, next(one for one in api.operations if one.path == "/api/edits"))

    def one_upload(self, rng: random.Random) -> None:
        rng.choice((self.servers.service, self.servers.studio)).upload(rng)

    def one_command(self, rng: random.Random) -> None:
        from tools.fuzz.options import one_command

        one_command(self, rng)


def _change_model(folder: Path, rng: random.Random) -> None:
    """Change the configuration or a tensor, with the checksum that belongs to it: as somebody would on purpose."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    blob = (folder / "model.safetensors").read_bytes()
    if rng.random() < 0.5:
        tensors = load(blob)
        name = rng.choice(sorted(tensors))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NaN as an integer
            tensors[name] = np.ascontiguousarray(damaged_array(tensors[name], rng))
        blob = save(tensors)
        (folder / "model.safetensors").write_bytes(blob)
        text = json.dumps({**config, "tensors_sha256": hashlib.sha256(blob).hexdigest()})
    else:
        text = json_text(config, rng)
    (folder / "config.json").write_text(text)


def _side(rng: random.Random) -> bytes:
    """What may stand beside an image: labels, or JSON with some."""
    if rng.random() < 0.5:
        return rng.choice(LINES).encode(errors="surrogateescape")
    label = rng.choice((*LINES, 3, None, 1e999, [1], {"a": 1}, -1, True))
    return json_text({"label": label, "split": rng.choice(("train", "x", 3, None))}, rng).encode(errors="replace")


def _other_chunk(data: bytes, rng: random.Random) -> bytes:
    """A whole archive of something else."""
    with np.load(io.BytesIO(data)) as archive:
        parts = dict(archive)
    if rng.random() < 0.5:
        parts["embeddings"] = damaged_array(parts["embeddings"], rng)
    else:
        parts["facts"] = np.frombuffer(json_text(json.loads(parts["facts"].tobytes()), rng).encode(), np.uint8)
    stream = io.BytesIO()
    np.savez(stream, **parts)
    return stream.getvalue()
