"""`ccr concepts ...` and `ccr fit` without a list, as a user types them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ccr import ConceptClassifier, Knowledge
from ccr.encoders import Encoder, load_encoder
from ccr.errors import CCRError
from ccr.vocab import read_concepts
from ccr.vocab.learned import LearnedConcept
from ccr.vocab.proposals import origins_path, read_origins
from ccr.vocab.wordnet import WordNet
from tests.cli.conftest import as_json, run


@pytest.fixture(scope="module", autouse=True)
def _with_wordnet() -> None:
    try:
        WordNet.open()
    except CCRError as error:
        pytest.skip(str(error))


@pytest.fixture
def names(tmp_path: Path) -> Path:
    (tmp_path / "classes.txt").write_text("banana\nfrog\nxqzzt\n苹果\n", encoding="utf-8")
    return tmp_path / "classes.txt"


def test_propose_from_names(names: Path, tmp_path: Path) -> None:
    out = tmp_path / "c.txt"
    found = as_json("concepts", "propose", names, "--out", out, "--encoder", "none")
    assert found["unknown_classes"] == ["xqzzt", "苹果"]
    listed = read_concepts(out)
    assert found["concepts"] == len(listed) > 60
    assert {"long hind limb", "yellow", "crescent shape"} <= set(listed)
    assert "frog" not in listed
    origins = read_origins(out)
    assert origins["long hind limb"][0].class_name == "frog"
    assert "tailless" in origins["long hind limb"][0].sentence
    said = run("concepts", "propose", names, "--out", out, "--encoder", "none", "--sources", "generic")
    assert said.exit_code == 0
    assert "4 classes" in said.stdout
    assert "a source ties 0 of them to a class" in " ".join(said.output.split())
    assert "mostly generic" in " ".join(said.output.split())


def test_propose_says_plainly_what_would_do_better_for_names_that_nobody_knows(tmp_path: Path) -> None:
    names, out = tmp_path / "classes.txt", tmp_path / "c.txt"
    names.write_text("A113\nKX9\nZT-5000\n", encoding="utf-8")
    said = run("concepts", "propose", names, "--out", out, "--encoder", "none")
    text = " ".join(said.output.split())
    assert "WordNet does not know 3 of 3 classes" in text
    for better in ("a person who knows them", "a language model", "a few example photos"):
        assert better in text
    assert "may fit any photo" in str(read_origins(out)["stripes"])


def test_check_finds_what_is_implausible_for_the_classes(tmp_path: Path) -> None:
    names, file = tmp_path / "classes.txt", tmp_path / "c.txt"
    names.write_text("cardboard\nglass\nmetal\npaper\nplastic\ntrash\n", encoding="utf-8")
    file.write_text("floppy ears\na sofa\nhandwriting\na barcode\n", encoding="utf-8")
    found = as_json("concepts", "check", file, "--classes", names)
    verdicts = [item["verdict"] for item in found["concepts"]]
    assert verdicts == ["implausible", "implausible", "good", "good"]
    done = run("concepts", "check", file, "--classes", names)
    assert "implausible: 2" in done.stdout


@pytest.mark.parametrize(
    "options",
    [
        ["--sources", "nothing"],
        ["--sources", "llm"],
        ["--dry-run"],
        ["--sources", "llm", "--llm-url", "http://x/v1"],
        ["--llm-model", "llama3.2"],
    ],
)
def test_propose_says_what_it_needs(names: Path, tmp_path: Path, options: list[str]) -> None:
    done = run("concepts", "propose", names, "--out", tmp_path / "c.txt", "--encoder", "none", *options)
    assert done.exit_code == 2
    assert not (tmp_path / "c.txt").exists()


def test_a_dry_run_shows_the_cost_and_asks_nothing(names: Path, tmp_path: Path) -> None:
    llm = ["--sources", "llm", "--llm-url", "http://127.0.0.1:9/v1", "--llm-model", "m"]
    found = as_json("concepts", "propose", names, "--out", tmp_path / "c.txt", "--encoder", "none", *llm, "--dry-run")
    assert found["requests"] == 4
    assert found["prompt_tokens"] > 0
    assert not (tmp_path / "c.txt").exists()


def test_propose_choose_check_on_a_store(workspace: Path, tmp_path: Path) -> None:
    candidates, chosen, page = tmp_path / "candidates.txt", tmp_path / "chosen.txt", tmp_path / "page.html"
    as_json("concepts", "propose", workspace / "store", "--out", candidates)
    found = as_json("concepts", "choose", candidates, "--store", workspace / "store", "--out", chosen, "--size", 20)
    assert read_concepts(chosen) == found["concepts"]
    by_place = as_json("concepts", "choose", candidates, workspace / "store", "--out", chosen, "--size", 20)
    assert by_place == found
    few = len(found["concepts"])
    assert 6 <= few <= 20  # blobs of colour show little that is not a near-duplicate
    assert read_origins(chosen).keys() == set(found["concepts"])
    checked = as_json("concepts", "check", chosen, workspace / "store", "--out", page, "--no-worth")
    assert len(checked["concepts"]) == few
    assert checked["worth"] is None  # the tiny CLIP embeds most words alike
    html = page.read_text(encoding="utf-8")
    assert html.count("data:image/jpeg") == few * 5
    done = run("concepts", "choose", candidates, "--store", workspace / "store", "--out", chosen, "--size", 6)
    assert len(read_concepts(chosen)) == 6
    assert "6 of" in done.stdout
    assert "mostly generic" in " ".join(done.output.split())
    by_hand = tmp_path / "hand.txt"
    by_hand.write_text("".join(f"{name}\n" for name in read_concepts(candidates)), encoding="utf-8")
    done = run("concepts", "choose", by_hand, "--store", workspace / "store", "--out", chosen, "--size", 6)
    assert "generic" not in done.output


def test_grey_photos_get_no_colours(workspace: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("crazing", "scratches"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(4):
            pixels = rng.integers(0, 255, (40, 40), dtype=np.uint8)
            Image.fromarray(pixels).convert("RGB").save(tmp_path / "photos" / name / f"{number}.jpg")
    encoder = f"hf:{workspace / 'clip'}"
    run("embed", tmp_path / "photos", "--out", tmp_path / "store", "--encoder", encoder, "--workers", "0")
    found = as_json("concepts", "propose", tmp_path / "store", "--out", tmp_path / "grey.txt")
    assert found["grey"]
    listed = read_concepts(tmp_path / "grey.txt")
    assert "dark grey" in listed
    assert "rusty brown" not in listed
    (tmp_path / "own.txt").write_text("violet\nfine lines\n", encoding="utf-8")
    checked = as_json("concepts", "check", tmp_path / "own.txt", "--store", tmp_path / "store", "--no-worth")
    assert [item["verdict"] == "implausible" for item in checked["concepts"]] == [True, False]
    assert not as_json("concepts", "propose", workspace / "store", "--out", tmp_path / "c.txt")["grey"]


def test_check_reports_all_at_once_and_texts_stay_texts(workspace: Path, tmp_path: Path) -> None:
    file, page = tmp_path / "c.txt", tmp_path / "page.html"
    lines = ["red skin", "RED skin", "xqzzt", "the", "not red", "<script>alert(1)</script>", "red fruit", "[b]xqz[/b]"]
    file.write_text("\n".join(lines), encoding="utf-8")
    found = as_json("concepts", "check", file, "--store", workspace / "store", "--no-worth", "--out", page)
    verdicts = {item["concept"]: item["verdict"] for item in found["concepts"]}
    bad = {name for name, verdict in verdicts.items() if verdict == "bad"}
    assert {"RED skin", "xqzzt", "the", "not red", "red fruit"} <= bad
    assert "<script>" not in page.read_text(encoding="utf-8")
    done = run("concepts", "check", file)
    assert done.exit_code == 0
    assert "[b]xqz[/b]" in done.stdout


def test_a_store_without_labels_is_explained(workspace: Path, tmp_path: Path) -> None:
    store = tmp_path / "bare"
    (store / "img_emb").mkdir(parents=True)
    np.save(store / "img_emb" / "img_emb_0.npy", np.eye(8, dtype=np.float32))
    with pytest.raises(CCRError, match="has no labels"):
        run("concepts", "propose", store, "--out", tmp_path / "c.txt")
    assert not (tmp_path / "c.txt").exists()


def test_fit_without_a_list_writes_the_one_it_made(workspace: Path, tmp_path: Path) -> None:
    found = as_json("fit", workspace / "store", "--out", tmp_path / "model", "--epochs", 2, "--length", 4)
    assert found["results"]
    listed = read_concepts(tmp_path / "model-concepts.txt")
    assert 2 <= len(listed) <= 64
    assert not {"red fruit", "green fruit"} & set(listed)
    assert len(Knowledge.read(tmp_path / "model-concepts-knowledge.csv"))
    assert ConceptClassifier.load(tmp_path / "model").candidates == 2.0
    by_steps = tmp_path / "concepts.txt"  # step by step, the same list
    as_json("concepts", "propose", workspace / "store", "--out", tmp_path / "candidates.txt")
    chosen = as_json("concepts", "choose", tmp_path / "candidates.txt", workspace / "store", "--out", by_steps)
    assert (chosen["asked"], read_concepts(by_steps)) == (64, listed)
    as_json("fit", workspace / "store", "--out", tmp_path / "other", "--epochs", 1, "--length", 4, "--candidates", 1)
    assert ConceptClassifier.load(tmp_path / "other").candidates == 1.0


def test_fit_without_a_list_says_that_it_is_mostly_generic_and_how_to_do_better(
    workspace: Path, tmp_path: Path
) -> None:
    done = run("fit", workspace / "store", "--out", tmp_path / "m", "--epochs", 1, "--length", 4, "--no-baseline")
    text = " ".join(done.output.split())
    assert "mostly generic" in text
    assert "ten minutes" in text
    assert "--concepts" in text


def test_fit_does_not_propose_over_a_list_that_was_edited(workspace: Path, tmp_path: Path) -> None:
    typed = ["fit", workspace / "store", "--out", tmp_path / "my model", "--epochs", 1, "--length", 4, "--no-baseline"]
    file = tmp_path / "my model-concepts.txt"
    as_json(*typed)
    as_json(*typed)  # as it was written: nothing is lost
    edited = file.read_text(encoding="utf-8") + "worn edge\n"
    file.write_text(edited, encoding="utf-8")
    with pytest.raises(CCRError, match=r"is there already: give it with --concepts '.*my model-conc.*', or delete"):
        run(*typed)
    assert file.read_text(encoding="utf-8") == edited
    as_json(*typed, "--concepts", file)
    origins_path(file).unlink()
    with pytest.raises(CCRError, match="is there already"):
        run(*typed)


def test_fit_puts_proposed_concepts_and_random_words_into_the_template(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = "far away from {}"
    typed = ["fit", workspace / "store", "--out", tmp_path / "m", "--epochs", 1, "--length", 4, "--template", template]
    as_json(*typed, "--no-baseline")
    texts = ConceptClassifier.load(tmp_path / "m").model_.provenance.texts
    expected = load_encoder(f"hf:{workspace / 'clip'}").embed_texts(list(texts.names), template=template)
    assert np.allclose(texts.embeddings, expected, atol=1e-5)

    def measure(model: object, store: object, encoder: Encoder, **_: object) -> None:
        raise CCRError(f"controls by {encoder.template}")

    monkeypatch.setattr("ccr.controls.measure_controls", measure)
    with pytest.raises(CCRError, match=f"controls by {template}"):
        run(*typed, "--no-baseline", "--controls", "--concepts", workspace / "concepts.txt")


def test_learn_and_fit_with_what_was_learned(workspace: Path, tmp_path: Path) -> None:
    out, photos = tmp_path / "reddish.json", workspace / "photos"
    shows = [photos / "red fruit" / f"{number}.png" for number in range(4)]
    (photos / "green fruit" / "._0.png").write_bytes(b"what macOS leaves")
    arguments = ["concepts", "learn", "reddish", "--store", workspace / "store", "--out", out]
    arguments += [part for path in shows for part in ("--shows", path)]
    found = as_json(*arguments, "--lacks", photos / "green fruit")
    (photos / "green fruit" / "._0.png").unlink()
    assert found["leave_one_out_error"] < 0.3
    assert LearnedConcept.read(out).name == "reddish"
    model = tmp_path / "model"
    concepts = workspace / "concepts.txt"
    fitted = ["--learned", out, "--out", model, "--epochs", 2, "--weights", "all"]
    as_json("fit", workspace / "store", "--concepts", concepts, *fitted)
    assert "reddish" in ConceptClassifier.load(model).concepts_.names
    with pytest.raises(CCRError, match="both show"):
        run(*arguments, "--lacks", shows[0], "--lacks", shows[1])
    out.write_text("{}")
    with pytest.raises(CCRError, match="learn it again"):
        run("fit", workspace / "store", "--concepts", concepts, "--learned", out, "--out", model)


def test_photos_to_learn_from_are_counted_before_they_are_embedded(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error came after minutes of embedding, and named an argument of the library."""
    monkeypatch.setattr("ccr.vocab.learned._embedded", lambda *_: pytest.fail("embedded already"))
    photos = workspace / "photos" / "red fruit"
    typed = ["concepts", "learn", "reddish", "--store", workspace / "store", "--out", tmp_path / "r.json"]
    with pytest.raises(CCRError, match="at least 2 photos that show it, got 1: give more by --shows"):
        run(*typed, "--shows", photos / "0.png", "--lacks", photos / "1.png", "--lacks", photos / "2.png")
    with pytest.raises(CCRError, match="at least 2 photos that do not, got 1: give more by --lacks"):
        run(*typed, "--lacks", photos / "0.png", "--shows", photos / "1.png", "--shows", photos / "2.png")


def test_lists_of_few_concepts_are_checked(workspace: Path, tmp_path: Path) -> None:
    file, store = tmp_path / "c.txt", workspace / "store"
    file.write_text("red skin\nlong stem\n", encoding="utf-8")
    found = as_json("concepts", "check", file, "--store", store, "--no-worth")
    assert [item["active"] is None for item in found["concepts"]] == [False, False]
    for text, count in (("x" * 300, 0), ("red skin", 1)):
        file.write_text(f"{text}\n", encoding="utf-8")
        done = run("concepts", "check", file, "--store", store)
        assert f"got {count}" in done.stderr
        assert f"bad: {1 - count}" in done.stdout


def test_classes_and_a_store_are_not_both_given(workspace: Path, names: Path, tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("red skin\nround\n", encoding="utf-8")
    done = run("concepts", "check", tmp_path / "c.txt", workspace / "store", "--classes", names)
    assert done.exit_code == 2
    assert "not both" in done.output


def test_choose_says_why_there_are_fewer(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("red skin\n", encoding="utf-8")
    done = run("concepts", "choose", tmp_path / "c.txt", workspace / "store", "--out", tmp_path / "o.txt")
    assert "there are no more" in " ".join(done.stdout.split())
