"""Models go to a hub and come back to the bit; only the two known files are fetched; cards are valid and inert."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from huggingface_hub import ModelCard
from PIL import Image

from ccr import ConceptClassifier, ConceptModel, Concepts, HardThreshold
from ccr.errors import CCRError, FormatError
from ccr.io.hub import FILES, check_repository, model_card
from tests.cli.conftest import as_json, exit_code
from tests.conftest import Data
from tests.data.helpers import encoded
from tests.io.hub_server import Hub, running_hub

HOSTILE = ["<script>alert(1)</script>", "a | b", "[x](javascript:alert(1))", "`code` **bold**", "---", "![x](http://x)"]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with running_hub() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        monkeypatch.setenv("HF_TOKEN", "hf_something")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
        yield running


@pytest.fixture(scope="module")
def fitted(digits: Data) -> ConceptClassifier:
    settings = {"coder": HardThreshold(length=8), "max_iter": 10, "random_state": 0, "coverage": 0.9}
    model = ConceptClassifier(digits.concepts, **settings).fit(digits.X, digits.y)
    measured = model.evaluate(digits.X_test, digits.y_test).to_dict()
    return ConceptClassifier.of(model.model_.with_metrics("test", measured))


def test_a_model_comes_back_to_the_bit_and_two_files_are_fetched(
    fitted: ConceptClassifier, digits: Data, hub: Hub, tmp_path: Path
) -> None:
    picture = encoded(Image.new("RGB", (4, 4)))
    address = fitted.push_to_hub("me/digits", token="hf_x", license="apache-2.0", pictures={"1.png": ("one", picture)})
    assert address == f"{hub.url}/me/digits"
    assert set(hub.repositories["me/digits"]) == {*FILES, "README.md", "pictures/1.png"}
    hub.repositories["me/digits"] |= {"modeling.py": b"raise SystemExit", "pytorch_model.bin": b"\x80pickle"}
    hub.asked.clear()
    for kind in (ConceptModel, ConceptClassifier):
        loaded = kind.from_pretrained("me/digits", cache_dir=tmp_path / kind.__name__)
        np.testing.assert_array_equal(loaded.predict_proba(digits.X_test), fitted.predict_proba(digits.X_test))
    assert hub.fetched() == set(FILES)
    again = ConceptModel.from_pretrained("me/digits", cache_dir=tmp_path / "ConceptModel", local_files_only=True)
    assert again.calibration.coverage == 0.9


def test_a_folder_is_read_without_a_hub(fitted: ConceptClassifier, tmp_path: Path, digits: Data) -> None:
    fitted.save_pretrained(tmp_path / "model")
    assert (tmp_path / "model" / "README.md").exists()
    loaded = ConceptClassifier.from_pretrained(tmp_path / "model")
    assert loaded.predict(digits.X_test).tolist() == fitted.predict(digits.X_test).tolist()
    fitted.save_pretrained(tmp_path / "model")  # and written over


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("me/nothing", "has no model me/nothing"),
        ("me/other", r"is not a ccr model: it has no config\.json and model\.safetensors"),
        ("a/b/c", "is called OWNER/NAME"),
    ],
)
def test_what_is_not_there_is_said_in_words(hub: Hub, name: str, said: str, tmp_path: Path) -> None:
    hub.repositories["me/other"] = {"weights.bin": b"x"}
    with pytest.raises(CCRError, match=said):
        ConceptModel.from_pretrained(name, cache_dir=tmp_path / "cache")


def test_what_a_hub_sends_is_read_as_strictly_as_any_folder(
    fitted: ConceptClassifier, hub: Hub, tmp_path: Path
) -> None:
    fitted.push_to_hub("me/digits")
    good = dict(hub.repositories["me/digits"])
    bad = {
        "pickled": {"model.safetensors": b"\x80\x04\x95pickle"},
        "newer": {"config.json": good["config.json"].replace(b'"format_version": 1', b'"format_version": 99')},
        "foreign": {"config.json": json.dumps({"architectures": ["ResNet"]}).encode()},
    }
    for name, files in bad.items():
        hub.repositories["me/digits"] = {**good, **files}
        with pytest.raises(FormatError):
            ConceptModel.from_pretrained("me/digits", cache_dir=tmp_path / name)


def test_without_a_network_it_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fitted: ConceptClassifier
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # the hub's client tries again for half a minute
    with pytest.raises(CCRError, match=r"cannot be reached for me/digits.*check the network"):
        ConceptModel.from_pretrained("me/digits", cache_dir=tmp_path)
    with pytest.raises(CCRError, match="cannot be reached for me/digits"):
        fitted.push_to_hub("me/digits", token="hf_x")


def test_a_password_in_the_address_of_a_hub_is_never_repeated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fitted: ConceptClassifier
) -> None:
    """Every error named the address with all that stood in it."""
    monkeypatch.setenv("HF_ENDPOINT", "http://me:passw0rd@127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    for ask in (
        lambda: ConceptModel.from_pretrained("me/digits", cache_dir=tmp_path),
        lambda: fitted.push_to_hub("me/digits", token="hf_x"),
    ):
        with pytest.raises(CCRError, match=r"http://127\.0\.0\.1:9 cannot be reached") as caught:
            ask()
        assert "passw0rd" not in str(caught.value)


def test_what_was_not_fetched_before_is_said_in_words(
    hub: Hub,
    fitted: ConceptClassifier,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fitted.push_to_hub("me/digits")
    hub.asked.clear()
    with pytest.raises(CCRError, match=r"me/digits was not fetched to this machine before.*leave --cached"):
        ConceptModel.from_pretrained("me/digits", cache_dir=tmp_path / "empty", local_files_only=True)
    assert exit_code(["pull", "me/digits", "--out", tmp_path / "m", "--cached"], monkeypatch) == 1
    assert "was not fetched to this machine before" in " ".join(capsys.readouterr().err.split())
    assert not hub.asked


@pytest.mark.parametrize("name", ["bad name!!", "a/b/c", "me/.y", "me/x..y"])
def test_a_name_that_no_hub_takes_is_not_written(
    name: str, fitted: ConceptClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted.save(tmp_path / "model")
    assert exit_code(["push", tmp_path / "model", name, "--out", tmp_path / "out"], monkeypatch) == 1
    with pytest.raises(CCRError, match="is called OWNER/NAME"):
        fitted.save_pretrained(tmp_path / "out", repo_id=name)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("header", ["ETag", "X-Linked-Etag", "X-Repo-Commit"])
@pytest.mark.parametrize("value", ['"../../../escaped"', "/escaped", "a/../../../../escaped"])
def test_a_hub_cannot_write_outside_of_the_cache(hub: Hub, tmp_path: Path, header: str, value: str) -> None:
    hub.repositories["me/digits"] = {"config.json": b"{}", "model.safetensors": b""}
    hub.spoil = lambda command, path, status, content, headers: (status, content, {**headers, header: value})
    with pytest.raises(CCRError, match="outside of the cache"):
        ConceptModel.from_pretrained("me/digits", cache_dir=tmp_path / "a" / "cache")
    assert not list(tmp_path.rglob("*escaped*"))


def test_a_wrong_token_is_said_in_words(hub: Hub, fitted: ConceptClassifier) -> None:
    hub.token = "hf_right"
    with pytest.raises(CCRError, match=r"refused.*--token"):
        fitted.push_to_hub("me/digits", token="hf_wrong")
    fitted.push_to_hub("me/digits", token="hf_right")


def test_the_card_is_valid_and_says_what_is_known(fitted: ConceptClassifier) -> None:
    text = model_card(fitted.model_, name="me/digits", license="apache-2.0", pictures={"pictures/1.png": "one"})
    card = ModelCard(text)
    assert card.data.license == "apache-2.0"
    assert card.data.library_name == "ccr"
    (accuracy, _) = card.data.eval_results
    assert accuracy.metric_value == fitted.metrics_["test"]["accuracy"]
    for heading in ("How to use it", "Measured", "When it does not answer", "Classes", "Concepts", "Limits"):
        assert f"## {heading}\n" in text
    low, high = fitted.metrics_["test"]["interval"]
    assert f"{100 * low:.1f} to {100 * high:.1f} %" in text
    assert all(f"| {label} |" in text for label in fitted.classes_)
    assert "![one](pictures/1.png)" in text


def test_names_from_outside_do_nothing_on_a_card(digits: Data) -> None:
    concepts = Concepts([*HOSTILE, *digits.concepts.names[len(HOSTILE) :]], digits.concepts.embeddings)
    labels = np.where(digits.y == "digit 1", "<img src=x onerror=alert(1)>", digits.y)
    model = ConceptClassifier(concepts, max_iter=3, random_state=0, weights_per_class=None).fit(digits.X, labels).model_
    odd = replace(model, provenance=replace(model.provenance, encoder="hf:a](javascript:x)", left_out=("</div>",)))
    text = model_card(odd, name="`x`\n---\nlicense: mit")
    meta, body = text.split("\n---\n", 1)
    assert yaml.safe_load(meta.removeprefix("---\n"))["library_name"] == "ccr"
    assert "license" not in yaml.safe_load(meta.removeprefix("---\n"))
    for harm in ("<script", "<img", "](javascript", "**bold**", "</div>", "![x]"):
        assert harm not in body
    for line in (line for line in body.splitlines() if line.startswith("| ")):
        assert line.count("|") in (3, 9)


ODD = ("<b>x</b>", "a\n\n# b", ["a", "b"], 10**400, float("nan"), True, None, {"n": 1})


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: str(odd)[:9])
def test_a_card_shows_no_measurement_that_is_none(fitted: ConceptClassifier, odd: object) -> None:
    """Whatever stands in place of a number: the page keeps its headings and tables, and shows no HTML."""
    model = fitted.model_
    known, fields = fitted.metrics_["test"], ("n", "interval", "in_play", "macro_f1", "calibration_error", "fidelity")
    control = {"accuracy": 0.5, "gap": odd, "interval": [odd, odd]}
    metrics = {"test": {**known, **dict.fromkeys(fields, odd)}, "second": {"accuracy": odd}}
    metrics |= {"third": {**known, "interval": [odd, odd]}, "controls": {"words": control}, "images": {"train": odd}}
    origin = replace(
        model.provenance,
        metrics=metrics,
        settings={"<i>\n# c": odd},
        edits=({"action": odd},),
        left_out=("a\n\n# b",),
    )
    text = model_card(replace(model, provenance=origin), name="me/x")
    body = text.split("\n---\n", 1)[1]
    assert yaml.safe_load(text.removeprefix("---\n").split("\n---\n")[0])["library_name"] == "ccr"
    assert "<b>" not in body
    assert "<i>" not in body
    assert not [line for line in body.splitlines() if line.startswith(("# b", "# c"))]
    tables = [line for line in body.splitlines() if line.startswith("| ")]
    assert {line.count("|") for line in tables} == {3, 5, 9}
    assert "| third |" in body
    assert "nan" not in body.split("## Classes")[0]


def test_a_coverage_is_not_rounded_to_certainty(fitted: ConceptClassifier) -> None:
    model = replace(fitted.model_, calibration=replace(fitted.calibration_, coverage=0.996))
    assert "true class of 99.6 % of images" in model_card(model, name="me/x")


def test_the_commands_push_and_pull(
    fitted: ConceptClassifier, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digits: Data
) -> None:
    fitted.save(tmp_path / "model")
    pushed = as_json("push", tmp_path / "model", "me/digits", "--license", "mit")
    assert pushed["url"] == f"{hub.url}/me/digits"
    pulled = as_json("pull", "me/digits", "--out", tmp_path / "back")
    assert pulled["classes"] == 10
    assert ConceptModel.load(tmp_path / "back").predict(digits.X).tolist() == fitted.predict(digits.X).tolist()
    assert exit_code(["pull", "me/none", "--out", tmp_path / "none"], monkeypatch) == 1
    assert not (tmp_path / "none").exists()


def test_a_folder_for_a_hub_is_written_by_a_process_that_did_nothing_else(
    fitted: ConceptClassifier, tmp_path: Path
) -> None:
    """The hub's library loads its parts late: what other tests have imported may be missing elsewhere."""
    fitted.save(tmp_path / "model")
    code = "import sys; from ccr.model import ConceptModel as M; M.load(sys.argv[1]).save_pretrained("
    code += "sys.argv[2], repo_id='me/fruit')"
    command = [sys.executable, "-c", code, str(tmp_path / "model"), str(tmp_path / "pushed")]
    subprocess.run(command, check=True, env={**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9"})
    assert (tmp_path / "pushed" / "README.md").is_file()
    for name in ("no name", "a/b/c", "-x/y"):
        with pytest.raises(CCRError, match="is called OWNER/NAME"):
            check_repository(name)
