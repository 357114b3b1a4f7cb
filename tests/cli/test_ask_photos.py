"""`ccr knowledge ask-photos`, as a user types it: by lines, by keys of a terminal, on a page, by a model that sees."""

from __future__ import annotations

import base64
import io
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ccr import ConceptModel, EmbeddingStore, Knowledge
from ccr.cli.common_photo import MOST_LINES, draw_photo
from ccr.errors import CCRError
from ccr.knowledge import Answer
from ccr.review.asking import MOST_FAILURES, PhotoSession, ask_seeing_model
from ccr.review.decisions import Decisions
from ccr.review.questions import EACH, FIRST, Review
from ccr.utils.processes import no_progress
from ccr.vocab import llm
from tests.cli.conftest import Terminal, run
from tests.vocab.test_llm import Server, completion


@pytest.fixture
def given(model: Path, workspace: Path, tmp_path: Path) -> list[object]:
    """The command with its arguments, its table not written yet."""
    return ["knowledge", "ask-photos", model, workspace / "store", "--knowledge", tmp_path / "known.csv"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of answers of the test's own."""
    monkeypatch.setenv("CCR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def said(given: list[object], lines: str, *options: object) -> Any:
    """What the command does with these lines as its input."""
    return run(*given, *options, lines=lines)


def table(given: list[object]) -> Knowledge:
    return Knowledge.read(Path(str(given[-1])))


def session_of(given: list[object], answers: int = 7) -> PhotoSession:
    file = Path(str(given[-1]))
    known = Knowledge.read(file) if file.exists() else Knowledge.of([])
    opened = EmbeddingStore.open(str(given[3]))
    return PhotoSession.begin(ConceptModel.load(str(given[2])), opened, known, file, answers)


def test_answers_are_about_photos_of_the_store_and_never_of_the_test_split(given: list[object]) -> None:
    store = EmbeddingStore.open(str(given[3]))
    done = said(given, "y\nn\nu\ny\n", "--by", "Ada")
    assert done.exit_code == 0, done.output
    known = table(given)
    splits, labels = (dict(zip(store.paths, column, strict=True)) for column in (store.splits, store.labels))
    assert [one.answer for one in known].count("yes") == 2
    assert len(known) == 4
    for one in known:
        assert splits[one.photo] != "test"
        assert (one.label, one.source, one.by) == (labels[one.photo], "person", "Ada")
        assert one.at.endswith("+00:00")
    assert "Does this photo show" in done.stdout
    assert "4 answers about photos" in done.stdout


def test_the_questions_follow_the_score_of_claims(given: list[object]) -> None:
    session = session_of(given)
    ladder = session.ladders[0]
    assert ladder.claimed.sum() == max(one.claimed.sum() for one in session.ladders)
    labels = np.unique(ladder.classes[ladder.claimed])
    said(given, "y\n" * (EACH * len(labels) + FIRST - 1))
    asked = [session.rows[one.photo] for one in table(given) if one.concept == ladder.concept]
    claims = np.flatnonzero(ladder.claimed)
    assert {ladder.scores[claims].max(), ladder.scores[claims].min()} <= set(ladder.scores[asked])
    assert {int(ladder.classes[row]) for row in asked} >= set(labels.tolist())


def test_scores_and_claims_are_those_of_the_model(given: list[object]) -> None:
    session, loaded = session_of(given), ConceptModel.load(str(given[2]))
    predicted, codes = loaded.predict(session.photos), loaded.encode(session.photos).toarray()
    for ladder in session.ladders:
        column = loaded.row(ladder.concept)
        active = codes[:, column] > 0
        np.testing.assert_allclose(ladder.scores[active], codes[active, column], rtol=1e-4, atol=1e-5)
        weight = loaded.head.coef[np.searchsorted(loaded.classes, predicted), column]
        assert np.array_equal(ladder.claimed, active & (weight > 0))
        assert (loaded.head.coef[:, column] > 0).any()


def test_a_session_goes_on_where_it_stopped_and_ends(given: list[object]) -> None:
    total = 0
    for _ in range(60):
        found = json.loads(said(given, "y\nn\nn\ny\nu\n" * 6, "--json").stdout)
        total += found["new"]
        if not found["left"]:
            break
    known = table(given)
    assert found["left"] == 0
    assert total == len(known) == found["answers"]
    assert max(sum(one.concept == name for one in known) for name in known.concepts) == 7
    assert json.loads(said(given, "y\n", "--json").stdout)["new"] == 0


def test_answers_in_the_table_count(given: list[object]) -> None:
    session = session_of(given)
    ladder = session.ladders[0]
    told = [Answer("", ladder.concept, "yes", "person", photo=session.paths[row]) for row in (0, 1)]
    Knowledge.of(told).write(session.file)
    done = said(given, "q\n", "--answers", 2)
    assert f"show {ladder.concept}?" not in " ".join(done.stdout.split())
    assert session_of(given, 2).next(session_of(given, 2).ladders[0]) == []


def test_back_asks_again_skip_goes_on_and_an_end_stops(given: list[object]) -> None:
    said(given, "y\nb\nn\n")
    assert [one.answer for one in table(given)] == ["no"]
    done = said(given, "b\n\ns\nyes\n")  # nothing is before the first; an empty line means nothing
    assert done.exit_code == 0
    known = table(given)
    assert len({one.concept for one in known}) == 2
    assert [one.answer for one in known].count("yes") == 1
    with pytest.raises(CCRError, match=r"an answer is one of y \(yes\), .* got 'hello'"):
        said(given, "hello\nyes\n")
    assert len(table(given)) == len(known)


def test_json_is_alone_on_stdout(given: list[object]) -> None:
    done = said(given, "y\nq\n", "--json")
    found = json.loads(done.stdout)
    assert (found["new"], found["yes"], found["no"], found["contradicted"]) == (1, 1, 0, [])
    assert "Does this photo show" in done.stderr


def test_answers_against_the_order_name_the_concept(given: list[object]) -> None:
    session = session_of(given)
    ladder = session.ladders[1]
    order = np.argsort(-ladder.scores)
    rows = {int(order[0]): "no", int(order[1]): "no", int(order[-1]): "yes", int(order[-2]): "yes"}
    Knowledge.of(
        Answer("", ladder.concept, word, "person", photo=session.paths[row]) for row, word in rows.items()
    ).write(session.file)
    assert json.loads(said(given, "q\n", "--json").stdout)["contradicted"] == [ladder.concept]
    words = " ".join(said(given, "q\n").stdout.split())
    assert f"The encoder does not see {ladder.concept}" in words


def test_a_concept_that_the_encoder_does_not_see_leaves_with_that_reason(
    given: list[object], workspace: Path, tmp_path: Path
) -> None:
    """Struck for every class, over a person's yes; the next fit leaves it out, and every command says why."""
    session, file = session_of(given), Path(str(given[-1]))
    ladder = next(one for one in session.ladders if one.concept.isalpha())
    order, name = np.argsort(-ladder.scores), ladder.concept
    rows = {int(order[0]): "no", int(order[1]): "no", int(order[-1]): "yes", int(order[-2]): "yes"}
    told = [Answer("", name, word, "person", photo=session.paths[row]) for row, word in rows.items()]
    Knowledge.of([*told, Answer(session.classes[0], name, "yes", "person", "Ben")]).write(file)
    assert not json.loads(said(given, "q\n", "--json").stdout)["struck"]
    found = json.loads(said(given, "q\n", "--strike", "--by", "Ada", "--json").stdout)
    assert found["contradicted"] == found["struck"] == [name]
    known = table(given)
    for label in session.classes:
        answer = known.find(label, name)
        assert (answer.answer, answer.source, answer.by) == ("no", "unseen", "Ada")
    # Nothing is asked about it again, and nothing is struck twice.
    assert name not in [one.concept for one in session_of(given).ladders]
    assert json.loads(said(given, "q\n", "--strike", "--json").stdout)["struck"] == []
    for shown in (
        run("knowledge", "show", file),
        run("knowledge", "check", file, "--store", workspace / "store", "--concepts", workspace / "concepts.txt"),
    ):
        words = " ".join(shown.stdout.split())
        assert "the encoder does not see" in words
        assert f"{name} (Ada, " in words
    fitted = ["--concepts", workspace / "concepts.txt", "--length", 4, "--knowledge", file, "--epochs", 2]
    done = run("fit", workspace / "store", *fitted, "--out", tmp_path / "again")
    assert f"left out, because the encoder does not see them: {name}" in " ".join(done.stderr.split())
    again = ConceptModel.load(tmp_path / "again")
    assert name not in again.names
    with pytest.raises(CCRError, match="the encoder does not see it"):
        again.row(name)
    assert Review(again, Decisions()).question(session.classes[0], name).state == "rejected"


def test_keys_of_a_terminal_need_no_enter_and_the_photo_is_drawn(given: list[object]) -> None:
    # An arrow means nothing, although its last letter would; keys may be typed ahead.
    seen = typed([*given, "--by", "Ada"], ["y", "\x1b[Bnu", "q"])
    assert "38;2;" in seen  # 24-bit colour
    assert "▀" in seen
    assert sorted(one.answer for one in table(given)) == ["no", "unknown", "yes"]


def test_control_c_leaves_the_answers_and_says_so(given: list[object]) -> None:
    seen = typed(given, ["y", "\x03"])
    assert "answers so far are in" in " ".join(seen.split())
    assert len(table(given)) == 1


def typed(given: list[object], keys: list[str]) -> str:
    """What a terminal shows of the command; keys are typed when it asks."""
    with Terminal(*given) as screen:
        seen = ""
        for some in keys:
            seen += screen.until("s skip this concept")
            screen.type(some)
        return seen + screen.until()


@pytest.mark.parametrize("size", [(40, 40), (300, 20), (1, 500), (1, 1)])
def test_a_drawn_photo_keeps_its_colours_and_is_never_endless(size: tuple[int, int]) -> None:
    lines = draw_photo(Image.new("RGB", size, (200, 30, 10)), 30).splitlines()
    assert 1 <= len(lines) <= MOST_LINES
    assert set(lines) == {"\x1b[38;2;200;30;10m\x1b[48;2;200;30;10m▀" * 30 + "\x1b[0m"}


def test_the_upper_pixel_is_drawn_before_the_lower() -> None:
    image = Image.new("RGB", (4, 2), (10, 20, 30))
    image.paste((200, 100, 50), (0, 1, 4, 2))
    assert draw_photo(image, 4) == "\x1b[38;2;10;20;30m\x1b[48;2;200;100;50m▀" * 4 + "\x1b[0m"


@pytest.mark.parametrize(
    "options",
    [
        ["--page", "a.html", "--read", "b.csv"],
        ["--page", "a.html", "--vlm-url", "http://127.0.0.1:9/v1"],
        ["--vlm-model", "m"],
        ["--dry-run"],
        ["--strike", "--page", "a.html"],
        ["--vlm-url", "http://127.0.0.1:9/v1"],
        ["--read", "b.csv", "--by", "Ada"],
        ["--answers", "0"],
    ],
)
def test_options_that_do_not_go_together_are_misuse(given: list[object], options: list[str]) -> None:
    assert said(given, "", *options).exit_code == 2
    assert not Path(str(given[-1])).exists()


def test_files_that_cannot_be_are_refused_before_the_work(given: list[object], tmp_path: Path) -> None:
    for options, words in (
        (["--page", "questions.txt"], "must end in .html"),
        (["--page", tmp_path], "is a folder"),
        (["--read", given[-1]], "another file"),
        (["--vlm-url", "ftp://x", "--vlm-model", "m"], "--vlm-url"),
        (["--by", "a\x1bb"], "--by"),
    ):
        Path(str(given[-1])).write_text("class,concept,answer\n")
        with pytest.raises(CCRError, match=words):
            said(given, "y\n", *options)


# A page


def test_a_page_has_the_questions_and_its_answers_come_back(given: list[object], tmp_path: Path) -> None:
    page, answers = tmp_path / "questions.html", tmp_path / "answers.csv"
    made = json.loads(said(given, "", "--page", page, "--json").stdout)
    assert not Path(str(given[-1])).exists()
    text = page.read_text(encoding="utf-8")
    data = json.loads(text.partition('id="data"')[2].partition(">")[2].partition("</script>")[0])
    assert len(data["questions"]) == made["questions"] > 0
    assert len(data["pictures"]) == made["photos"]
    photos = set(session_of(given).paths)
    assert {photo for _, _, photo, _ in data["questions"]} <= photos
    told = [Answer(label, name, "yes", "person", "Ada", photo=photo) for label, name, photo, _ in data["questions"]]
    Knowledge.of(told[:5]).write(answers)
    found = json.loads(said(given, "", "--read", answers, "--json").stdout)
    assert found["new"] == found["answers"] == 5
    assert table(given) == Knowledge.of(told[:5])
    again = json.loads(said(given, "", "--page", page, "--json").stdout)
    assert again["questions"] == made["questions"] - 5


def test_answers_about_something_else_are_not_read(given: list[object], tmp_path: Path) -> None:
    session, store = session_of(given), EmbeddingStore.open(str(given[3]))
    photo, concept = session.paths[0], session.ladders[0].concept
    tested = str(store.paths[store.splits == "test"][0])
    for answer, words in (
        (Answer("x", concept, "yes"), "name the photo"),
        (Answer("x", concept, "yes", photo=f"{photo}x"), f"did you mean '{photo}'"),
        (Answer("x", concept, "yes", photo=tested), "test split"),
        (Answer("x", "no such concept", "yes", photo=photo), "model's concepts"),
        (Answer("x", concept, "yes", at="9999-12-31", photo=photo), "count over every later answer"),
    ):
        Knowledge.of([answer]).write(tmp_path / "answers.csv")
        with pytest.raises(CCRError, match=words):
            said(given, "", "--read", tmp_path / "answers.csv")
    assert not Path(str(given[-1])).exists()


# Photos that cannot be read


@pytest.fixture
def moved(given: list[object], workspace: Path) -> Iterator[Callable[[int], list[str]]]:
    """Takes away the photos that would be asked about first."""
    gone: list[tuple[Path, Path]] = []

    def take(count: int) -> list[str]:
        session, names = session_of(given), []
        for _ in range(count):
            ladder = next(one for one in session.ladders if session.next(one))
            row = session.next(ladder)[0]
            ladder.asked[row] = None
            names.append(session.paths[row])
            file = workspace / "photos" / names[-1]
            gone.append((file, file.rename(file.with_suffix(".away"))))
        return names

    yield take
    for file, away in gone:
        away.rename(file)


def test_a_photo_that_is_gone_is_passed_over(given: list[object], moved: Any, tmp_path: Path) -> None:
    names = moved(2)
    done = said(given, "y\nn\n")
    assert len(table(given)) == 2
    assert not set(names) & set(table(given).photos)
    assert "cannot be read again" in " ".join(done.stderr.split())
    page = tmp_path / "page.html"
    said(given, "", "--page", page)
    assert not any(f'"{name}"' in page.read_text(encoding="utf-8") for name in names)


def test_photos_that_are_all_gone_are_an_error(given: list[object], moved: Any) -> None:
    moved(MOST_FAILURES)
    with pytest.raises(CCRError, match="cannot be read again"):
        said(given, "y\n" * 9)


# A vision-language model


def concepts_of(body: dict[str, Any]) -> list[str]:
    return json.loads(body["messages"][0]["content"][0]["text"].split("\n")[1])


def sees_red(body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
    """A model that looks at the photo: every concept is shown where it is more red than blue."""
    (picture,) = body["messages"][0]["content"][1:]
    content = base64.b64decode(picture["image_url"]["url"].partition(",")[2])
    red, _, blue = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"), float).mean(axis=(0, 1))
    return completion(json.dumps(dict.fromkeys(concepts_of(body), "yes" if red > blue else "no")))


def test_a_model_is_shown_one_photo_and_answers_for_all_its_concepts(
    given: list[object], workspace: Path, server: Server, cache: None
) -> None:
    server.answers = [sees_red]
    vlm = ["--vlm-url", server.url, "--vlm-model", "tiny"]
    cost = json.loads(said(given, "", *vlm, "--dry-run", "--json").stdout)
    assert not server.requests
    found = json.loads(said(given, "", *vlm, "--json").stdout)
    assert found["failed"] == {}
    assert found["left"] == 0
    assert 0 < len(server.requests) <= cost["requests"]
    assert cost["prompt_tokens"] > 0
    known = table(given)
    assert found["new"] == len(known) == sum(len(concepts_of(body)) for body in server.requests)
    for one in known:
        assert (one.source, one.by) == ("llm", "tiny")
        red, _, blue = np.asarray(Image.open(workspace / "photos" / one.photo).convert("RGB"), float).mean(axis=(0, 1))
        assert one.answer == ("yes" if red > blue else "no")
    # The table lost, nothing is paid again: all answers are in the cache.
    before = len(server.requests)
    Path(str(given[-1])).unlink()
    assert json.loads(said(given, "", *vlm, "--json").stdout)["new"] == found["new"]
    assert len(server.requests) == before


def test_a_model_that_misbehaves_is_asked_again_and_never_believed(
    given: list[object], server: Server, tmp_path: Path
) -> None:
    def few(body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        return completion(json.dumps(dict.fromkeys(concepts_of(body)[1:], "yes")))

    def many(body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        return completion(json.dumps(dict.fromkeys([*concepts_of(body), "more"], "yes")))

    def vague(body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        return completion(json.dumps(dict.fromkeys(concepts_of(body), "perhaps")))

    def slow(body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        time.sleep(1.0)
        return sees_red(body)

    wrong = [(500, {}, b""), completion("I see an apple."), few, many, vague, (200, {}, b"<html>"), slow]
    server.answers = [answer for one in wrong for answer in (one, sees_red)] + [sees_red]
    session = session_of(given)
    failed = ask_seeing_model(session, server.endpoint(timeout=0.5), tmp_path / "cache", no_progress)
    assert failed == {}
    assert session.left == 0
    assert len(server.requests) >= 2 * len(wrong)
    assert {one.answer for one in table(given)} <= {"yes", "no"}
    assert len(table(given)) == session.new


def test_a_concept_that_the_model_failed_for_is_asked_about_in_the_next_run(
    given: list[object], server: Server, tmp_path: Path
) -> None:
    server.answers = [sees_red, completion("no"), sees_red]
    session = session_of(given)
    asked = server.endpoint(attempts=1), tmp_path / "cache", no_progress
    failed = ask_seeing_model(session, *asked)
    assert len(failed) == 1
    assert "no JSON object" in next(iter(failed.values()))
    assert session.left > 0
    later = session_of(given)
    assert ask_seeing_model(later, *asked) == {}
    assert later.left == 0


def test_a_model_that_is_down_is_given_up_soon_and_answers_stay(
    given: list[object], server: Server, cache: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers = [sees_red, sees_red, (503, {}, b"")]
    monkeypatch.setattr(llm.time, "sleep", lambda seconds: None)  # the pauses between attempts
    done = said(given, "", "--vlm-url", server.url, "--vlm-model", "tiny")
    assert done.exit_code == 0
    assert len(server.requests) <= 2 + 4 * MOST_FAILURES
    assert len(table(given)) >= 2
    assert "status 503" in " ".join(done.stderr.split())
    assert "left to ask" in " ".join(done.stdout.split())


def test_a_model_that_needs_a_key_says_so_and_answers_stay(given: list[object], server: Server, cache: None) -> None:
    server.answers = [sees_red, (401, {}, b"")]
    with pytest.raises(CCRError, match="CCR_LLM_KEY"):
        said(given, "", "--vlm-url", server.url, "--vlm-model", "tiny")
    assert len(table(given)) >= 1


def test_photos_that_no_table_can_name_are_left_out(given: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    real = EmbeddingStore.paths.fget
    strange = {0: " red.png", 1: "a\nb.png", 2: ""}
    count = len(EmbeddingStore.open(str(given[3])))

    def paths(store: EmbeddingStore) -> np.ndarray:
        found = real(store).copy()
        if len(found) == count:
            for row, name in strange.items():
                found[np.flatnonzero(store.splits != "test")[row]] = name
        return found

    monkeypatch.setattr(EmbeddingStore, "paths", property(paths))
    session = session_of(given)
    assert session.unnamed == 3
    assert not set(strange.values()) & set(session.paths)
