"""docs/evaluation.md: every stream of the evaluation has its section there, and a run replaces no more than that."""

from pathlib import Path

import pytest

from benchmarks import evaluation_page
from benchmarks.evaluation import traces
from benchmarks.evaluation_quality import STREAMS, lines_of, measured, runs
from tests.simulator.test_quality_rows import a_row

PAGE = "# Title\n\n<!-- one: written by make bench-evaluation -->\nold\n<!-- end of one -->\n\nThe end.\n"


def test_the_page_has_a_section_for_each_stream_and_for_each_of_the_quick_form() -> None:
    text = evaluation_page.PAGE.read_text()
    sections = [stream.name for stream in STREAMS] + [f"{stream.name} (quick)" for stream in STREAMS if stream.quick]
    for section in sections:
        start, end = evaluation_page.markers(section)
        assert text.count(start) == text.count(end) == 1 and text.index(start) < text.index(end), section
    assert text.count("written by make bench-evaluation -->") == len(sections)


def test_a_run_replaces_its_section_alone_and_twice_is_as_once(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    default = next(runs(False))
    of_run = measured([a_row(1, 3600.0, 3600.0), a_row(4, 7200.0, 3600.0), a_row(4, 36000.0, 3600.0)], 1.0)
    for _ in range(2):
        evaluation_page.write("one", "Two jobs", lines_of([default], {default.name: of_run}), page)
    text = page.read_text()
    assert text.startswith("# Title\n") and text.endswith("<!-- end of one -->\n\nThe end.\n") and "old" not in text
    assert "| default | hierarchical | 4.333 |" in text and "| 1.00 (1.00) | 6.00 (6.00) |" in text


def test_without_a_folder_of_traces_the_evaluation_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package of this name in the working folder was taken for the published traces."""
    monkeypatch.chdir(evaluation_page.PAGE.parents[1])
    monkeypatch.delenv("GAVEL_DATA", raising=False)
    assert traces() is None


def test_a_section_that_is_not_there_is_an_answer(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    with pytest.raises(ValueError, match=r"page\.md has no section 'two': add the lines"):
        evaluation_page.write("two", "Two", [["a"]], page)


def test_a_row_alone_takes_its_place_in_the_table_and_leaves_the_others(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    heads, order = ["", "run", "mean h"], ["one", "two", "three"]
    evaluation_page.write("one", "Three rows", [heads, ["default", "one", "4"], ["policy", "three", "6"]], page)
    for mean in ("5", "7"):
        evaluation_page.merge("one", [heads, ["policy", "two", mean]], order, page)
    rows = "| default | one | 4 |\n| policy | two | 7 |\n| policy | three | 6 |\n"
    assert f"Three rows:\n\n|  | run | mean h |\n| --- | --- | --- |\n{rows}" in page.read_text()
    assert page.read_text().endswith("<!-- end of one -->\n\nThe end.\n")
    with pytest.raises(ValueError, match="has other columns"):
        evaluation_page.merge("one", [["", "run", "p50 h"], ["policy", "two", "1"]], order, page)
