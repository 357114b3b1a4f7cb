"""Pipes, devices, sockets and folders in the place of files, and hubs that send without an end: refused before a byte
is read, in words."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tools.fuzz import seeds

import ccr.runtime
from ccr.data.datasets import open_dataset
from ccr.data.datasets.sources import BadImage, ObjectImage
from ccr.data.store import EmbeddingStore
from ccr.errors import CCRError, FormatError
from ccr.io import hub
from ccr.io.files import MOST_BYTES, read_regular
from ccr.io.remote import Place, as_place
from ccr.knowledge import Knowledge
from ccr.model import ConceptModel
from ccr.review import Decisions
from ccr.vocab import read_concepts
from ccr_studio.photos import Thumbnails
from ccr_studio.serving import open_workbench
from ccr_studio.work.corrections import Corrections
from ccr_studio.work.session import StudioSession
from tests.io.hub_server import COMMIT

if os.name != "posix":
    pytest.skip("there are no pipes in folders elsewhere", allow_module_level=True)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()


def bound_socket(path: Path) -> None:
    before = os.getcwd()
    os.chdir(path.parent)  # the address of a socket is short
    try:
        socket.socket(socket.AF_UNIX).bind(path.name)
    finally:
        os.chdir(before)


KINDS = [pipe, device, folder, bound_socket]


def without_waiting(work: Callable[[], Any]) -> Any:
    """What a call gives or raises; an error where it does not end, as on a pipe that nobody writes to."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert outcome, "it does not end"
    return outcome[0]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return seeds.make_model(tmp_path_factory.mktemp("special") / "model")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("special")
    return seeds.make_store(seeds.make_photos(place / "photos"), place / "store")


def replaced(path: Path, make: Callable[[Path], None]) -> None:
    path.unlink()
    make(path)


@pytest.mark.parametrize("load", [ConceptModel.load, ccr.runtime.load])
@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("make", KINDS)
def test_a_model_folder_with_a_special_file_is_refused(
    model: Path, tmp_path: Path, make: Callable[[Path], None], name: str, load: Callable[[Path], Any]
) -> None:
    """A pipe was waited on for ever, and a link to /dev/zero took all memory."""
    shutil.copytree(model, tmp_path / "model")
    replaced(tmp_path / "model" / name, make)
    error = without_waiting(lambda: load(tmp_path / "model"))
    assert isinstance(error, FormatError)
    assert "not a regular file" in str(error)


@pytest.mark.parametrize("name", ["store.json", "img_emb/img_emb_0.npy", "metadata/metadata_0.parquet"])
@pytest.mark.parametrize("make", [pipe, device])
def test_a_store_with_a_special_file_is_refused(
    store: Path, tmp_path: Path, make: Callable[[Path], None], name: str
) -> None:
    shutil.copytree(store, tmp_path / "store")
    file = next(iter(sorted((tmp_path / "store").glob(name.replace("_0.", "_*.")))))
    replaced(file, make)

    def use() -> Any:
        opened = EmbeddingStore.open(tmp_path / "store")
        return opened.y, np.asarray(opened), opened.description["source"]

    assert isinstance(without_waiting(use), CCRError)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("concepts.txt", read_concepts),
        ("knowledge.csv", Knowledge.read),
        ("knowledge.parquet", Knowledge.read),
        ("images.csv", lambda path: list(open_dataset(path))),
        ("images.npy", lambda path: list(open_dataset(path))),
        ("images.tar", lambda path: list(open_dataset(path))),
        ("images.parquet", lambda path: list(open_dataset(path))),
    ],
)
def test_no_reader_waits_for_a_special_file(
    tmp_path: Path, make: Callable[[Path], None], name: str, read: Callable[[Path], Any]
) -> None:
    make(tmp_path / name)
    assert isinstance(without_waiting(lambda: read(tmp_path / name)), CCRError)


def test_a_pipe_among_kept_thumbnails_is_not_waited_for(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CCR_CACHE", str(tmp_path))
    thumbnails = Thumbnails(EmbeddingStore.open(store), tmp_path)
    made = thumbnails.of(0, 160)
    replaced(next(tmp_path.rglob("*-160.jpg")), pipe)
    assert without_waiting(lambda: thumbnails.of(0, 160)) == made


def test_the_size_of_an_object_is_that_of_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what a listing, or the answer to an earlier question, said."""

    class Growing:
        type, size = SimpleNamespace(name="File"), 3

        def get_file_info(self, _: str) -> Any:
            return self

        def open_input_file(self, _: str) -> Any:
            return SimpleNamespace(size=lambda: 1 << 40, read_at=lambda *_: pytest.fail("it is read"))

    monkeypatch.setattr("ccr.io.remote.filesystem", lambda *_: Growing())
    with pytest.raises(OSError, match="more than the limit of 536,870,912"):
        read_regular(as_place("s3://bucket/list.txt"))
    with pytest.raises(BadImage, match="it has 1,099,511,627,776 bytes, more than the limit"):
        ObjectImage(Place("s3://bucket/photo.jpg"), 3).read()


def sparse(path: Path, kind: str, shape: tuple[int, ...]) -> None:
    """A `.npy` file of 1 TB that takes no disk."""
    with path.open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, {"descr": kind, "fortran_order": False, "shape": shape})
        stream.truncate(stream.tell() + (1 << 40))


def test_arrays_of_a_session_are_not_read_before_their_shape_is_known(model: Path, store: Path, tmp_path: Path) -> None:
    bench = open_workbench(EmbeddingStore.open(store), ConceptModel.load(model), tmp_path / "session")
    (tmp_path / "session" / "selections").mkdir()
    sparse(tmp_path / "session" / "selections" / f"{'0' * 16}.npy", "<i8", (1 << 37,))
    with pytest.raises(CCRError, match="that selection is not known here"):
        bench.selections.get("0" * 16)
    bench.close()
    sparse(next((tmp_path / "session").rglob("list.npy")), "<f4", (1 << 34, 16))
    with pytest.raises(FormatError, match=r"embeddings of shape \(17179869184, 16\)"):
        StudioSession.open(tmp_path / "session", None)


def test_a_file_beyond_the_limit_is_refused_before_it_is_read(tmp_path: Path, model: Path) -> None:
    with (tmp_path / "sparse").open("wb") as stream:
        stream.truncate(MOST_BYTES + 1)
    with pytest.raises(OSError, match="more than the limit of 536,870,912"):
        read_regular(tmp_path / "sparse")
    shutil.copytree(model, tmp_path / "model")
    with (tmp_path / "model" / "model.safetensors").open("ab") as stream:
        stream.truncate(9 << 30)
    with pytest.raises(FormatError, match="more than the limit of 8,589,934,592"):
        ConceptModel.load(tmp_path / "model")


@pytest.mark.parametrize("exists", [True, False])
def test_a_log_is_not_written_through_a_link(tmp_path: Path, exists: bool) -> None:
    """A folder from elsewhere chose the file that answers were appended to."""
    elsewhere = tmp_path / "elsewhere"
    if exists:
        elsewhere.write_bytes(b"unfinished")
    for name in ("decisions.jsonl", "photos.jsonl"):
        (tmp_path / name).symlink_to(elsewhere)
    with pytest.raises(CCRError, match="cannot be written"):
        Decisions(tmp_path / "decisions.jsonl").decide("pear", "red", "yes", by="me")
    with pytest.raises(CCRError, match="cannot be written"):
        Corrections(tmp_path / "photos.jsonl").add(0, "0", "leave out", "yes")
    assert (elsewhere.read_bytes() if elsewhere.exists() else None) == (b"unfinished" if exists else None)


@pytest.mark.parametrize("name", ["lock", "refit", "steps/00001", "decisions.jsonl"])
def test_a_session_with_a_link_is_not_opened_to_be_written(model: Path, store: Path, tmp_path: Path, name: str) -> None:
    """Its lock was emptied, and a refit removed folders, wherever the link led."""
    opened = EmbeddingStore.open(store)
    open_workbench(opened, ConceptModel.load(model), tmp_path / "session").close()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "model").write_text("of worth")
    place = tmp_path / "session" / name
    place.unlink(missing_ok=True)
    place.symlink_to(elsewhere if name in ("refit", "steps/00001") else elsewhere / "model")
    with pytest.raises(FormatError, match="is a link, and a session is written where it lies"):
        open_workbench(opened, None, tmp_path / "session")
    assert (elsewhere / "model").read_text() == "of worth"
    place.unlink()
    open_workbench(opened, None, tmp_path / "session").close()


class EndlessHub(ThreadingHTTPServer):
    """A hub whose files have no end; `announced` is the length that it tells before it sends."""

    daemon_threads = True

    def __init__(self, announced: int | None) -> None:
        super().__init__(("127.0.0.1", 0), _Endless)
        self.announced = announced


class _Endless(BaseHTTPRequestHandler):
    server: EndlessHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Tests are quiet."""

    def do_HEAD(self) -> None:
        self.send_response(200)
        headers = {"ETag": '"x"', "X-Repo-Commit": COMMIT, "Content-Length": self.server.announced or 1000}
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("ETag", '"x"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        block = b"80000\r\n" + b" " * 0x80000 + b"\r\n"
        try:
            for _ in range(800):  # 400 MB
                self.wfile.write(block)
        except OSError:
            return


@pytest.fixture
def endless(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[EndlessHub]:
    server = EndlessHub(request.param)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("endless", [None, 20 << 30], indirect=True, ids=["a small length", "a large length"])
def test_a_hub_that_sends_without_an_end_fills_no_disk(
    endless: EndlessHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = dict.fromkeys(hub.FILES, 8 << 20)
    monkeypatch.setattr("ccr.io.hub.FILES", limits)
    with pytest.raises(CCRError, match=r"config.json on the hub has more than 8,388,608 bytes"):
        ConceptModel.from_pretrained("me/endless", cache_dir=tmp_path / "cache")
    kept = sum(file.stat().st_size for file in (tmp_path / "cache").rglob("*") if file.is_file())
    assert kept <= 16 << 20
