"""The review in a real browser: by keys and by mouse, from the first answer to the signature."""

from __future__ import annotations

import pytest

from tests.studio.browsing import Studio, expect

pytestmark = pytest.mark.browser


def opened(work: Studio) -> object:
    page = work.open("#photos")
    page.evaluate("() => localStorage.setItem('ccr-reviewer', 'ann')")
    page = work.open("#review")
    page.wait_for_selector("#mine")
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
    page.wait_for_selector("#mine")
    small = page.evaluate(
        "() => [...document.querySelectorAll('.review button')]"
        ".filter((one) => one.getBoundingClientRect().height < 24).length"
    )
    assert small == 0
