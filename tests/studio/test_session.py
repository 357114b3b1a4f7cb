"""The session: every step on disk, undone and done again, and never half a step."""

from __future__ import annotations

import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccr.classifier import ConceptClassifier
from ccr.coding import HardThreshold, TopK
from ccr.coding.coders import usual_length
from ccr.concepts import Concepts
from ccr.data.store import EmbeddingStore
from ccr.edit import EditSession
from ccr.errors import CCRError, CCRWarning, FormatError, WriteError
from ccr.io.files import ASIDE
from ccr.model import ConceptModel
from ccr_studio import serving
from ccr_studio.api.bench import settings_of
from ccr_studio.encoder import Words
from ccr_studio.photos import Photos
from ccr_studio.work import edits
from ccr_studio.work import session as sessions
from ccr_studio.work.refits import _asked
from ccr_studio.work.session import MOST_STEPS, StudioSession, StudioState
from ccr_studio.work.workbench import Workbench
from tests.data.helpers import PixelEncoder
from tests.studio.helpers import CONCEPTS, finish, make_bench


def same(one: ConceptModel, other: ConceptModel) -> bool:
    pairs = [(one.concepts.embeddings, other.concepts.embeddings), (one.head.coef, other.head.coef)]
    return one.names == other.names and all(np.array_equal(a, b) for a, b in pairs)


def test_edits_are_those_of_the_library(bench: Workbench, model: ConceptModel) -> None:
    first, second, third = model.names[:3]
    theirs = (
        EditSession(model).scale(first, 0.5).rename(second, "other").pin(third).zero_weight(first, model.classes[0])
    )
    bench.edit("scale", {"concept": first, "factor": 0.5})
    bench.edit("rename", {"concept": second, "to": "other"})
    bench.edit("pin", {"concept": third})
    seen = bench.edit("zero_weight", {"concept": first, "name": str(model.classes[0])})
    assert same(seen.model, theirs.model())
    assert [dict(entry) for entry in seen.model.provenance.edits] == [edit.to_dict() for edit in theirs.log]
    assert seen.version == "4"


def test_a_session_goes_on_where_it_was_left(bench: Workbench, store: EmbeddingStore, tmp_path: Path) -> None:
    bench.edit("suppress", {"concept": bench.now().model.names[0]})
    bench.edit("scale", {"concept": bench.now().model.names[1], "factor": 2.0})
    bench.undo()
    kept, texts = bench.now().model, bench.state.texts.names
    bench.lock.close()  # as if the process were gone
    again = make_bench(store, None, tmp_path)
    assert same(again.now().model, kept)
    assert again.state.texts.names == texts
    assert again.session.can_redo
    assert again.now().version == "1"
    assert again.undo(1).version == "2"
    again.close()


def test_undo_is_exact_and_a_new_edit_drops_what_was_undone(bench: Workbench, model: ConceptModel) -> None:
    bench.edit("suppress", {"concept": model.names[0]})
    assert same(bench.undo().model, model)
    with pytest.raises(CCRError, match="nothing to undo"):
        bench.undo()
    bench.edit("pin", {"concept": model.names[1]})
    assert bench.now().version == "2"  # never a number again
    assert not bench.session.can_redo
    assert sorted(path.name for path in (bench.folder / "steps").iterdir()) == ["00000", "00002"]


def test_a_name_that_was_removed_may_be_used_again(bench: Workbench, model: ConceptModel) -> None:
    first, second = model.names[:2]
    bench.edit("suppress", {"concept": first})
    bench.edit("rename", {"concept": second, "to": first})
    assert first in bench.state.texts.names
    assert first not in bench.state.removed


def test_a_pin_ends_with_its_concept(bench: Workbench, model: ConceptModel) -> None:
    first, second = model.names[:2]
    for name in (first, second):
        bench.edit("pin", {"concept": name})
    bench.edit("suppress", {"concept": first})
    assert bench.state.pinned == (second,)
    bench.edit("rename", {"concept": second, "to": "other"})
    assert bench.state.pinned == ("other",)


def test_a_saved_model_that_was_replaced_is_looked_at_again(bench: Workbench, model: ConceptModel) -> None:
    path = bench.save("other").path
    assert same(bench.at("saved:other").model, model)
    assert bench.at("saved:other") is bench.at("saved:other")
    changed = EditSession(model).scale(model.names[0], 3.0).model()
    changed.save(path)
    assert same(bench.at("saved:other").model, changed)
    shutil.rmtree(path)
    with pytest.raises(CCRError, match="other"):
        bench.at("saved:other")


def test_a_photo_teaches_once(bench: Workbench) -> None:
    with pytest.raises(CCRError, match="at least 2 photos"):
        edits.teach(bench.state, "new", [0, 0], [1, 1], bench.photos, None)


def test_another_length_leaves_the_coder_as_it_is(model: ConceptModel) -> None:
    assert repr(_asked(model, {"length": 3.0})["coder"]) == repr(HardThreshold(length=3.0))
    ranked = replace(model, provenance=replace(model.provenance, settings={"coder": TopK(8)}))
    assert repr(_asked(ranked, {"length": 3.0})["coder"]) == repr(TopK(3))


def test_the_length_that_nobody_asked_for_is_that_of_the_list(model: ConceptModel) -> None:
    unsaid = replace(model.provenance, settings={**model.provenance.settings, "coder": None})
    listed = len(model.names) + len(model.provenance.left_out)
    assert settings_of(replace(model, provenance=unsaid))["length"] == usual_length(listed) < 12


def test_a_step_that_cannot_be_written_is_none(
    bench: Workbench, model: ConceptModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise WriteError(28, "the disk is full")

    monkeypatch.setattr(sessions, "write_json", full)
    with pytest.raises(WriteError):
        bench.edit("suppress", {"concept": model.names[0]})
    monkeypatch.undo()
    assert same(bench.now().model, model)
    assert bench.now().version == "0"
    assert len(bench.session.steps) == 1
    seen = bench.edit("suppress", {"concept": model.names[1]})
    assert model.names[1] not in seen.model.names
    assert model.names[0] in seen.model.names


def test_old_steps_are_dropped_and_the_first_is_kept(model: ConceptModel, tmp_path: Path) -> None:
    session, state = StudioSession.open(tmp_path / "session", model)
    for number in range(MOST_STEPS + 3):
        session.add(state, {"action": "pin", "concept": str(number)})
    assert len(session.steps) == MOST_STEPS
    assert session.steps[0].edit["action"] == "open"
    assert len(list((tmp_path / "session" / "steps").iterdir())) == MOST_STEPS


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"format": "ccr-studio-session", "format_version": 2}'],
)
def test_a_damaged_session_is_refused_in_words(bench: Workbench, content: str) -> None:
    path = bench.folder / "session.json"
    good = json.loads(path.read_text())
    path.write_text(content)
    with pytest.raises(FormatError, match="session"):
        StudioSession.open(bench.folder, None)
    edits: list[dict[str, Any]] = [{}, {"action": "teach", "name": "x", "shows": 3.5}]  # they broke every page
    steps = [{"steps": [{**good["steps"][0], "edit": edit}]} for edit in edits]
    for change in ({"position": 9}, {"next": 0}, {"steps": [{"id": "x"}]}, {"looked": 3}, *steps):
        path.write_text(json.dumps({**good, **change}))
        with pytest.raises(FormatError, match="session"):
            StudioSession.open(bench.folder, None)


def test_two_studios_do_not_write_one_session(bench: Workbench, store: EmbeddingStore, tmp_path: Path) -> None:
    with pytest.raises(CCRError, match="another studio"):
        make_bench(store, None, tmp_path)
    watching = make_bench(store, None, tmp_path, read_only=True)
    with pytest.raises(CCRError, match="read-only"):
        watching.edit("suppress", {"concept": watching.now().model.names[0]})
    watching.close()


def test_a_taught_concept_is_the_librarys(bench: Workbench, store: EmbeddingStore) -> None:
    name, shows, lacks = "word 3", [0, 1, 2], [20, 21, 40]
    photos = Photos(store)
    among = bench.state.texts.subset([row for row, known in enumerate(bench.state.texts.names) if known != name])
    learned = Concepts.from_examples(
        name,
        shows=store[shows],
        lacks=store[lacks],
        text=PixelEncoder().embed_texts([name])[0],
        mean=photos.moments.mean,
        covariance=photos.moments.covariance,
        among=among,
    )
    seen = bench.teach(name, shows, lacks)
    texts = seen.model.provenance.texts
    np.testing.assert_allclose(texts.embeddings[texts.index(name)], learned.embeddings[0], atol=1e-5)
    assert bench.session.current.edit["action"] == "teach"
    with pytest.raises(CCRError, match="both show"):
        bench.teach(name, [0, 1], [1, 2])
    with pytest.raises(CCRError, match="at least 2"):
        bench.teach(name, [0], [1, 2])


def test_photos_alone_teach_a_concept_where_there_is_no_encoder(bench: Workbench) -> None:
    bench.words = Words(no_encoder)
    bench.words.start()
    seen = bench.teach("word 3", [0, 1, 2], [20, 21, 40])
    assert bench.session.current.edit["action"] == "teach"
    assert seen.model.names[-1] == "word 3"


def no_encoder() -> Any:
    raise CCRError("it is on another machine")


def test_teaching_keeps_the_weights_of_a_known_concept(bench: Workbench, model: ConceptModel) -> None:
    name = model.names[int(np.abs(model.head.coef).max(axis=0).argmax())]
    before = model.head.coef[:, model.row(name)]
    taught = bench.teach(name, [0, 1, 2], [30, 31]).model
    np.testing.assert_allclose(taught.head.coef[:, taught.row(name)], before, rtol=1e-6)
    assert len(taught.names) == len(model.names)


def test_a_refit_starts_from_the_whole_list_and_keeps_what_was_decided(bench: Workbench, model: ConceptModel) -> None:
    pinned, gone = model.names[0], model.names[1]
    bench.edit("pin", {"concept": pinned})
    bench.edit("suppress", {"concept": gone})
    bench.add("a new word")
    job = bench.refit("full", {"fidelity": 0.8, "length": 5.0, "weights_per_class": "all"})
    with pytest.raises(CCRError, match="a refit is running"):
        bench.edit("pin", {"concept": pinned})
    finish(bench)
    assert job.state == "done", job.message
    fitted, names = bench.now().model, set(bench.state.texts.names)
    assert {"a new word", *model.provenance.left_out} <= names
    assert gone not in names
    assert fitted.provenance.settings["fidelity"] == 0.8
    row = fitted.row(pinned)
    assert np.array_equal(fitted.concepts.embeddings[row], fitted.initial.embeddings[row])
    assert [entry["action"] for entry in fitted.provenance.edits] == ["pin", "suppress", "add", "fit"]
    assert len(job.curve) == job.epochs > 0
    assert fitted.provenance.encoder_fingerprint == model.provenance.encoder_fingerprint
    assert bench.now().version == job.version == "4"
    # Weights that were set before a fit are learned anew by it, so a refit of the head after it has none to hold.
    bench.edit("set_weight", {"concept": pinned, "name": str(model.classes[0]), "value": 3.0})
    bench.refit("head", {})
    finish(bench)
    head = bench.now().model
    assert head.head.coef[0, head.row(pinned)] == pytest.approx(3.0)


def test_a_refit_with_a_pinned_concept_stays_calibrated(store: EmbeddingStore, tmp_path: Path) -> None:
    """The prediction sets were gone without a word."""
    texts = Concepts(CONCEPTS, PixelEncoder().embed_texts(CONCEPTS))
    settings: dict[str, Any] = {"coder": HardThreshold(length=6), "max_iter": 6, "random_state": 0, "coverage": 0.8}
    sure = ConceptClassifier(texts, **settings).fit(store.select("train")).model_
    assert sure.calibration is not None
    bench = make_bench(store, sure, tmp_path)
    with pytest.warns(CCRWarning, match="prediction sets are gone"):
        bench.edit("pin", {"concept": sure.names[0]})
    job = bench.refit("full", {})
    finish(bench)
    assert (job.state, job.message) == ("done", "")
    again = bench.now().model
    assert again.calibration is not None
    assert again.calibration.coverage == 0.8
    assert again.predict_set(store[:5]).labels
    job = bench.refit("head", {})
    finish(bench)
    assert job.state == "done"
    assert "not calibrated any more" in job.message
    bench.close()


def test_a_refit_that_is_stopped_changes_nothing(bench: Workbench, model: ConceptModel) -> None:
    job = bench.refit("full", {})
    bench.refits.cancel()
    assert job.state == "cancelled"
    assert same(bench.now().model, model)
    with pytest.raises(CCRError, match="no refit"):
        bench.refits.cancel()
    bench.refit("head", {})
    finish(bench)
    assert bench.refits.job is not None
    assert bench.refits.job.state == "done", bench.refits.job.message


def test_a_refit_that_is_just_done_is_not_called_stopped(
    bench: Workbench, model: ConceptModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, see = threading.Event(), threading.Event(), bench._see

    def slow(*args: Any, **options: Any) -> Any:
        begun.set()
        assert go_on.wait(60)
        return see(*args, **options)

    monkeypatch.setattr(bench, "_see", slow)
    job = bench.refit("head", {})
    assert begun.wait(60)
    with pytest.raises(CCRError, match="just finished, so it cannot be stopped: undo it"):
        bench.refits.cancel()
    go_on.set()
    finish(bench)
    assert (job.state, job.version) == ("done", "1")
    monkeypatch.undo()
    assert same(bench.undo().model, model)


def test_a_step_that_cannot_be_read_is_not_undone_to(bench: Workbench, model: ConceptModel) -> None:
    bench.edit("suppress", {"concept": model.names[0]})
    bench.edit("suppress", {"concept": model.names[1]})
    damaged = bench.folder / "steps" / "00001" / "list.json"
    content = damaged.read_bytes()
    damaged.write_bytes(b"")
    with pytest.raises(FormatError, match="step"):
        bench.undo()
    assert (bench.now().version, bench.session.position) == ("2", 2)
    assert json.loads((bench.folder / "session.json").read_text())["position"] == 2
    damaged.write_bytes(content)
    assert bench.undo().version == "1"


def test_a_studio_that_only_shows_writes_nothing_and_need_not_be_allowed_to(
    bench: Workbench, store: EmbeddingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.edit("suppress", {"concept": bench.now().model.names[0]})
    writing = bench.folder / f"{ASIDE}of-the-other-studio"
    writing.write_bytes(b"half")
    monkeypatch.setattr(sessions, "check_writable", refused)
    watching = make_bench(store, None, tmp_path, read_only=True)
    assert watching.now().version == "1"
    watching.close()
    assert writing.read_bytes() == b"half"


def test_a_studio_that_only_shows_finds_the_session_that_others_write(
    store: EmbeddingStore, model: ConceptModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = EmbeddingStore.open(shutil.copytree(store.path, tmp_path / "store"))
    folder = serving.model_session(shared, model)
    assert folder.parent == tmp_path / "store-studio"
    StudioSession.open(folder, model)
    monkeypatch.setattr(serving, "check_writable", refused)
    assert serving.model_session(shared, model, read_only=True) == folder
    assert serving.model_session(shared, model) != folder  # in the cache, where it can be written


def refused(path: Path) -> None:
    raise WriteError(13, "permission denied", str(path))


def test_a_model_without_texts_is_refused(model: ConceptModel) -> None:
    from dataclasses import replace

    bare = replace(model, provenance=replace(model.provenance, texts=None))
    with pytest.raises(CCRError, match="text embeddings"):
        StudioState.of(bare)
