"""The studio's process killed at any moment: what it answered is on disk, and nothing that it started stays behind."""

from __future__ import annotations

import json
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ccr.data.store import EmbeddingStore
from ccr.model import ConceptModel
from tests.studio.helpers import ask, children_end, children_of, start, tell


@pytest.fixture
def command(store: EmbeddingStore, model: ConceptModel, tmp_path: Path) -> tuple[str, ...]:
    model.save(tmp_path / "model")
    return str(store.path), str(tmp_path / "model"), "--session", str(tmp_path / "sessions")


def state_of(said: dict[str, Any]) -> dict[str, Any]:
    return json.loads(ask(said["url"], "api/state"))


def test_a_crash_loses_no_edit_that_was_answered(command: tuple[str, ...], model: ConceptModel) -> None:
    process, said = start(*command)
    children = children_of(process)
    answered: list[dict[str, Any]] = []
    begun = threading.Event()

    def work() -> None:
        for number in range(1000):
            edit = {"action": "scale", "concept": model.names[number % len(model.names)], "factor": 0.9}
            try:
                answered.append(tell(said["url"], "api/edits", edit))
            except OSError:
                return  # the studio is gone
            begun.set()

    editing = threading.Thread(target=work)
    editing.start()
    assert begun.wait(60)
    time.sleep(0.25)  # in the middle of whatever it does
    process.kill()
    process.wait(60)
    editing.join(60)
    children_end(children)
    again, said = start(*command)
    try:
        found = state_of(said)
        taken = [step["edit"] for step in found["steps"]]
        assert taken[: len(answered) + 1] == [step["edit"] for step in answered[-1]["steps"]]
        assert len(taken) <= len(answered) + 2  # the one that was under way may be there, whole
        assert found["position"] == len(taken) - 1
        undone = tell(said["url"], "api/undo", {})
        assert undone["position"] == found["position"] - 1
    finally:
        again.send_signal(signal.SIGINT)
        assert again.wait(60) == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_end_of_the_studio_ends_a_refit_and_keeps_the_steps(
    command: tuple[str, ...], model: ConceptModel, number: signal.Signals
) -> None:
    process, said = start(*command)
    tell(said["url"], "api/edits", {"action": "suppress", "concept": model.names[0]})
    assert tell(said["url"], "api/refit", {"kind": "full"})["state"] == "running"
    children = children_of(process)
    process.send_signal(number)
    assert process.wait(60) == (-signal.SIGKILL if number == signal.SIGKILL else 0)
    children_end(children)
    again, said = start(*command)
    try:
        found = state_of(said)
        assert [step["edit"]["action"] for step in found["steps"]][:2] == ["open", "suppress"]
        assert found["job"] is None
        assert tell(said["url"], "api/edits", {"action": "pin", "concept": model.names[1]})["can_undo"]
    finally:
        again.send_signal(signal.SIGINT)
        assert again.wait(60) == 0


def test_two_reviewers_at_once_lose_no_answer_when_the_studio_is_killed(command: tuple[str, ...]) -> None:
    process, said = start(*command)
    claims = [one for group in json.loads(ask(said["url"], "api/claims"))["classes"] for one in group["claims"]]
    answered: dict[str, list[str]] = {"ann": [], "ben": []}
    begun = {by: threading.Event() for by in answered}

    def review(by: str) -> None:
        for number in range(2000):
            one = claims[number % len(claims)]
            body = {"by": by, "class": one["class"], "concept": one["concept"], "answer": "yes" if number % 3 else "no"}
            try:
                answered[by].append(tell(said["url"], "api/decisions", body)["decision"]["id"])
            except OSError:
                return  # the studio is gone
            if number == 2:
                begun[by].set()

    threads = [threading.Thread(target=review, args=(by,)) for by in answered]
    for thread in threads:
        thread.start()
    assert all(event.wait(60) for event in begun.values())
    time.sleep(0.2)  # in the middle of whatever it does
    process.kill()
    process.wait(60)
    for thread in threads:
        thread.join(60)
    again, said = start(*command)
    try:
        kept = json.loads(ask(said["url"], "api/exports/claims.json"))["decisions"]
        for by, ids in answered.items():
            found = [one["id"] for one in kept if one["by"] == by]
            assert len(ids) >= 3
            assert found[: len(ids)] == ids  # in the order in which they were answered
            assert len(found) <= len(ids) + 1  # the one that was under way may be there, whole
        agreement = json.loads(ask(said["url"], "api/claims?by=ann"))["agreements"][0]
        assert agreement["questions"] >= 3
        about = {name: claims[0][name] for name in ("class", "concept")}
        tell(said["url"], "api/decisions", {"by": "ann", "answer": "yes", **about})
    finally:
        again.send_signal(signal.SIGINT)
        assert again.wait(60) == 0
