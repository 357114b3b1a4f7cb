"""Defects that a walk through the studio in a browser found: each of these was wrong once."""

from __future__ import annotations

from typing import Any

import pytest

from ccr_studio.serving import opening_page
from tests.studio.browsing import Studio, expect

pytestmark = pytest.mark.browser


def test_marks_survive_a_look_at_a_photo_and_a_reload(work: Studio) -> None:
    page = work.open("#concept?name=word+0")
    page.locator("#most [data-vote=yes]").first.click()
    page.locator("#borderline [data-vote=no]").first.click()
    page.locator("#most .tile a").first.click()
    page.wait_for_selector(".photo")
    page.go_back()
    expect(page.locator(".lesson")).to_contain_text("1 photo shows it, 1 does not")
    page.reload()
    expect(page.locator("#most [data-vote=yes]").first).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".lesson")).to_contain_text("1 photo shows it, 1 does not")


def test_a_lesson_tells_its_error_and_its_photos(work: Studio) -> None:
    page = work.open("#concept?name=word+0")
    for at in range(2):
        page.locator("#most [data-vote=yes]").nth(at).click()
        page.locator("#borderline [data-vote=no]").nth(at).click()
    page.get_by_role("button", name="Teach it").click()
    expect(page.locator(".toast")).to_contain_text("of its 4 photos fell on the wrong side")
    expect(page.locator("#lesson")).to_contain_text("Taught by 2 photos that show it and 2 that do not")
    expect(page.locator("#lesson .tile")).to_have_count(4)


def test_the_doubt_about_the_opened_model_stays_beside_its_accuracy(work: Studio) -> None:
    page = work.open("#bench")
    expect(page.locator("#doubt")).to_contain_text("may have been trained on these photos")
    expect(page.locator(".score")).to_contain_text("seen in training?")
    page.locator("#refit").click()
    expect(page.locator(".steps .now")).to_contain_text("refitted")
    expect(page.locator("#doubt")).to_contain_text("fitted on the training photos alone")
    page.get_by_label("Compare with").select_option("opened")
    expect(page.locator("#doubt")).to_contain_text("The difference says little")
    page = work.open("#compare")
    expect(page.get_by_label("Model to compare with")).to_have_value("honest")
    expect(page.locator("#doubt")).to_contain_text("Most of these photos were trained on")
    page.get_by_label("Model to compare with").select_option("0")
    expect(page.locator("#doubt")).to_contain_text("The difference says little")


def test_an_old_undo_button_leaves_the_steps_of_others_alone(work: Studio) -> None:
    page, bench = work.open("#concept?name=word+0"), work.bench
    page.get_by_role("button", name="Pin", exact=True).click()
    expect(page.get_by_text("is pinned to its words")).to_be_visible()
    other = bench.edit("suppress", {"concept": "word 1"}).version
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.get_by_text("another step was taken meanwhile", exact=False)).to_be_visible()
    assert bench.now().version == other


def test_back_finds_the_place_on_the_wall(look: Studio) -> None:
    page = look.open("#photos")
    page.wait_for_selector(".tile a")
    page.evaluate("window.scrollTo(0, 500)")
    page.wait_for_function("() => Object.values(sessionStorage).includes('500')")
    page.locator(".tile a").nth(20).click()
    page.wait_for_selector(".photo")
    page.go_back()
    page.wait_for_function("() => window.scrollY === 500")


def test_the_map_and_the_sliders_are_found_again(look: Studio) -> None:
    page = look.open("#map")
    page.get_by_label("Closer").click()
    page.wait_for_function("() => history.state?.map?.zoom > 1.3")
    page.reload()
    page.get_by_label("Farther").click()
    page.wait_for_function("() => Math.abs(history.state?.map?.zoom - 1) < 0.01")
    page = look.open("#bench")
    page.locator("#fidelity").press("ArrowLeft")
    moved = page.locator("#fidelity").input_value()
    page.reload()
    expect(page.locator("#fidelity")).to_have_value(moved)


def test_the_map_is_as_near_after_back_as_it_was(look: Studio) -> None:
    page = look.open("#map")
    expect(page.get_by_role("button", name="apple")).to_be_visible()
    canvas = page.locator(".map canvas")
    canvas.focus()
    for key in ("+", "+", "ArrowLeft", "ArrowUp"):
        page.keyboard.press(key)
    page.wait_for_timeout(100)
    # A photo, wherever one is: closer once more and at once to its page, before anything had time to be noted.
    page.keyboard.press("+")
    found = page.evaluate(
        """async () => {
          const canvas = document.querySelector('.map canvas'), place = canvas.getBoundingClientRect();
          for (let y = 40; y < place.height; y += 6)
            for (let x = 20; x < place.width - 80; x += 6) {
              const at = { clientX: place.left + x, clientY: place.top + y, bubbles: true, pointerId: 1 };
              canvas.setPointerCapture = () => {};
              canvas.dispatchEvent(new PointerEvent('pointerdown', at));
              canvas.dispatchEvent(new PointerEvent('pointerup', at));
              if (location.hash.startsWith('#photo?')) return true;
            }
          return false;
        }"""
    )
    assert found
    page.wait_for_selector(".photo")
    page.go_back()
    expect(page.get_by_role("button", name="apple")).to_be_visible()
    near = page.evaluate("history.state.map")
    assert near["zoom"] == pytest.approx(1.4**3)
    assert near["middle"] != [0.5, 0.5]
    page.get_by_label("Closer").click()  # goes on from there
    page.wait_for_function("() => history.state.map.zoom > 3.8")


def test_compare_opens_with_no_step_that_was_undone(work: Studio) -> None:
    work.bench.edit("suppress", {"concept": "word 1"})
    work.bench.undo()
    page = work.open("#compare")
    expect(page.get_by_label("Model to compare with")).to_have_value("0")


@pytest.mark.parametrize(
    "view",
    [
        "#photo?id=3",
        "#mistakes?scope=shown&truth=apple&predicted=apple",
        "#mistakes?scope=shown",
        "#concepts",
        "#concept?name=word+0",
        "#bench",
        "#compare?group=both",
        "#review",
        "#class?name=apple",
    ],
)
def test_class_names_are_links_wherever_they_stand_alone(look: Studio, view: str) -> None:
    page = look.open(view)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(250)
    bare = page.evaluate(
        """(names) => {
          const walk = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT), found = [];
          while (walk.nextNode()) {
            const { parentElement: place, data } = walk.currentNode;
            // A photo leads to its page, and a column of the matrix is named like its row; buttons do something else.
            if (names.includes(data.trim()) && !place.closest("a, button, option, .tile, th[scope=col], h1"))
              found.push(place.parentElement.outerHTML.slice(0, 200));
          }
          return found;
        }""",
        [name for name in look.bench.now().classes if name.isalpha()],
    )
    assert bare == []


@pytest.mark.parametrize("folds", ["possible", "computing"])
def test_the_header_does_not_boast_until_honest_predictions_are_made(look: Studio, folds: str) -> None:
    import json

    def computing(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**json.loads(answer.text()), "folds": folds})

    look.page.route("**/api/state*", computing)
    page = look.open("#photos")
    expect(page.locator(".score")).to_have_text("out of fold…")
    expect(page.locator(".head")).to_contain_text("The model's own predictions, until five refits")
    page.unroute("**/api/state*")
    page = look.open("#photos")
    page.set_viewport_size({"width": 390, "height": 844})
    expect(page.get_by_text("seen in training?")).to_be_visible()


def test_the_skip_link_leads_past_the_filters_and_rings_are_whole(look: Studio) -> None:
    page = look.open("#photos")
    page.wait_for_selector(".tile a")
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('.tile') !== null")
    offset = page.evaluate("parseFloat(getComputedStyle(document.activeElement).outlineOffset)")
    assert offset < 0  # inside: what is outside of a tile is not painted
    page.locator("main").focus()
    assert page.evaluate("getComputedStyle(document.querySelector('main')).outlineStyle") == "none"


def test_the_verdict_is_in_sight_on_a_phone(look: Studio) -> None:
    page = look.open("#photo?id=5")
    page.set_viewport_size({"width": 390, "height": 844})
    box = page.locator(".verdict").bounding_box()
    assert box["y"] + box["height"] < 400


def test_refusals_leave_the_console_empty(look: Studio) -> None:
    page = look.open("#concept?name=nothing+of+the+kind")
    expect(page.locator(".empty")).to_be_visible()  # the fixture looks at the console


def test_a_page_on_the_disk_brings_the_token(browser: Any, work: Studio) -> None:
    from dataclasses import replace
    from threading import Thread

    from ccr_studio.service.guards import access_for
    from ccr_studio.service.runner import listen, server_of, url_of
    from ccr_studio.serving import LIMITS, NOBODY, POLICY, studio_app

    token = "a-token-of-some-length"
    access = replace(access_for("127.0.0.1", token, policy=POLICY + NOBODY), asks=True)
    listening = listen("127.0.0.1", 0)
    server = server_of(studio_app(work.bench, access=access), LIMITS, farewell=2)
    Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True).start()
    context = browser.new_context()
    page = context.new_page()
    with opening_page(url_of(listening) + "/", token) as path:
        page.goto(path.as_uri())
        page.wait_for_selector("main h1")
    assert token not in page.url
    context.close()
    fresh = browser.new_context().new_page()
    fresh.goto(url_of(listening) + "/")
    fresh.get_by_label("Token").fill(token)
    fresh.get_by_role("button", name="Open").click()
    fresh.wait_for_selector("main h1")
    fresh.context.close()
    server.should_exit = True
