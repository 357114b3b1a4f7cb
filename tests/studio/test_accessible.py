"""Keyboard, screen readers, contrast and widths: every view as the browser itself computes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ccr_studio.serving import Running
from tests.studio.browsing import Studio, expect, studio_of

pytestmark = pytest.mark.browser

VIEWS = [
    "#photos",
    "#photos?right=wrong&concept=word+0&above=0.1&sort=concept&by=word+0&descending=true",
    "#photo?id=3",
    "#mistakes?scope=shown",
    "#map",
    "#concepts",
    "#concept?name=word+0",
    "#bench?words=warm+light",
    "#compare",
    "#review",
    "#review?by=concept",
    "#class?name=apple",
    "#signature",
    "#photos?low=1&high=1",
    "#concept?name=nobody",
]
#: Roles that something must be said of.
ROLES = {"button", "link", "checkbox", "combobox", "slider", "textbox", "searchbox", "spinbutton", "listbox", "group"}
ROLES |= {"image", "img", "table", "navigation", "complementary", "dialog", "option", "heading", "DisclosureTriangle"}
CHECKS = (
    Path(__file__).with_name("accessible.js").read_text(encoding="utf-8").partition("\n")[2].strip().removesuffix(";")
)


def found(page: Any, what: str) -> Any:
    """What accessible.js finds on a page."""
    return page.evaluate(f"{CHECKS}.{what}()")


def shown(studio: Studio, view: str) -> Any:
    page = studio.open(view)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(250)
    return page


def nameless(page: Any) -> list[str]:
    """Things that a screen reader could not name, by the browser's own tree of what is there."""
    session, without = page.context.new_cdp_session(page), []
    for node in session.send("Accessibility.getFullAXTree")["nodes"]:
        role, name = (node.get(part, {}).get("value", "") for part in ("role", "name"))
        if node.get("ignored") or role not in ROLES or name.strip():
            continue
        element = session.send("DOM.describeNode", {"backendNodeId": node["backendDOMNodeId"]})["node"]
        if element["nodeName"] != "DETAILS":  # its summary names it
            without.append(f"{role}: {element['nodeName']} {element['attributes']}")
    return without


@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1024, "light"), (1920, "dark")])
def test_every_view_fits_its_controls_have_names_and_its_texts_and_edges_stand_out(
    browser: Any, shared: Running, width: int, theme: str
) -> None:
    for studio in studio_of(browser, shared, width=width, refused=True, color_scheme=theme):
        for view in VIEWS:
            page = shown(studio, view)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (view, width)
            assert nameless(page) == [], view
            assert found(page, "faint") == [], (view, theme)
            assert found(page, "small") == [], (view, width)
            assert page.locator("h1").count() == 1, view
            assert page.title()
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(255, 255, 255)") == (theme == "light")


@pytest.mark.parametrize("view", VIEWS)
def test_tab_reaches_every_control_and_shows_where_it_is(browser: Any, shared: Running, view: str) -> None:
    for studio in studio_of(browser, shared, refused=True):
        page = shown(studio, view)
        stops, reached = set(found(page, "stops")), set()
        assert len(stops) > 8, view  # the navigation alone has more
        for _ in range(len(stops) + 400):  # a wall grows while it is walked
            page.keyboard.press("Tab")
            at = found(page, "focus")
            if at is None or at["place"] in reached:
                break
            assert at["seen"], f"{view}: nothing shows that the focus is on {at['what']}"
            reached.add(at["place"])
        assert stops <= reached, (view, sorted(stops - reached)[:5])


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_a_theme_chosen_by_hand_stands_out_too(browser: Any, shared: Running, theme: str) -> None:
    """Against the system's; one view of each kind: a wall, a photo, a table, a form."""
    system = {"light": "dark", "dark": "light"}[theme]
    for studio in studio_of(browser, shared, refused=True, color_scheme=system):
        studio.open("#photos").get_by_label("Switch between light and dark").click()
        for view in ("#photos", "#photo?id=3", "#concepts", "#bench?words=warm+light"):
            page = shown(studio, view)
            assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == theme
            assert found(page, "faint") == [], (view, theme)


def test_dialogs_and_notices_are_named_and_stand_out(work: Studio) -> None:
    page = work.open("#concept?name=word+0")
    page.get_by_role("button", name="Rename").click()
    expect(page.get_by_role("dialog", name="Rename the concept")).to_be_visible()
    assert page.evaluate("document.activeElement.id") == "ask-input"
    assert nameless(page) == []
    assert found(page, "faint") == []
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="Rename")).to_be_focused()
    page.get_by_role("button", name="Pin", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="is pinned to its words")).to_be_visible()
    assert found(page, "faint") == []


def test_colour_is_never_the_only_sign(look: Studio) -> None:
    """Right and wrong differ in words and shape, for and against in sign and pattern, before and after in shape."""
    page, seen = shown(look, "#photos"), look.bench.now()
    right, wrong = page.locator(".badge:not(.bad)").first, page.locator(".badge.bad").first
    assert right.locator("path").get_attribute("d") != wrong.locator("path").get_attribute("d")
    for row in page.locator(".tile").evaluate_all("(all) => all.map((one) => Number(one.dataset.row))")[:12]:
        label = page.locator(f'.tile[data-row="{row}"] a').get_attribute("aria-label")
        assert (", right" in label) == bool(seen.right[row])
        assert (", wrong" in label) != bool(seen.right[row])
    page, signs = shown(look, "#photo?id=3"), set()
    for term in page.locator(".term").all():
        against = "down" in term.locator(".mark").get_attribute("class")
        signs.add(against)
        assert term.locator(".sum").text_content().startswith("\u2212" if against else "+")
        drawn = term.locator(".mark").evaluate("(one) => getComputedStyle(one).backgroundImage")
        assert ("repeating-linear-gradient" in drawn) == against
    assert signs == {True, False}
    page = shown(look, "#bench")
    shapes = {
        kind: page.locator(f".dot.{kind}").first.evaluate("(one) => getComputedStyle(one).borderRadius")
        for kind in ("before", "after")
    }
    assert shapes["before"] != shapes["after"]


def test_a_new_view_is_told_and_the_keyboard_goes_on_in_it(look: Studio) -> None:
    page = look.open("#photos")
    page.get_by_role("link", name="Mistakes").focus()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("mistake")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")
    page.keyboard.press("Home")
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
