"""The review in a real browser: by keys and by mouse, from the first answer to the signature."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from ccr.data.store import EmbeddingStore
from ccr.model import ConceptModel
from ccr.review import Decisions, Review
from ccr_studio.serving import Running
from tests.studio.browsing import Studio, expect, studio_of
from tests.studio.helpers import make_bench, tell

pytestmark = pytest.mark.browser


def opened(work: Studio) -> Any:
    page = work.open("#photos")
    page.evaluate("() => localStorage.setItem('ccr-reviewer', 'ann')")
    page = work.open("#review")
    page.wait_for_selector(".claim.now .mine")
    return page


def test_claims_are_answered_by_keys_taken_back_and_refitted(work: Studio) -> None:
    page = opened(work)
    claims = int((work.bench.now().model.head.coef > 0).sum())
    expect(page.locator(".review-bar b")).to_have_text(f"0 of {claims} confirmed")
    page.keyboard.press("y")
    expect(page.locator(".review-bar b")).to_have_text(f"1 of {claims} confirmed")
    gone = page.locator(".claim.now").get_attribute("aria-label")
    page.keyboard.press("n")
    expect(page.locator("#review-refit")).to_contain_text("Refit without 1 claim")
    page.keyboard.press("Control+z")  # the answer, not a step of the model
    expect(page.locator("#review-refit")).not_to_contain_text("without")
    assert work.bench.session.position == 0
    page.locator(".claim", has_text=gone.split(" shows ")[1].rstrip("?")).first.click()
    page.keyboard.press("1")
    expect(page.locator("#review-refit")).to_contain_text("Refit without 1 claim")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("never a reason for any class")
    page.keyboard.press("Escape")
    page.keyboard.press("r")
    expect(page.locator(".toast").last).to_contain_text("went")
    expect(page.locator("#round summary")).to_contain_text("Round 1")
    expect(page.locator("#round li", has_text=gone.rstrip("?"))).to_be_visible()
    page.reload()
    expect(page.locator("#round summary")).to_contain_text("Round 1")
    label, _, concept = gone.rstrip("?").partition(" shows ")
    model = work.bench.now().model
    number = work.bench.now().number(label)
    assert concept not in model.names or model.head.coef[number, model.row(concept)] == 0


def test_all_confirmed_is_signed_and_an_edit_ends_it(work: Studio) -> None:
    page = opened(work)
    count = int((work.bench.now().model.head.coef > 0).sum())
    expect(page.get_by_role("button", name="Sign", exact=True)).to_be_disabled()
    for done in range(1, count + 1):
        page.keyboard.press("y")
        expect(page.locator(".review-bar b")).to_have_text(f"{done} of {count} confirmed")
    page.get_by_role("button", name="Sign", exact=True).click()
    expect(page.get_by_text(f"{count} claims, every one confirmed")).to_be_visible()
    assert work.bench.now().model.is_signed
    work.bench.edit("suppress", {"concept": work.bench.now().model.names[0]})
    page.reload()
    expect(page.get_by_text("Not signed.")).to_be_visible()


def test_a_class_is_a_link_to_its_page_and_its_review(look: Studio) -> None:
    page = look.open("#mistakes?scope=shown")
    page.locator(".matrix tbody th a", has_text="apple").click()
    expect(page.locator("h1")).to_have_text("apple")
    expect(page.get_by_text("What the model may say of it")).to_be_visible()
    page.get_by_role("link", name="Review its claims").click()
    expect(page.locator(".class-name")).to_have_text("apple")
    page.wait_for_selector(".claim.now .mine")
    small = page.evaluate(
        "() => [...document.querySelectorAll('.review button')]"
        ".filter((one) => one.getBoundingClientRect().height < 24).length"
    )
    assert small == 0


def test_nobody_sees_answers_of_others_before_their_own(work: Studio) -> None:
    claim = work.bench.now().model.claims()[0]
    label, concept = str(claim.label), claim.concept
    page = work.open("#photos")
    tell(work.running.url, "api/decisions", {"by": "ben", "class": label, "concept": concept, "answer": "yes"})
    for name in (None, "ann", "ben"):  # nobody has said who looks; somebody else; ben
        if name:
            page.evaluate("(name) => localStorage.setItem('ccr-reviewer', name)", name)
        state = "confirmed" if name == "ben" else "open"
        page = work.open(f"#class?name={label}")
        expect(page.locator("tr", has_text=concept).first).to_contain_text(state)
        page = work.open(f"#review?class={label}")
        expect(page.locator(".review-bar b")).to_contain_text(f"{int(name == 'ben')} of")


@pytest.mark.parametrize("width", [390, 1360])
def test_the_switch_to_confirmed_claims_alone_is_in_reach(browser: Any, shared: Running, width: int) -> None:
    for studio in studio_of(browser, shared, width=width):
        page = studio.open("#review")
        switch = page.get_by_role("button", name="Refit, only confirmed")
        expect(switch).to_be_in_viewport()
        assert switch.bounding_box()["height"] >= 24


def test_enter_opens_the_concept_that_is_asked_about(work: Studio) -> None:
    page = opened(work)
    concept = work.bench.now().model.claims()[0].concept
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text(concept)


def test_a_dark_page_is_printed_as_ink_on_paper(browser: Any, shared: Running) -> None:
    for studio in studio_of(browser, shared, color_scheme="dark"):
        page = studio.open("#signature")
        paper = "getComputedStyle(document.body).backgroundColor"
        assert page.evaluate(paper) != "rgb(255, 255, 255)"
        for chosen in ("", "dark"):  # by the system, by hand
            page.evaluate("(theme) => { document.documentElement.dataset.theme = theme; }", chosen)
            page.emulate_media(media="print")
            assert page.evaluate(paper) == "rgb(255, 255, 255)"
            assert page.locator(".head button").first.is_hidden()
            page.emulate_media(media="screen")


def test_where_is_a_button_too_and_ends_with_its_claim(look: Studio) -> None:
    page = look.open("#review")
    page.wait_for_selector(".claim.now .mine .tile")
    where = page.locator("#where")
    where.click()
    expect(page.locator(".claim.now .mine canvas.over").first).to_be_attached()
    expect(where).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("j")
    expect(page.locator("#where")).to_have_attribute("aria-pressed", "false")
    page.wait_for_selector(".claim.now .mine .tile")
    page.keyboard.down("w")
    expect(page.locator(".claim.now .mine canvas.over").first).to_be_attached()
    page.keyboard.up("w")
    expect(page.locator("canvas.over")).to_have_count(0)


def test_the_signed_model_is_saved_from_its_table(work: Studio) -> None:
    page = opened(work)
    for claim in work.bench.now().model.claims():
        about = {"by": "ann", "class": str(claim.label), "concept": claim.concept, "answer": "yes"}
        page.evaluate(
            "(body) => fetch('api/decisions', {method: 'POST', body: JSON.stringify(body), "
            "headers: {'Content-Type': 'application/json'}})",
            about,
        )
    page.reload()
    page.get_by_role("button", name="Sign", exact=True).click()
    page.get_by_role("button", name="Save the signed model").click()
    page.get_by_label("Name").fill("signed")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator(".toast").last).to_contain_text("Saved in")
    assert ConceptModel.load(work.bench.models / "signed").is_signed


def test_an_answer_waits_for_nothing_and_redraws_only_what_it_changes(work: Studio) -> None:
    page = opened(work)
    second = page.locator(".review .claim").nth(1)
    page.evaluate(
        "() => document.querySelectorAll('.claim-rail a, .review .claim').forEach((one) => { one.old = true; })"
    )
    waiting: list[Any] = []
    page.route("**/api/decisions", lambda route: waiting.append(route))
    page.keyboard.press("y")
    expect(second).to_have_class("claim now")  # before the answer is in the log
    until(page, lambda: waiting)
    assert not (work.bench.folder / "decisions.jsonl").exists()
    waiting.pop().continue_()
    expect(page.locator(".review-bar b")).to_contain_text("1 of")
    new = page.evaluate(
        "() => ['.claim-rail a', '.review .claim'].map((what) => "
        "[...document.querySelectorAll(what)].filter((one) => !one.old).length)"
    )
    assert new == [1, 2]  # its class, and two claims: the answered one, and the one that is asked now
    asked = second.get_attribute("aria-label")
    page.keyboard.press("n")
    until(page, lambda: waiting)
    waiting.pop().fulfill(status=200, headers={"X-Refused": "422"}, json={"error": "the disk is full"})
    expect(page.locator(".toast").last).to_contain_text("The disk is full")
    expect(page.locator(".claim.now")).to_have_attribute("aria-label", asked)  # it is asked again
    page.unroute("**/api/decisions")
    expect(page.locator(".review-bar b")).to_contain_text("1 of")


def test_a_window_with_answers_on_their_way_asks_before_it_closes(work: Studio) -> None:
    page, asked, waiting = opened(work), list[str](), list[Any]()
    page.on("dialog", lambda box: (asked.append(box.type), box.dismiss()))
    page.route("**/api/decisions", lambda route: waiting.append(route))
    page.keyboard.press("y")
    until(page, lambda: waiting)
    page.close(run_before_unload=True)
    until(page, lambda: asked)
    assert asked == ["beforeunload"]
    work.problems.clear()  # this question was wanted
    waiting.pop().continue_()
    expect(page.locator(".review-bar b")).to_contain_text("1 of")
    with page.expect_event("close"):
        page.close(run_before_unload=True)


def test_an_undo_button_takes_back_its_own_answer(work: Studio) -> None:
    """Also where another answer was given since."""
    page = opened(work)
    page.keyboard.press("x")
    struck = page.locator(".toast", has_text="never a reason for any class")
    expect(struck).to_be_visible()
    page.keyboard.press("u")
    decisions = Decisions(work.bench.log)
    until(page, lambda: decisions.refresh() or len(decisions) == 2)
    struck.get_by_role("button", name="Undo").click()
    expect(page.locator(".toast").last).to_contain_text("Taken back: every class")
    decisions.refresh()
    assert [one.answer for one in decisions] == ["unclear"]


def test_what_one_of_two_reviewers_has_answered_is_not_asked_again(
    browser: Any, store: EmbeddingStore, model: ConceptModel, tmp_path: Path
) -> None:
    running = Running(make_bench(store, model, tmp_path, policy="two"))
    for studio in studio_of(browser, running):
        page = opened(studio)
        count = len(running.bench.now().model.claims())
        expect(page.get_by_text("Two reviewers must agree on a claim.")).to_be_visible()
        first = page.locator(".claim.now").get_attribute("aria-label")
        page.keyboard.press("y")
        expect(page.locator(".review .claim").first).to_contain_text("waits for others ann: yes")
        expect(page.get_by_role("button", name="only open")).to_contain_text(str(count - 1))
        page = studio.open("#review")
        page.wait_for_selector(".claim.now .mine")
        assert page.locator(".claim.now").get_attribute("aria-label") != first
        page.evaluate("() => localStorage.setItem('ccr-reviewer', 'ben')")
        page = studio.open("#review")
        expect(page.locator(".claim.now")).to_have_attribute("aria-label", first)
        page.keyboard.press("y")
        expect(page.locator(".review-bar b")).to_have_text(f"1 of {count} confirmed")
    running.close()


def test_answers_go_on_with_what_is_open_wherever_they_begin(work: Studio) -> None:
    claims = work.bench.now().model.claims()
    last = str(claims[-1].label)
    for claim in claims:
        if claim.label not in (claims[0].label, claims[-1].label) or claim is claims[1]:
            about = {"by": "ann", "class": str(claim.label), "concept": claim.concept, "answer": "yes"}
            tell(work.running.url, "api/decisions", about)
    opened(work)
    page = work.open(f"#review?class={quote(last)}")
    own = [claim for claim in claims if claim.label == claims[-1].label]
    for number, claim in enumerate([*own, claims[0], claims[2]]):
        expect(page.locator(".claim.now")).to_have_attribute("aria-label", f"{claim.label} shows {claim.concept}?")
        if number < len(own) + 1:
            page.keyboard.press("y")
    assert f"class={quote_plus(str(claims[0].label))}" in page.url


def test_a_refit_leads_to_the_first_class_with_something_to_judge(work: Studio) -> None:
    claims = work.bench.now().model.claims()
    for claim in claims[2:]:
        about = {"by": "ann", "class": str(claim.label), "concept": claim.concept}
        tell(work.running.url, "api/decisions", {**about, "answer": "no" if claim is claims[-1] else "yes"})
    opened(work)
    page = work.open(f"#review?class={quote(str(claims[-1].label))}")
    page.keyboard.press("r")
    expect(page.locator(".toast").last).to_contain_text("went")
    first = Review(work.bench.now().model, Decisions(work.bench.log)).open()[0]
    expect(page.locator(".class-name")).to_have_text(str(first.label))
    expect(page.locator(".claim.now")).to_have_attribute("aria-label", f"{first.label} shows {first.concept}?")


def test_concepts_next_in_line_are_ticked_with_their_photos_in_sight(work: Studio) -> None:
    page = opened(work)
    line = page.locator(".next-line").first
    line.locator("summary").click()
    expect(line.locator(".mine .tile")).to_have_count(6)
    expect(line.locator(".others .tile")).to_have_count(4)
    page.set_viewport_size({"width": 390, "height": 844})
    line = page.locator(".next-line").last
    yes, no = (line.get_by_role("button", name=name).bounding_box() for name in ("Yes, ", "No, "))
    assert yes["y"] == no["y"]


def test_the_bar_of_a_review_is_one_line(look: Studio) -> None:
    page = look.open("#review")
    page.set_viewport_size({"width": 1360, "height": 850})
    page.evaluate("""() => {
        document.querySelector('#review-refit').firstChild.data = 'Refit without 33 claims';
        [...document.querySelectorAll('.review-bar .ghost')].at(-1).textContent = 'reviewer: bernadette';
    }""")
    assert page.locator(".review-bar").bounding_box()["height"] < 72


def until(page: Any, holds: Any) -> None:
    for _ in range(200):
        if holds():
            return
        page.wait_for_timeout(50)
    raise AssertionError("the page asked for nothing")
