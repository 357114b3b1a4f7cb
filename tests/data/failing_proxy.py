"""A proxy before an object store, which fails as networks do."""

import http.client
import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler

from tests.data.helpers import folder_files

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "x",
    "AWS_SECRET_ACCESS_KEY": "y",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
HOP = ("transfer-encoding", "connection", "expect", "content-length")


class Proxy(socketserver.ThreadingTCPServer):
    """Passes requests on to a server; `plan(method, path)` may answer 503, 403, slow or cut instead, or be
    what changes the body."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, target):
        self.target, self.plan, self.seen = target, lambda method, path: None, []
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # the body goes after the head at once, and not 40 ms later

    def log_message(self, *_):
        pass

    def _body(self):
        if "chunked" not in (self.headers.get("Transfer-Encoding") or ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return body

    def _pass_on(self):
        body = self._body()
        fault = self.server.plan(self.command, self.path)
        self.server.seen.append((self.command, self.path, self.headers.get("Range")))
        if fault in ("503", "403"):
            code = (
                b"<Error><Code>AccessDenied</Code></Error>"
                if fault == "403"
                else b"<Error><Code>SlowDown</Code></Error>"
            )
            self.send_response(int(fault))
            self.send_header("Content-Length", str(len(code) if self.command != "HEAD" else 0))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(code)
            return
        if fault == "slow":
            time.sleep(0.5)
        link = http.client.HTTPConnection(*self.server.target)
        passed = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
        link.request(self.command, self.path, body, {**passed, "Content-Length": str(len(body))})
        answer = link.getresponse()
        data = answer.read()
        if callable(fault):
            data = fault(data)[: len(data)].ljust(len(data), b"\0")
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "date", "server"):
                self.send_header(name, value)
        if self.command != "HEAD" and answer.getheader("Content-Length") is None:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[: len(data) // 2] if fault == "cut" else data)
        if fault == "cut":
            self.close_connection = True

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on


def sometimes(fault, every=3, methods=("GET",)):
    count = {"all": 0}

    def plan(method, path):
        if method not in methods:
            return None
        count["all"] += 1
        return fault if count["all"] % every == 1 else None

    return plan


def upload(folder, place):
    for name, content in folder_files(folder).items():
        (place / name).write_bytes(content)
