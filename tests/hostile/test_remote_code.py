"""Encoders bring weights, never code; stores and models do not choose folders of this machine."""

from __future__ import annotations

import io
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ccr.encoders import load_encoder
from ccr.encoders.openclip import check_file
from ccr.encoders.registry import check_named, remember
from ccr.errors import CCRError
from tests.encoders.test_hf import save


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCR_CACHE", str(tmp_path / "cache"))


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("config.json", {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"}}),
        ("preprocessor_config.json", {"image_processor_type": "E", "auto_map": {"AutoImageProcessor": "evil.Evil"}}),
        ("tokenizer_config.json", {"tokenizer_class": "E", "auto_map": {"AutoTokenizer": ["evil.Evil", None]}}),
    ],
)
def test_code_in_an_encoders_folder_never_runs_and_nobody_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, changes: dict[str, object]
) -> None:
    folder = save(tmp_path / "clip", "clip")
    edit(folder / file, **changes)
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 9))
    try:
        load_encoder(f"hf:{folder}", device="cpu")
    except CCRError as error:
        assert "cannot be used as an encoder" in str(error)  # noqa: PT017 (a folder that works without its code may)
    assert not (tmp_path / "ran").exists()
    assert len(sys.stdin.read()) == 18  # nothing was asked


def test_a_local_encoder_is_followed_once_the_user_named_it(tmp_path: Path) -> None:
    folder = save(tmp_path / "clip", "clip")
    with pytest.raises(CCRError, match=r"was never named by you.*give --encoder hf:"):
        check_named(f"hf:{folder}", "the model")
    with pytest.raises(CCRError, match="was never named by you"):
        check_named(f"open_clip:RN50/{folder}/model.safetensors", "the model")
    check_named("hf:openai/clip-vit-base-patch16", "the model")
    check_named("bundled", "the model")
    load_encoder(f"hf:{folder}", device="cpu")
    check_named(f"hf:{folder}", "the model")


def test_a_list_of_named_encoders_that_is_damaged_names_none(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    for text in ("[" * 9999, "{}", '[1, null, ["x"]]', '"', f'"hf:{tmp_path}'):
        (tmp_path / "cache" / "named-encoders.jsonl").write_text(text)
        with pytest.raises(CCRError, match="never named"):
            check_named(f"hf:{tmp_path}", "the store")


def test_commands_that_run_at_the_same_time_keep_each_others_notes(tmp_path: Path) -> None:
    folders = [tmp_path / f"encoder{number}" for number in range(64)]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(remember, [f"hf:{folder}" for folder in folders]))
    for folder in folders:
        check_named(f"hf:{folder}", "the store")


def test_a_folder_beside_the_photos_is_not_a_name_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "openai" / "clip-vit-base-patch16", "clip")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CCRError, match=r"lies here too: write hf:\./openai"):
        load_encoder(device="cpu")
    load_encoder("hf:./openai/clip-vit-base-patch16", device="cpu")


def test_checkpoints_are_safetensors(tmp_path: Path) -> None:
    check_file("model.safetensors")
    with pytest.raises(CCRError, match=r"must be a \.safetensors file"):
        check_file("model.pt")
