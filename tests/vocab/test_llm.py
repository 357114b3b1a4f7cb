"""Asking a language model: against a real local server that answers well, badly, slowly, partly or with malice."""

import json
import socket
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from ccr.errors import CCRError
from ccr.vocab.llm import LONGEST_ANSWER, MOST_PER_KIND, Endpoint, ask, estimate, parse_answer

GOOD = {
    "parts": ["long tail", "whiskers"],
    "colours": ["grey"],
    "shapes": [],
    "textures": ["soft fur"],
    "surroundings": [],
}


def completion(content):
    return 200, {}, json.dumps({"choices": [{"message": {"content": content}}]}).encode()


class Server:
    """Answers requests one after the other from `answers`, then with the last of them for ever."""

    def __init__(self):
        self.answers, self.requests, self.keys, self.times = [], [], [], []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                outer.times.append(time.monotonic())
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append(body)
                outer.keys.append(self.headers.get("Authorization"))
                answer = outer.answers[min(len(outer.requests), len(outer.answers)) - 1]
                status, headers, data = answer(body) if callable(answer) else answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if "Content-Length" not in headers:
                    self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def endpoint(self, **options):
        return Endpoint(self.url, "tiny", **{"pause": 0.01, "timeout": 5.0, **options})

    def stop(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server(monkeypatch):
    for name in ("CCR_LLM_KEY", "OPENAI_API_KEY", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    started = Server()
    yield started
    started.stop()


def test_a_good_answer_becomes_proposals_with_their_origin(server, tmp_path):
    server.answers = [completion(f"```json\n{json.dumps(GOOD)}\n```")]
    found = ask(["cat", "dog"], server.endpoint(), tmp_path)
    assert [item.concept for item in found.proposals[:4]] == ["long tail", "whiskers", "grey", "soft fur"]
    origin = found.proposals[0].origins[0]
    assert (origin.class_name, origin.source, origin.kind) == ("cat", "llm", "parts")
    assert not found.failed
    assert server.requests[0]["model"] == "tiny"
    assert '"cat"' in server.requests[0]["messages"][0]["content"]
    assert server.keys == [None, None]


def test_nothing_is_asked_twice_and_a_broken_run_goes_on(server, tmp_path):
    server.answers = [completion(json.dumps(GOOD)), (500, {}, b"")]
    first = ask(["cat", "dog"], server.endpoint(attempts=2), tmp_path)
    assert set(first.failed) == {"dog"}
    assert "status 500" in first.failed["dog"]
    assert estimate(["cat", "dog"], server.endpoint(), tmp_path)[:2] == (1, 1)
    server.answers = [completion(json.dumps(GOOD))]
    before = len(server.requests)
    second = ask(["cat", "dog"], server.endpoint(), tmp_path)
    assert not second.failed
    assert len(server.requests) == before + 1
    assert estimate(["cat", "dog"], server.endpoint(), tmp_path) == (0, 2, 0, 0)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (completion("I cannot help with that."), "no JSON object"),
        (completion(json.dumps(GOOD)[:-20]), "no JSON object"),
        (completion('["a", "b"]'), "without any of"),
        (completion('{"parts": "long tail"}'), "no list of texts"),
        (completion('{"parts": [["nested"]]}'), "no list of texts"),
        (completion('{"parts": []}'), "empty lists"),
        (completion("[" * 100_000), "no JSON object"),
        (completion(None), "empty message"),
        ((200, {}, b"<html>"), "no chat completion"),
        ((200, {}, b""), "no chat completion"),
        ((200, {}, b'{"choices": []}'), "no chat completion"),
        ((200, {}, b" " * (LONGEST_ANSWER + 2)), "more than"),
        ((200, {"Content-Length": "999"}, b'{"choices"'), ""),
        ((302, {"Location": "http://127.0.0.1:9/steal"}, b""), "status 302"),
        ((503, {"Retry-After": "soon"}, b""), "status 503"),
    ],
)
def test_bad_answers_are_tried_again_then_named_and_the_rest_goes_on(server, tmp_path, answer, reason):
    server.answers = [answer, answer, completion(json.dumps(GOOD))]
    found = ask(["cat", "dog"], server.endpoint(attempts=2, timeout=0.5), tmp_path)
    assert set(found.failed) == {"cat"}
    assert reason in found.failed["cat"]
    assert {item.origins[0].class_name for item in found.proposals} == {"dog"}
    assert len(list(tmp_path.glob("*.json"))) == 1


def test_one_bad_answer_costs_one_attempt_only(server, tmp_path):
    server.answers = [completion("sorry"), completion(json.dumps(GOOD))]
    assert not ask(["cat"], server.endpoint(), tmp_path).failed


def test_a_slow_server_is_given_up(server, tmp_path):
    def slow(_):
        time.sleep(0.5)
        return completion(json.dumps(GOOD))

    server.answers = [slow]
    found = ask(["cat"], server.endpoint(attempts=1, timeout=0.1), tmp_path)
    assert "could not be reached" in found.failed["cat"]


def test_a_server_whose_answer_has_no_end_is_given_up(tmp_path, monkeypatch):
    """A byte now and then kept a command waiting for ever: each came within the time for one."""
    monkeypatch.setattr("ccr.vocab.llm.LONGEST_WAIT", 0.6)
    monkeypatch.delenv("CCR_LLM_KEY", raising=False)
    sent = {"head": b"HTTP/1.1 200 OK\r\nX: ", "body": b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n"}
    for start in sent.values():
        with socket.create_server(("127.0.0.1", 0)) as listening:

            def drip(listening=listening, start=start):
                connection, _ = listening.accept()
                with connection, suppress(OSError):
                    connection.recv(65_536)
                    connection.sendall(start)
                    for _ in range(100):
                        connection.sendall(b" ")
                        time.sleep(0.1)

            threading.Thread(target=drip, daemon=True).start()
            url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
            found = ask(["cat"], Endpoint(url, "tiny", attempts=1, timeout=5.0), tmp_path)
            assert "no end after 0.6 seconds" in found.failed["cat"]


def test_a_server_says_how_long_to_wait(server, tmp_path, monkeypatch):
    """By a clock that only sleep moves."""
    slept: list[float] = []
    clock = SimpleNamespace(sleep=slept.append, monotonic=lambda: 100.0 + sum(slept))
    monkeypatch.setattr("ccr.vocab.llm.time", clock)
    server.answers = [(429, {"Retry-After": "7"}, b""), completion(json.dumps(GOOD))]
    ask(["cat"], server.endpoint(), tmp_path)
    assert 7 in slept


def test_hostile_texts_do_not_get_through(server, tmp_path):
    hostile = [
        "<script>alert(1)</script>",
        "\x1b[31mred",
        "\u202egnol",
        "a very long sentence that goes on and on",
        "x" * 100,
        "../../etc/passwd",
        "  - fine  tail. ",
        "fine tail",
        "",
    ]
    many = {"parts": hostile, "colours": [f"colour {number}" for number in range(1000)]}
    server.answers = [completion(json.dumps(many))]
    names = [item.concept for item in ask(["cat"], server.endpoint(), tmp_path).proposals]
    assert names == ["fine tail", *(f"colour {number}" for number in range(MOST_PER_KIND))]


def test_the_key_comes_from_the_environment_and_a_refusal_stops_at_once(server, tmp_path, monkeypatch):
    monkeypatch.setenv("CCR_LLM_KEY", "secret")
    server.answers = [(401, {}, b"")]
    with pytest.raises(CCRError, match="CCR_LLM_KEY") as caught:
        ask(["cat", "dog"], server.endpoint(), tmp_path)
    assert "secret" not in str(caught.value)
    assert server.keys == ["Bearer secret"]
    assert not any(b"secret" in file.read_bytes() for file in tmp_path.iterdir())


@pytest.mark.parametrize("key", ["sk-secret\n", " sk-secret\r\n"])
def test_the_line_end_of_a_key_is_no_part_of_it(server, tmp_path, monkeypatch, key):
    monkeypatch.setenv("CCR_LLM_KEY", key)
    server.answers = [completion(json.dumps(GOOD))]
    assert not ask(["cat"], server.endpoint(), tmp_path).failed
    assert server.keys == ["Bearer sk-secret"]


@pytest.mark.parametrize("key", ["sk-secret\nX: y", "sk-sécret", "sk-\x1bsecret"])
def test_a_key_that_cannot_be_sent_is_never_repeated(server, tmp_path, monkeypatch, key):
    """The library of the standard repeats such a header in its error, which named the key."""
    monkeypatch.setenv("CCR_LLM_KEY", key)
    with pytest.raises(CCRError, match="CCR_LLM_KEY must be a key of printable ASCII") as caught:
        ask(["cat"], server.endpoint(), tmp_path)
    assert "cret" not in str(caught.value)
    assert not server.requests


@pytest.mark.parametrize("url", ["http://[::1", "file:///etc/passwd", "localhost:11434", "", "http://", "ftp://x/v1"])
def test_only_web_addresses_are_asked(url):
    with pytest.raises(CCRError, match="--llm-url is an address"):
        Endpoint(url, "tiny")


@pytest.mark.parametrize(
    "url", ["http://me:secret@localhost/v1", "ftp://me:secret@localhost", "http://x/v1?key=secret", "http://x/#secret"]
)
def test_keys_in_addresses_are_refused(url):
    with pytest.raises(CCRError, match="never from the address") as caught:
        Endpoint(url, "tiny")
    assert "secret" not in str(caught.value)


def test_nobody_there(tmp_path):
    found = ask(["cat"], Endpoint("http://127.0.0.1:9/v1", "tiny", attempts=1), tmp_path)
    assert "could not be reached" in found.failed["cat"]


def test_a_damaged_cache_is_asked_again(server, tmp_path):
    server.answers = [completion(json.dumps(GOOD))]
    ask(["cat"], server.endpoint(), tmp_path)
    for file in tmp_path.iterdir():
        file.write_text("{")
    assert not ask(["cat"], server.endpoint(), tmp_path).failed
    assert len(server.requests) == 2
    assert parse_answer(next(tmp_path.iterdir()).read_text())["parts"] == GOOD["parts"]
