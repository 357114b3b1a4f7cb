"""`python -m tools.review_walk STORE MODEL KNOWLEDGE.csv`: a review in the studio from the first answer to the
signature, by its API: the table answers what the page would ask, as a person who knows the classes would."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from ccr.data.store import EmbeddingStore
from ccr.knowledge import Knowledge
from ccr.model import ConceptModel
from ccr.utils.texts import counted

BY, ROUNDS, AHEAD = "you", 15, 1


def main(store: str, model: str, table: str) -> None:
    known, started, answers = Knowledge.read(table), time.perf_counter(), 0
    test = EmbeddingStore.open(store).select("test")
    print(f"before: {ConceptModel.load(model).score(test, test.y):.1%} of {len(test)} test photos")
    with tempfile.TemporaryDirectory() as folder:
        program = [sys.executable, "-c", "from ccr.start import main; main()", "studio", store, model]
        program += ["--session", folder, "--port", "0", "--no-browser", "--json"]
        studio = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
        assert studio.stdout is not None
        url = json.loads(studio.stdout.readline())["url"]
        try:
            for number in range(1, ROUNDS + 1):
                given = answer_open(url, known)
                answers += given
                claims = ask(url, f"api/claims?by={BY}")
                print(
                    f"round {number}: {given} answers, {counted(claims['blocking'], 'claim')} not confirmed", flush=True
                )
                if not claims["blocking"]:
                    break
                refit(url)
            state = ask(url, "api/sign", {"by": BY})
            path = Path(ask(url, "api/save", {"name": f"reviewed-{int(time.time())}"})["path"])
        finally:
            studio.terminate()
            studio.wait()
    signed = ConceptModel.load(path)
    minutes = (time.perf_counter() - started) / 60
    print(
        f"signed: {state['signed']}, {len(signed.claims())} claims; {answers} answers in {minutes:.1f} minutes; {path}"
    )
    print(f"after: {signed.score(test, test.y):.1%} of {len(test)} test photos")


def answer_open(url: str, known: Knowledge) -> int:
    """Answer every open claim, and the concept next in line of classes with fewer than five confirmed ones."""
    count = 0
    for group in ask(url, f"api/claims?by={BY}")["classes"]:
        asked = [one["concept"] for one in group["claims"] if one["state"] == "open"]
        count += sum(decide(url, known, group["name"], concept) for concept in asked)
        sound = [
            one
            for one in group["claims"]
            if (found := known.find(group["name"], one["concept"])) and found.answer == "yes"
        ]
        if len(sound) < 5:
            query = urllib.parse.urlencode({"class": group["name"]})
            ahead = ask(url, f"api/claims/next?{query}")["concepts"][:AHEAD]
            count += sum(decide(url, known, group["name"], concept) for concept in ahead)
    return count


def decide(url: str, known: Knowledge, label: str, concept: str) -> bool:
    found = known.find(label, concept)
    if found is None or found.answer == "unknown":
        return False
    ask(url, "api/decisions", {"by": BY, "class": label, "concept": concept, "answer": found.answer})
    return True


def refit(url: str) -> None:
    ask(url, "api/review/refit", {})
    while (job := ask(url, "api/refit"))["state"] == "running":
        time.sleep(0.2)
    assert job["state"] == "done", job["message"]


def ask(url: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=180) as answer:
        return json.loads(answer.read())


if __name__ == "__main__":
    main(*sys.argv[1:])
