"""`ccr studio` from the command line, and in a notebook: it starts, answers, goes on where it was, and ends."""

from __future__ import annotations

import json
import signal
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ccr_studio as studio
from ccr.cli import app
from ccr.data.store import EmbeddingStore
from ccr.errors import CCRError
from ccr.model import ConceptModel
from ccr.review import Decisions, Review
from ccr_studio.serving import own_session, sessions_of
from tests.studio.helpers import CONCEPTS, ask, children_end, children_of, start, tell


def test_the_command_serves_and_ctrl_c_ends_all_that_it_started(
    store: EmbeddingStore, model: ConceptModel, tmp_path: Path
) -> None:
    model.save(tmp_path / "model")
    process, said = start(str(store.path), str(tmp_path / "model"), "--session", str(tmp_path / "sessions"))
    assert b"ccr studio" in ask(said["url"])
    state = json.loads(ask(said["url"], "api/state"))
    assert state["photos"] == len(store)
    assert "test:pixels" in state["encoder"] or state["encoder"] == "loading"  # no such encoder: the rest works
    children = children_of(process)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    children_end(children)
    assert (Path(said["session"]) / "session.json").is_file()


def test_beyond_this_machine_a_token_is_demanded(store: EmbeddingStore, model: ConceptModel, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    arguments = [str(store.path), str(tmp_path / "model"), "--session", str(tmp_path / "s"), "--host", "0.0.0.0"]
    refused = CliRunner().invoke(app, ["studio", *arguments, "--no-browser"])
    assert isinstance(refused.exception, CCRError)
    assert "token" in str(refused.exception)
    process, said = start(*arguments, "--read-only", CCR_TOKEN="a-long+enough/token=&more")
    base = said["url"]
    assert "token" not in base  # no secret in an address
    try:
        with pytest.raises(urllib.error.HTTPError, match="401"):
            ask(base, "api/state")
        assert json.loads(ask(base, "api/state", Authorization="Bearer a-long+enough/token=&more"))["read_only"]
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        form = urllib.parse.urlencode({"token": "a-long+enough/token=&more"}).encode()
        with browser.open(base + "sign-in", form, timeout=60) as page:
            assert b"ccr studio" in page.read()
    finally:
        process.terminate()
        assert process.wait(60) == 0


def test_the_studio_and_the_terminal_share_a_log(store: EmbeddingStore, model: ConceptModel, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    claims, log = model.claims(), str(tmp_path / "model-decisions.jsonl")  # where `ccr review` keeps its own
    Review(model, Decisions(log)).decide(claims[0].label, claims[0].concept, "yes", by="ann")
    command = (str(store.path), str(tmp_path / "model"), "--session", str(tmp_path / "sessions"), "--log", log)
    process, said = start(*command)
    try:
        classes = json.loads(ask(said["url"], "api/claims?by=ann"))["classes"]
        assert [claim["state"] for one in classes for claim in one["claims"]].count("confirmed") == 1
        about = {"class": str(claims[1].label), "concept": claims[1].concept}
        tell(said["url"], "api/decisions", {"by": "ann", "answer": "no", "reason": "background", **about})
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    checked = CliRunner().invoke(app, ["review", str(tmp_path / "model"), "--check", "--json"])
    counts = json.loads(checked.stdout)["counts"]
    assert (counts["confirmed"], counts["rejected"], counts["open"]) == (1, 1, len(claims) - 2)


def test_model_and_concepts_are_not_given_both(store: EmbeddingStore, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["studio", str(store.path), "model", "--concepts", "list.txt"])
    assert done.exit_code == 2
    assert "not both" in done.output


def test_a_notebook_shows_a_frame_and_keeps_the_model(
    store: EmbeddingStore, model: ConceptModel, tmp_path: Path
) -> None:
    running = studio.show(model, store, session=tmp_path / "sessions")
    for _ in range(100):
        try:
            page = ask(running.url)
            break
        except OSError:
            time.sleep(0.05)
    assert b"ccr studio" in page
    assert f'<iframe src="{running.url}"' in running._repr_html_()
    request = urllib.request.Request(
        running.url + "api/edits",
        data=json.dumps({"action": "suppress", "concept": model.names[0]}).encode(),
        headers={"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request, timeout=60).read()
    assert model.names[0] not in running.model().names
    running.close()
    with pytest.raises(CCRError, match="whole store"):
        studio.show(model, store.select("val"))
    again = studio.show(model, store, session=tmp_path / "sessions")
    assert model.names[0] not in again.model().names  # where it was left
    again.close()


def test_sessions_lie_beside_the_store_and_lists_have_their_own(store: EmbeddingStore) -> None:
    beside = sessions_of(store)
    assert beside == store.path.resolve().with_name("store-studio")
    assert own_session(store, "a") != own_session(store, "\n".join(CONCEPTS))
