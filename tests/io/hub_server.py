"""A small server that answers as a model hub does: repositories are made, committed to, and read file by file."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "c" * 40


class Hub(ThreadingHTTPServer):
    """What is in it: files by repository, large ones by their sha256; and what was asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.large: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.token: str | None = None
        self.spoil: Callable[..., tuple[int, bytes, dict[str, str]]] | None = None  # what it answers instead

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def fetched(self) -> set[str]:
        """The names of the files that were read."""
        return {line.rpartition("/")[2] for line in self.asked if "/resolve/" in line}


@contextmanager
def running_hub() -> Iterator[Hub]:
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Tests are quiet."""

    def do_GET(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        path = self.path.partition("?")[0]
        found = re.fullmatch(r"/(?:api/models/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if path == "/api/whoami-v2":
            self._say({"name": "me", "type": "user", "orgs": []})
        elif found:
            self._file(found[1], found[3])
        elif (info := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/revision/.+)?", path)) and self._has(info[1]):
            files = [{"rfilename": name} for name in self.server.repositories[info[1]]]
            self._say({"id": info[1], "sha": COMMIT, "siblings": files, "tags": [], "private": False})
        else:
            self._missing("RepoNotFound")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self.server.asked.append(f"POST {self.path}")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.server.token is not None and self.headers.get("Authorization") != f"Bearer {self.server.token}":
            self._say({"error": "Invalid credentials"}, 401)
        elif self.path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('organization') or 'me'}/{asked['name']}"
            self.server.repositories.setdefault(name, {})
            self._say({"url": f"{self.server.url}/{name}", "name": name, "id": name})
        elif self.path == "/api/validate-yaml":
            self._say({"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                for file in json.loads(body)["files"]
            ]
            self._say({"files": files})
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/.+", self.path.partition("?")[0]):
            self._commit(found[1], body)
        else:
            self._say({"error": f"nothing at {self.path}"}, 404)

    def _commit(self, name: str, body: bytes) -> None:
        for line in body.splitlines():
            item = json.loads(line)
            if item["key"] == "file":
                content = base64.b64decode(item["value"]["content"])
                self.server.repositories[name][item["value"]["path"]] = content
        self._say({"commitUrl": f"{self.server.url}/{name}/commit/{COMMIT}", "commitOid": COMMIT, "success": True})

    def _has(self, name: str) -> bool:
        return name in self.server.repositories

    def _file(self, name: str, path: str) -> None:
        if not self._has(name):
            self._missing("RepoNotFound")
        elif path not in self.server.repositories[name]:
            self._missing("EntryNotFound")
        else:
            content = self.server.repositories[name][path]
            etag = hashlib.sha256(content).hexdigest()
            self._send(200, content, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"})

    def _missing(self, code: str) -> None:
        self._send(404, b"{}", {"X-Error-Code": code, "X-Error-Message": code})

    def _say(self, value: Any, status: int = 200) -> None:
        self._send(status, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        headers = {"Content-Length": str(len(content)), **headers}
        if self.server.spoil is not None:
            status, content, headers = self.server.spoil(self.command, self.path, status, content, headers)
            self.close_connection = True
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
