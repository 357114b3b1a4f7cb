"""RESULTS.md keeps what was measured on other CPUs; shares of a judge's verdicts are counted as the page says."""

from __future__ import annotations

from pathlib import Path

from benchmarks.concept_lists import judged_table
from benchmarks.results import sections, with_section, write
from benchmarks.steps import Shape, _measure


def test_a_run_replaces_its_own_table_and_leaves_the_others(tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    write(page, "# Benchmarks\n\nfirst words", "B", "| old |")
    write(page, "# Benchmarks\n\nwords", "A", "| a |\n\n# not a section\n")
    write(page, "# Benchmarks\n\nwords", "B", "| new |")
    text = page.read_text()
    assert text == "# Benchmarks\n\nwords\n\n## A\n\n| a |\n\n# not a section\n\n## B\n\n| new |\n"
    assert sections(text) == {"A": "| a |\n\n# not a section", "B": "| new |"}


def test_the_page_of_this_project_is_read_back_as_it_is() -> None:
    page = Path(__file__).parents[1] / "benchmarks" / "RESULTS.md"
    text = page.read_text(encoding="utf-8")
    introduction = text[: text.index("\n## ")]
    for cpu, section in sections(text).items():
        assert section.count("|---") >= 1
        assert with_section(text, introduction, cpu, section) == text


def test_steps_are_timed_by_every_tier_with_few_weights_too() -> None:
    """On a shape that takes no time: what is measured is not looked at, only that all of it can be."""
    lines = _measure(Shape("tiny", 600, 40, 6, 5, 512, 64, 1, 0.0, 9.0, 0.0))
    assert {"plain dense loop", "bare X D^T"} <= {line.other.split(":")[0].split(",")[0] for line in lines}
    assert any(line.ours.startswith("five weights per class") for line in lines)


def test_a_judges_verdicts_are_counted_by_world_and_concept() -> None:
    said = [
        ("0", "hats", "brim", "fez"),
        ("1", "hats", "brim", "cap"),
        ("2", "hats", "red", ""),
        ("3", "cups", "x", "y"),
    ]
    statements = [dict(zip(("id", "world", "concept", "class"), row, strict=True)) for row in said]
    judged = [("0", "yes", "no"), ("1", "Yes ", "some"), ("2", "no", "")]
    verdicts = [dict(zip(("id", "plausible", "true"), row, strict=True)) for row in judged]
    assert judged_table(statements, verdicts)[2:] == [
        "| hats | 2 | 50 | 2 | 0 | 50 | 0 |",
        "| cups | 1 |  | 1 |  |  | 2 |",
        "| all | 3 | 50 | 3 | 0 | 50 | 2 |",
    ]
