"""The studio by keyboard: what Enter takes, where the focus is afterwards, and what fields do that are left empty."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccr.data.store import EmbeddingStore
from ccr.model import ConceptModel
from ccr_studio.serving import Running
from tests.studio.browsing import Studio, expect, studio_of
from tests.studio.helpers import CLASSES, make_bench, write_store

pytestmark = pytest.mark.browser


def focused(page: Any) -> str:
    """What has the focus, by its label."""
    return page.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent")


def test_enter_removes_no_concept_that_was_not_chosen(work: Studio) -> None:
    page, bench = work.open("#bench"), work.bench
    page.wait_for_load_state("networkidle")
    field, names = page.get_by_role("combobox", name="Remove a concept"), bench.now().model.names
    field.focus()
    page.keyboard.press("Enter")  # the list is open, and nothing is chosen
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    field.fill("word")  # begins many names
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")  # what was chosen was left again
    page.wait_for_load_state("networkidle")
    assert bench.now().model.names == names
    gone = next(name for name in names if any(other.startswith(name) and other != name for other in names))
    field.fill(gone)
    page.keyboard.press("Enter")  # a name in full
    expect(page.locator(".steps .now")).to_contain_text(f"{gone} suppressed")
    page.wait_for_load_state("networkidle")
    field.fill("word")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator(".steps li")).to_have_count(3)
    assert len(bench.now().model.names) == len(names) - 2


def test_a_list_that_was_left_with_escape_takes_nothing(look: Studio) -> None:
    page = look.open("#photos")
    page.wait_for_load_state("networkidle")
    field = page.get_by_role("combobox", name="Add a filter by concept")
    field.fill("word")
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    page.wait_for_load_state("networkidle")
    assert page.url.endswith("#photos")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator(".chip")).to_have_count(1)


def test_the_focus_stays_where_it_was_used(look: Studio) -> None:
    page = look.open("#concept?name=word+0")
    vote = page.locator("#most [data-vote=no]").nth(1)
    label = vote.get_attribute("aria-label")
    vote.focus()
    page.keyboard.press("Enter")
    expect(vote).to_have_attribute("aria-pressed", "true")
    assert focused(page) == label
    expect(vote).to_be_focused()
    page = look.open("#mistakes?scope=shown")
    cell = page.locator(".cell.error").first
    label = cell.get_attribute("aria-label")
    cell.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("The photos", exact=True)).to_be_visible()
    assert focused(page) == label
    page.get_by_role("button", name="training").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("in 64 photos")).to_be_visible()
    assert focused(page) == "training"
    page = look.open("#photos")
    page.get_by_label("Sort by").focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_url("**sort=confidence**")
    page.wait_for_load_state("networkidle")
    assert focused(page) == "Sort by"
    page = look.open("#map")
    expect(page.get_by_role("button", name="apple")).to_be_visible()
    page.get_by_label("Colour by").focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_url("**by=predicted**")
    page.wait_for_load_state("networkidle")
    assert focused(page) == "Colour by"


def test_a_pair_that_was_confused_gives_the_focus_to_its_cell(look: Studio) -> None:
    page = look.open("#mistakes?scope=shown")
    page.get_by_role("table", name="Pairs of classes").get_by_role("button").first.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("The photos", exact=True)).to_be_visible()
    expect(page.locator(".cell[aria-pressed=true]")).to_be_focused()


def test_undo_works_wherever_no_text_is_written(work: Studio) -> None:
    name = work.bench.now().model.names[0]
    for view, place in (
        ("#photos", ".facet input[type=checkbox]"),
        ("#bench", "#fidelity"),
        ("#photos", ".sort select"),
    ):
        position = work.bench.session.position
        work.bench.edit("pin", {"concept": name})
        page = work.open(view)
        page.locator(place).first.focus()
        page.keyboard.press("Control+z")
        expect(page.get_by_text("Undone")).to_be_visible()
        assert work.bench.session.position == position
    work.bench.edit("pin", {"concept": name})
    page = work.open("#bench")
    page.get_by_label("Words to look for").fill("red")
    page.keyboard.press("Control+z")
    page.wait_for_load_state("networkidle")
    assert work.bench.session.can_undo


def test_a_weight_that_was_emptied_stays(work: Studio) -> None:
    page = work.open("#concept?name=word+0")
    field = page.locator(".weight input").first
    weight = field.input_value()
    field.fill("")
    page.keyboard.press("Tab")
    expect(field).to_have_value(weight)
    page.wait_for_load_state("networkidle")
    assert work.bench.session.position == 0


def test_concepts_sorted_upwards_are_so_after_a_reload(look: Studio) -> None:
    page, names = look.open("#concepts"), sorted(look.bench.now().model.names)
    page.get_by_role("button", name="concept", exact=True).click()
    for _ in range(2):
        expect(page.locator("tbody tr td:first-child a").first).to_have_text(names[0])
        expect(page.locator("th[aria-sort=ascending]")).to_have_count(1)
        page.reload()


def test_a_photo_of_a_store_without_splits_is_of_the_store(browser: Any, model: ConceptModel, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    write_store(tmp_path / "store", rng.standard_normal((60, model.dimension)), rng.choice(list(CLASSES), 60))
    running = Running(make_bench(EmbeddingStore.open(tmp_path / "store"), model, tmp_path))
    for studio in studio_of(browser, running, refused=True):
        page = studio.open("#photo?id=3")
        expect(page.get_by_text("of no split; ")).to_be_visible()
    running.close()
