"""What people and models say of claims and photos, damaged: sheets that are judged, answers of a page, corrections of
photos, a language model's server that misbehaves; and the file of the text adapter."""

from __future__ import annotations

import json
import os
import random
import socket
import threading
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from unittest import mock

import numpy as np
from safetensors.numpy import save_file

from ccr.data.store import EmbeddingStore
from ccr.encoders.bundled import load_adapter
from ccr.errors import CCRError
from ccr.knowledge import COLUMNS, Knowledge
from ccr.model import ConceptModel
from ccr.review.asking import PhotoSession, read_page_answers
from ccr.review.judgement import WORTH, Sheet, read_answers, record, score
from ccr.show.pages import judge_page
from ccr.utils.texts import csv_text
from ccr.vocab.llm import Endpoint, LLMQuestion, answered, parse_answer, parse_verdicts
from ccr_studio.photos import Photos
from ccr_studio.work.corrections import Corrections
from tools.fuzz.mutate import damaged_array, damaged_bytes, damaged_json, json_text

ASKED = ("red", "round", "a\u200db")
TIMES = ("", "2026-11-19", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59+00:00", "soon")
HEADS = (
    b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 503 Busy\r\nRetry-After: 1e400\r\n",
    b"HTTP/1.1 429 Slow\r\nRetry-After: nan\r\n", b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n", b"HTTP/1.1 401 No\r\n", b"HTTP/1.1 999 \x1b[2J\r\n",
    b"\x1b[2J nonsense\r\n", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 300, b"",
)  # fmt: skip


class Reviews:
    """A sheet, a log and a server of a language model, on a store and a model."""

    def __init__(self, store: Path, model: ConceptModel) -> None:
        self.place, self.model = store, model
        self._server: socket.socket | None = None
        self._answer = b""

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    @cached_property
    def store(self) -> EmbeddingStore:
        return EmbeddingStore.open(self.place)

    @cached_property
    def sheet(self) -> Sheet:
        return Sheet.draw({"ours": self.model}, self.store, photos=4, facts={"store": str(self.place), "split": "all"})

    @cached_property
    def port(self) -> int:
        """Of a server that sends what `_answer` holds, whatever it is asked."""
        self._server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, args=(self._server,), daemon=True).start()
        return int(self._server.getsockname()[1])

    def _serve(self, server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection, suppress(OSError):
                    connection.recv(65_536)
                    connection.sendall(self._answer)

    def one_sheet(self, rng: random.Random, folder: Path) -> None:
        """A sheet with verdicts, or the verdicts that its page saved, damaged; then judged, scored and shown."""
        verdicts = ["", *WORTH]
        plain = self.sheet.to_dict()
        for photo in plain["photos"]:
            photo["verdicts"] = {claim: rng.choice(verdicts) for claim in photo["verdicts"]}
        saved = {"sheet": self.sheet.digest, "judge": rng.choice(("", "anna", "\x1b[2J", "x" * 99))}
        saved["verdicts"] = [[rng.choice(verdicts) for _ in photo.claims] for photo in self.sheet.photos]
        paths = folder / "sheet.json", folder / "saved.json"
        damaged = rng.randrange(3)
        for number, (path, content) in enumerate(zip(paths, (plain, saved), strict=True)):
            text = (json_text(content, rng) if number == damaged else json.dumps(content)).encode()
            path.write_bytes(damaged_bytes(text, rng) if number == damaged and rng.random() < 0.3 else text)
        sheet = Sheet.read(paths[0])
        sheet = record(paths[0], *read_answers(paths[1], sheet)) if sheet.digest == self.sheet.digest else sheet
        assert Sheet.read(paths[0]).digest == sheet.digest, "another sheet"
        if any(photo.row not in range(len(self.store)) for photo in sheet.photos):
            return
        assert "<script>alert" not in judge_page(sheet, self.store)
        score(sheet)

    def one_page(self, rng: random.Random, folder: Path) -> None:
        """Answers of a page about photos, damaged; what is taken can be written and asked on."""
        usual = [str(path) for path, split in zip(self.store.paths, self.store.splits, strict=True) if split != "test"]
        paths = [*map(str, self.store.paths), "../x", "", "class 0/0.png\u200b"]
        names = [*self.model.names, "=cmd|x", "\x1b[2J"]
        hostile = rng.random() < 0.3
        rows = [
            (
                rng.choice(("class 0", "", "nobody")),
                rng.choice(names if hostile else names[: len(self.model.names)]),
                rng.choice(("yes", "no", "unknown", "maybe" if hostile else "YES")),
                rng.choice(("person", "llm", "x")),
                rng.choice(("", "me", "=1")),
                rng.choice(TIMES if hostile else TIMES[:3]),
                rng.choice(paths if hostile else usual),
            )
            for _ in range(rng.randrange(1, 9))
        ]
        data = csv_text(COLUMNS, rows).encode()
        (folder / "answers.csv").write_bytes(damaged_bytes(data, rng) if rng.random() < 0.4 else data)
        session = PhotoSession.begin(self.model, self.store, Knowledge.of([]), folder / "knowledge.csv", 7)
        session.add(read_page_answers(folder / "answers.csv", self.store, self.model))
        assert Knowledge.read(folder / "knowledge.csv") == session.known, "another table"
        for ladder in session.ladders:
            session.next(ladder)
            session.spread(ladder)
        session.contradicted()

    def one_correction_log(self, rng: random.Random, folder: Path) -> None:
        """A log of corrections with damaged lines or bytes; what can be read takes another one, and is used."""
        log, paths = Corrections(folder / "photos.jsonl", self.store.paths), list(map(str, self.store.paths))
        for _ in range(rng.randrange(1, 6)):
            row = rng.randrange(len(paths))
            kind = rng.choice(("concept", "label", "leave out"))
            answer = {"concept": "yes", "label": rng.choice(("class 0", "zebra", "\u202e")), "leave out": "yes"}[kind]
            with suppress(CCRError):
                log.add(row, paths[row], kind, answer, concept="concept 1" if kind == "concept" else "", by="me")
        if log.path.exists() and rng.random() < 0.8:
            lines = log.path.read_bytes().splitlines(keepends=True)
            place = rng.randrange(len(lines))
            lines[place] = json_text(json.loads(lines[place]), rng).encode() + b"\n"
            data = b"".join(lines)
            log.path.write_bytes(damaged_bytes(data, rng) if rng.random() < 0.4 else data)
        damaged = Corrections(log.path, self.store.paths)
        damaged.add(1, paths[1], "leave out", "yes")
        again = Corrections(log.path, self.store.paths)
        assert again.all() == damaged.all(), "another log"
        assert 1 in again.left_out, "the correction is lost"
        corrected = Photos(self.store).corrected(again.labels, again.left_out)
        assert not np.isin([1], np.concatenate([corrected.training, corrected.validation, corrected.test])).any()
        again.knowledge()
        again.csv()

    def one_language_model(self, rng: random.Random, folder: Path) -> None:
        """A server of a language model that answers anything: verdicts, a reason, or a refusal in words."""
        words = dict.fromkeys(ASKED, "yes") if rng.random() < 0.5 else {"parts": ["long tail"], "colours": ["red"]}
        parse = parse_answer if "parts" in words else lambda text: parse_verdicts(ASKED, text)
        said = json.dumps(damaged_json(words, rng) if rng.random() < 0.6 else words)
        said = f"```json\n{said}```" if rng.random() < 0.2 else said
        content = {"choices": [{"message": {"content": said}}]}
        body = json.dumps(damaged_json(content, rng) if rng.random() < 0.3 else content).encode()
        body = damaged_bytes(body, rng) if rng.random() < 0.3 else body
        length = rng.choice((len(body), len(body), len(body) + 9, max(0, len(body) - 9), -1, 10**30))
        framing = rng.choice((b"", b"Transfer-Encoding: chunked\r\n", b"Content-Length: %d\r\n" % length))
        head = rng.choice(HEADS) + framing
        self._answer = head + b"\r\n" + body
        endpoint = Endpoint(f"http://127.0.0.1:{self.port}/v1", "tiny", timeout=2.0, attempts=1)
        failed: dict[str, str] = {}
        reasons: list[str] = []
        environment = {"NO_PROXY": "127.0.0.1", "CCR_LLM_KEY": "sk-secret"}
        with mock.patch.dict(os.environ, environment), mock.patch("ccr.vocab.llm.LONGEST_WAIT", 5.0):
            try:
                found = list(answered([LLMQuestion("cat", "what?", parse)], endpoint, folder / "llm", failed))
                assert len(found) + len(failed) == 1
                reasons += failed.values()
            except CCRError as refused:
                reasons.append(str(refused))
        assert all(reason and "sk-secret" not in reason and len(reason) < 500 for reason in reasons), reasons

    def one_text_adapter(self, rng: random.Random, folder: Path) -> None:
        """An adapter of four words, damaged; what loads gives directions that are numbers."""
        numbers = np.random.default_rng(0)
        tensors = {
            "words": np.frombuffer(b"red\nfire engine\nengine\nwings", np.uint8),
            "points": numbers.integers(-127, 128, (4, 384)).astype(np.int8),
            "points_scale": np.full(4, 1e-3, np.float32),
            "weights": numbers.integers(-127, 128, (4, 16)).astype(np.int8),
            "weights_scale": numbers.random(4).astype(np.float32),
            "noise": numbers.random(4).astype(np.float32),
            "image_mean": numbers.standard_normal(16).astype(np.float32),
        }
        metadata = {"gamma": "0.5", "word_share": "0.3"}
        if rng.random() < 0.3:
            metadata[rng.choice(sorted(metadata))] = rng.choice(("nan", "-1", "0", "1e400", "", "x"))
        elif rng.random() < 0.7:
            name = rng.choice(sorted(tensors))
            with np.errstate(all="ignore"):
                tensors[name] = np.ascontiguousarray(damaged_array(tensors[name], rng))
        path = folder / "a.safetensors"
        save_file(tensors, path, metadata)
        if rng.random() < 0.3:
            path.write_bytes(damaged_bytes(path.read_bytes(), rng))
        adapter = load_adapter(path)
        found = adapter.directions(np.eye(384, dtype=np.float32)[:2], ["a red thing", "another"])
        assert found.shape == (2, adapter.weights.shape[1])
