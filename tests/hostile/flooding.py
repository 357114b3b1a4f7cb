"""Programs that flood a server of their own, each in a process whose memory can be measured:
`python -m tests.hostile.flooding uploads FOLDER` prints what came of it as JSON."""

from __future__ import annotations

import http.client
import io
import json
import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from PIL import Image

from ccr_studio.service.limits import DECODING

#: A side of 3,150 pixels: 9.9 megapixels in 33 kB, and a quarter of the usual budget for such photos.
SIDE, BUDGET = 3150, 256 << 20


def peak() -> int:
    """The most memory that this process ever had, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def large_photo() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (SIDE, SIDE), (200, 40, 40)).save(stream, "PNG")
    return stream.getvalue()


def flooded(url: str, ask: Callable[[http.client.HTTPConnection, int], None], requests: int) -> dict[str, Any]:
    """The statuses of so many requests at once, the memory that they took, and whether others were answered. Twelve
    photos are decoded or wait for as long as it takes, so that a busy machine changes nothing; more are sent away."""
    DECODING.budget, DECODING.waiting, DECODING.patience = BUDGET, 8, 3600
    host = url.removeprefix("http://").partition("/")[0]
    before, statuses, retries = peak(), Counter[int](), Counter[bool]()

    def send(number: int) -> None:
        connection = http.client.HTTPConnection(host, timeout=800)
        ask(connection, number)
        answer = connection.getresponse()
        content = json.loads(answer.read())
        statuses[answer.status] += 1
        if answer.status == 503:
            retries["error" in content and answer.headers["Retry-After"] is not None] += 1

    with ThreadPoolExecutor(requests) as pool:
        under_way = [pool.submit(send, number) for number in range(requests)]
        probe = http.client.HTTPConnection(host, timeout=800)
        probe.request("GET", "/api/state" if "studio" in sys.argv[1] else "/health")
        others = probe.getresponse().status
        done_before = sum(future.done() for future in under_way)
        for future in under_way:
            future.result()
    return {
        "statuses": dict(statuses),
        "in_words": retries[False] == 0,
        "grown": peak() - before,
        "others": others,
        "done_before": done_before,
    }


def studio_uploads(folder: Path) -> dict[str, Any]:
    """40 uploads at once, to a studio that only shows."""
    from ccr_studio.serving import Running
    from tests.studio.helpers import fit_model, make_bench, make_store

    store = make_store(folder)
    running = Running(make_bench(store, fit_model(store), folder, read_only=True))
    photo = large_photo()

    def ask(connection: http.client.HTTPConnection, number: int) -> None:
        connection.request("POST", "/api/uploads", photo + bytes([number]))

    try:
        return flooded(running.url, ask, 40)
    finally:
        running.close()


def whole_photos(folder: Path) -> dict[str, Any]:
    """16 requests of three photos at once, to a service whose encoder is given whole photos."""
    from ccr_studio.service.app import create_app
    from ccr_studio.service.guards import access_for
    from ccr_studio.service.limits import RequestLimits
    from ccr_studio.service.runner import listen, server_of, url_of
    from ccr_studio.service.service import Served, Service
    from tests.data.helpers import PixelEncoder
    from tests.serve.conftest import small_model

    class WholeEncoder(PixelEncoder):
        crop = None

    limits = RequestLimits(seconds=800)  # a busy machine: nothing is timed here
    served = Served("colours", small_model(), WholeEncoder())
    listening = listen("127.0.0.1", 0)
    server = server_of(create_app(Service(lambda: served, limits=limits), access=access_for("127.0.0.1", None)), limits)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    url = url_of(listening)
    thread.start()
    part = b'--x\r\nContent-Disposition: form-data; name="photos"; filename="a.png"\r\n\r\n' + large_photo() + b"\r\n"

    def ask(connection: http.client.HTTPConnection, number: int) -> None:
        headers = {"Content-Type": "multipart/form-data; boundary=x"}
        connection.request("POST", "/v1/predict", part * 3 + b"--x--\r\n", headers)

    try:
        return flooded(url, ask, 16)
    finally:
        server.should_exit = True
        thread.join(30)


def _stopped(
    url: str, ask: Callable[[http.client.HTTPConnection, int], None], serve: Callable[[], int], begun: threading.Event
) -> Any:
    """What four requests get that are under way when the process is told to stop, which it is once the server answers
    and a photo is being embedded."""
    found: dict[str, Any] = {}

    def answering() -> bool:
        host, _, port = url.removeprefix("http://").rstrip("/").partition(":")
        with suppress(OSError), socket.create_connection((host, int(port)), timeout=300):
            return True
        return False

    def stop() -> None:
        begun.wait(300)
        time.sleep(1.0)  # for the others to be received
        os.kill(os.getpid(), signal.SIGINT)

    def work() -> None:
        while not answering():
            time.sleep(0.1)
        threading.Thread(target=stop).start()
        found.update(flooded(url, ask, 4))

    asking = threading.Thread(target=work)
    asking.start()
    cut_off = serve()
    asking.join(300)
    return {**found, "cut_off": cut_off}


def _slow_encoder(begun: threading.Event) -> Any:
    """An encoder that says when it begins, and takes longer than a server waits for it when it stops."""
    from ccr_studio.service import runner
    from tests.data.helpers import PixelEncoder

    class SlowEncoder(PixelEncoder):
        def embed_images(self, images: Any, **options: Any) -> Any:
            begun.set()
            time.sleep(6)
            return super().embed_images(images, **options)

    runner.FAREWELL = 2
    return SlowEncoder()


def service_stopped(folder: Path) -> dict[str, Any]:
    """Four photos under way at a service whose encoder is slow."""
    from ccr_studio.service import runner
    from ccr_studio.service.app import create_app
    from ccr_studio.service.guards import CUT_OFF, access_for
    from ccr_studio.service.limits import RequestLimits
    from ccr_studio.service.service import Served, Service
    from tests.serve.conftest import photo, small_model

    begun = threading.Event()
    service = Service(lambda: served, limits=RequestLimits(batch=1))
    served = Served("colours", small_model(), _slow_encoder(begun))
    listening = runner.listen("127.0.0.1", 0)
    _, content, _ = photo("red")
    form = (
        b'--x\r\nContent-Disposition: form-data; name="photos"; filename="a.png"\r\n\r\n' + content + b"\r\n--x--\r\n"
    )

    def ask(connection: http.client.HTTPConnection, number: int) -> None:
        connection.request("POST", "/v1/predict", form, {"Content-Type": "multipart/form-data; boundary=x"})

    def serve() -> int:
        runner.run(create_app(service, access=access_for("127.0.0.1", None)), listening, limits=service.limits)
        return service.meters.total(CUT_OFF)

    return _stopped(runner.url_of(listening), ask, serve, begun)


def studio_stopped(folder: Path) -> dict[str, Any]:
    """Four uploads under way at a studio whose encoder is slow."""
    from ccr_studio import serving
    from tests.serve.conftest import photo
    from tests.studio.helpers import fit_model, make_bench, make_store

    begun = threading.Event()
    store = make_store(folder)
    bench = make_bench(store, fit_model(store), folder)
    bench.words._encoder = _slow_encoder(begun)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    _, content, _ = photo("red")

    def ask(connection: http.client.HTTPConnection, number: int) -> None:
        connection.request("POST", "/api/uploads", content + bytes([number]))

    return _stopped(f"http://127.0.0.1:{port}", ask, lambda: serving.serve(bench, port=port), begun)


PROGRAMS = {
    "studio uploads": studio_uploads,
    "whole photos": whole_photos,
    "service stopped": service_stopped,
    "studio stopped": studio_stopped,
}

if __name__ == "__main__":
    program = PROGRAMS[sys.argv[1]]
    sys.stdout.write(json.dumps(program(Path(sys.argv[2]))) + "\n")
