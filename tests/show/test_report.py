"""The report: whole, inert, true to the model, and readable in a real browser at laptop and phone widths."""

from __future__ import annotations

import re
from html import escape, unescape
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ccr import ConceptClassifier, ConceptModel, Concepts, HardThreshold
from ccr.controls import Stability, stability_sentence
from ccr.edit import EditSession
from ccr.errors import CCRError
from ccr.geometry import unit_rows
from ccr.show.pictures import Pictures
from ccr.show.report import gallery_rows, report_page
from tests.show import browser
from tests.show.test_pages import Reader

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a \"quoted\" 'name' & more",
    "\u05d0\u05d1 right to left \u05d0\u05d1\u05d2",
    "🍎 emoji",
    "x" * 200,
    "$5 note_1^2",
    "</style></details></body>",
]


class Rows(np.ndarray):
    """Embeddings with labels, paths and images, as a store has them."""

    y: np.ndarray = np.zeros(0)
    broken: bool = False

    @property
    def paths(self) -> list[str]:
        return [f"<b>{row}</b>.png" for row in range(len(self))]

    def image(self, row: int) -> Image.Image:
        if self.broken:
            raise CCRError("the images <moved> away")
        return Image.new("RGB", (40 + row % 20, 30), (row % 255, 80, 160))


def rows_of(classes: int, n: int, *, each: int = 12, d: int = 24, seed: int = 0) -> tuple[Rows, Concepts]:
    """Noisy images of `classes` classes and `n` concepts; names of both are hostile as far as they reach."""
    rng = np.random.default_rng(seed)
    names = [*HOSTILE, *(f"concept {number}" for number in range(n))][:n]
    labels = [*HOSTILE, *(f"class {number}" for number in range(classes))][:classes]
    centers, y = rng.normal(size=(classes, d)), np.repeat(np.arange(classes), each)
    X = np.asarray(centers[y] + 1.2 * rng.normal(size=(len(y), d)), np.float32).view(Rows)
    X.y = np.array(labels)[y]
    return X, Concepts(names, unit_rows(rng.normal(size=(n, d))))


def fitted(X: Rows, concepts: Concepts, *, radius: float = 0.2) -> ConceptModel:
    options = {"coder": HardThreshold(length=6), "max_iter": 3, "validation_fraction": 0.0, "random_state": 0}
    return ConceptClassifier(concepts, radius=radius, **options).fit(np.asarray(X), X.y).model_


@pytest.fixture(scope="module")
def rows() -> Rows:
    return rows_of(len(HOSTILE), 20)[0]


@pytest.fixture(scope="module")
def html(rows: Rows) -> str:
    """Everything at once: hostile names, baseline, probe, mistakes first, edits."""
    concepts = rows_of(len(HOSTILE), 20)[1]
    model = fitted(rows, concepts)
    edited = EditSession(model).scale(HOSTILE[0], 0.5).rename("concept 3", '<i onclick="x">').model()
    return report_page(
        edited,
        rows,
        baseline=fitted(rows, concepts, radius=0.0),
        probe=0.5,
        mistakes_first=True,
        images=9,
        title=HOSTILE[0],
        notes=[HOSTILE[1]],
        facts=[("store", HOSTILE[2])],
    )


def test_the_page_is_whole_and_inert(html: str) -> None:
    reader = Reader()
    reader.feed(html)
    assert not {"script", "iframe", "link", "object", "i", "b"} & set(reader.tags)
    assert reader.tags.count("body") == 1
    assert html.count("</body>") == 1
    assert not re.search(r'(src|href)="(?!data:image/(jpeg|png);base64,|#)', html)
    assert not re.search(r"<[^>]*\son\w+=", re.sub(r'(title|alt)="[^"]*"', "", html))
    text = "".join(reader.text)
    for name in HOSTILE:
        assert " ".join(name.split()) in " ".join(text.split())


def test_every_section_is_there_and_every_link_leads_somewhere(html: str) -> None:
    for title in ("Numbers", "Predictions", "Classes", "Concepts", "Fidelity", "Edits", "Settings"):
        assert f">{title}</h2>" in html
    ids = set(re.findall(r' id="([^"]+)"', html))
    links = set(re.findall(r'href="#([^"]+)"', html))
    assert links <= ids
    assert {f"class-{number}" for number in range(len(HOSTILE))} <= links
    assert "baseline (radius 0)" in html
    assert "linear probe" in html


def test_a_baseline_without_a_class_of_the_images_is_refused_by_its_name(rows: Rows) -> None:
    concepts = rows_of(len(HOSTILE), 20)[1]
    few = np.asarray(rows)[rows.y != rows.y[0]].view(Rows)
    few.y = rows.y[rows.y != rows.y[0]]
    with pytest.raises(CCRError, match=r"the baseline must know every class.*" + re.escape(repr(str(rows.y[0])))):
        report_page(fitted(rows, concepts), rows, baseline=fitted(few, concepts))


def test_one_image_has_no_fidelity_and_the_page_says_none(rows: Rows) -> None:
    one = np.asarray(rows)[:1].view(Rows)
    one.y = rows.y[:1]
    page = report_page(fitted(rows, rows_of(len(HOSTILE), 20)[1]), one, images=1)
    reader = Reader()
    reader.feed(page)
    assert "nan" not in "".join(reader.text).lower().split()
    assert "Mean fidelity" not in page


def test_the_headline_is_what_the_model_measures(rows: Rows) -> None:
    model = fitted(rows, rows_of(len(HOSTILE), 20)[1])
    page = report_page(model, rows, images=4)
    found = model.evaluate(rows)
    assert f"{found.accuracy:.1%}" in page
    assert "baseline" not in page
    audited = model.audit(rows)
    assert f"Mean fidelity {audited.fidelity.mean:.2f}, lowest {audited.fidelity.min:.2f}" in page
    for cell in (f"{found.in_play:.1f}", f"{found.weights_per_class:.1f}", f"{found.fidelity.min:.2f}"):
        assert f">{cell}</td>" in page
    first = audited.concepts[0]
    gained = "1 image" if first.gained == 1 else f"{first.gained:,} images"
    assert f"{gained} gained, {first.lost:,} lost" in page
    assert audited.footnote in unescape(page)
    first = model.explain(
        rows[int(gallery_rows(rows.y, np.ones(len(rows), bool), np.ones(len(rows)), count=4, mistakes=False)[0])]
    )
    for term in first.contributions[:8]:
        assert f"{term.contribution:+.2f}" in page
    assert page == report_page(model, rows, images=4), "the same page twice"


def test_stability_stands_with_the_numbers(rows: Rows) -> None:
    model = fitted(rows, rows_of(len(HOSTILE), 20)[1])
    found = Stability(5, len(rows), 0.47, 0.57, 0.82, 0.47)
    page = unescape(report_page(model, rows, images=0, stability=found))
    assert page.index('id="numbers"') < page.index(stability_sentence(found)) < page.index('id="gallery"')


def test_missing_images_leave_a_word_in_their_place(rows: Rows) -> None:
    model = fitted(rows, rows_of(len(HOSTILE), 20)[1])
    moved = rows.copy()
    moved.y, moved.broken = rows.y, True
    page = report_page(model, moved, images=3)
    assert "no image: &lt;b&gt;" in page
    assert "could not be read; the first: the images &lt;moved&gt; away" in page
    assert "data:image/jpeg" not in page


def test_mistakes_come_first_one_of_every_class_in_turn() -> None:
    truth = np.array(["a", "a", "a", "b", "b", "c"])
    right = np.array([False, False, True, False, True, True])
    sure = np.array([0.5, 0.9, 0.8, 0.6, 0.7, 0.4])
    assert gallery_rows(truth, right, sure, count=3, mistakes=True) == [1, 3, 0]
    assert gallery_rows(truth, right, sure, count=2, mistakes=True) == [1, 3]
    assert sorted(gallery_rows(truth, right, sure, count=99, mistakes=True)) == list(range(6))
    assert gallery_rows(truth, right, sure, count=3, mistakes=False) == [1, 3, 5]
    assert gallery_rows(truth, right, sure, count=0, mistakes=False) == []


def test_many_classes_stay_small() -> None:
    rows, concepts = rows_of(300, 60, each=3)
    page = report_page(fitted(rows, concepts), rows, images=6)
    assert len(page.encode()) < 8e6
    assert page.count('<details class="class">') == 300
    assert "The 60 hardest of 300 classes have images" in page


def test_a_class_without_images_is_left_out(rows: Rows) -> None:
    model = fitted(rows, rows_of(len(HOSTILE), 20)[1])
    few = rows[:24]
    few.y = rows.y[:24]
    assert report_page(model, few, images=2).count('<details class="class" open>') == 2


def test_pictures_are_read_once(rows: Rows) -> None:
    pictures = Pictures(rows)
    assert pictures.of(3) is pictures.of(3)
    assert pictures.missing == 0
    assert pictures.strip([]) == ""


@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_shows_it_without_overflow(html: str, tmp_path: Path, width: int) -> None:
    browser.chromium()
    found = browser.measure(html, tmp_path, width)
    assert found["window"] == width
    assert found["width"] <= width, f"the page is {found['width']} wide in a window of {width}"
    assert found["scripts"] == 0
    assert found["handlers"] == 0
    assert found["broken"] == 0
    assert found["images"] > 20
    file = tmp_path / "report.html"
    file.write_text(html, encoding="utf-8")
    assert browser.screenshot(file, tmp_path / f"{width}.png", width).startswith(b"\x89PNG")
    with Image.open(tmp_path / f"{width}.png") as picture:
        assert picture.size[0] == width
        assert len(picture.convert("RGB").getcolors(1 << 24) or []) > 50, "the page is blank"


def test_cards_name_no_folders_of_this_machine(rows: Rows) -> None:
    class Elsewhere(Rows):
        @property
        def paths(self) -> list[str]:
            return ["/home/me/photos/pear/1.jpg", r"C:\photos\pear\2.jpg", "3.jpg", "/4.jpg", None][: len(self)]

    pictures = Pictures(np.zeros((5, 2), np.float32).view(Elsewhere))
    assert [pictures.name(row) for row in range(5)] == ["pear/1.jpg", "pear/2.jpg", "3.jpg", "4.jpg", "row 4"]


def test_every_concept_has_its_photos(rows: Rows) -> None:
    model = fitted(rows, rows_of(len(HOSTILE), 20)[1])
    shown = report_page(model, rows, images=1)
    codes = model.encode(rows).toarray()
    for column, name in enumerate(model.names):
        own = np.sort(codes[:, column][codes[:, column] > 0])
        if not len(own):
            continue
        start = shown.index(f"<h4><bdi>{escape(name)}</bdi> <span")
        card = shown[start : shown.index("</section>", start)]
        assert re.findall(r"shows it most, ([\d.]+)", card) == [f"{code:.2f}" for code in own[::-1][:3]]
        edge = own[: max(0, min(3, len(own) - 3))]
        assert re.findall(r"borderline, ([\d.]+)", card) == [f"{code:.2f}" for code in edge[::-1]]


def test_not_is_explained_only_where_it_stands(rows: Rows) -> None:
    concepts = rows_of(len(HOSTILE), 20)[1]
    for sign in ("positive", "both"):
        coder = HardThreshold(length=6, sign=sign)
        options = {"coder": coder, "max_iter": 3, "validation_fraction": 0.0, "random_state": 0, "radius": 0.2}
        model = ConceptClassifier(concepts, **options).fit(np.asarray(rows), rows.y)
        assert ("marks a concept that counts by being far" in report_page(model, rows, images=4)) == (sign == "both")
