"""The report of `gavel simulate`, opened in a real Chromium at two widths, on a light page and on a dark one."""

import json
import re
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from typer.testing import CliRunner

from gavel.cli import app
from gavel.simulator.charts import COLOURS
from tests.conftest import IS_FULL
from tests.dashboard.conftest import CHROMIUM, FLAGS

POLICIES = ("hierarchical", "fifo", "max_total_relative_speed?ageing=attained_service")
REPRS = re.compile(r"np\.float64\(|\[?\{'|\['|\('|<\w+ object|\bnan\b|\bNone\b|\bTrue\b|\bFalse\b|PosixPath")
WIDTHS = (1280, 390)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One with gangs, tiers, deadlines and a skipped job; and one with next to nothing."""
    folder = tmp_path_factory.mktemp("reports")
    rows = [f"{60 * i},{400 + 170 * (i % 5)},{1 + i % 2},{90 * i + 5000 if i % 3 else ''}" for i in range(40)]
    rows.append("3000,100,9,")
    (folder / "jobs.csv").write_text("\n".join(("submit_time_s,duration_s,num_gpus,deadline_s", *rows)))
    (folder / "one.csv").write_text("submit_time_s,duration_s,num_gpus\n0,100,1\n")
    options = [option for policy in POLICIES for option in ("--policy", policy)]
    options += ["--tier-shares", "gold=1,free=3", "--tier", "gold=2", "--lenient", "--switch-cost-s", "5"]
    paths = {}
    for name, more in (("jobs", options), ("one", [])):
        arguments = ["simulate", "--trace", str(folder / f"{name}.csv"), "--cluster", "a100:2,p4:2,t4:4"]
        result = CliRunner().invoke(app, [*arguments, "--out", str(folder / name), *more])
        assert result.exit_code == 0, result.output
        paths[name] = folder / name / "report.html"
    return paths


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield opened
        opened.close()


SHOWN = [("jobs", width) for width in WIDTHS]
SHOWN += [("one", width) for width in WIDTHS] if IS_FULL else []


@pytest.fixture(params=SHOWN, ids=str)
def page(request: pytest.FixtureRequest, reports: dict[str, Path], browser: Browser) -> Iterator[Page]:
    name, width = request.param
    opened = browser.new_page(viewport={"width": width, "height": 900})
    opened.goto(reports[name].as_uri())
    yield opened
    opened.close()


CUT = """() => {
  const cut = [];
  for (const element of document.querySelectorAll("h1,h2,p,dt,dd,th,td,figcaption,.legend span")) {
    if (element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).display !== "inline")
      cut.push(element.textContent);
  }
  for (const text of document.querySelectorAll("svg text")) {
    const inner = text.getBoundingClientRect(), outer = text.ownerSVGElement.getBoundingClientRect();
    if (inner.left < outer.left - 1 || inner.right > outer.right + 1 || inner.top < outer.top - 1
        || inner.bottom > outer.bottom + 1) cut.push(text.textContent);
  }
  if (document.documentElement.scrollWidth > innerWidth) cut.push("the page is wider than the screen");
  return cut;
}"""


@pytest.mark.full
def test_no_text_is_cut(page: Page) -> None:
    assert page.evaluate(CUT) == []


@pytest.mark.full
def test_nothing_is_written_as_python_has_it(page: Page) -> None:
    assert REPRS.search(page.inner_text("body")) is None


@pytest.mark.full
def test_every_table_has_rows_and_every_plot_a_line(page: Page) -> None:
    assert page.locator("table").count() >= 2 and page.locator("figure").count() >= 4
    for table in page.locator("table").all():
        rows = table.locator("tr").all()
        assert len(rows) > 1 and len({row.locator("th,td").count() for row in rows}) == 1
        assert all(cell.inner_text().strip() for cell in table.locator("tr:first-child th, tbody th").all())
    for figure in page.locator("figure").all():
        assert figure.locator("polyline").count() == figure.locator(".legend li").count() > 0


@pytest.mark.full
def test_legends_name_each_line_beside_the_curves(page: Page) -> None:
    for figure in page.locator("figure").all():
        plot, legend = figure.locator("> svg").bounding_box(), figure.locator(".legend").bounding_box()
        assert plot and legend
        is_right = legend["x"] >= plot["x"] + plot["width"] - 1
        is_below = legend["y"] >= plot["y"] + plot["height"] - 1
        assert is_right if page.viewport_size == {"width": WIDTHS[0], "height": 900} else is_right or is_below
        names = [each.inner_text() for each in figure.locator(".legend span").all()]
        assert len(set(names)) == len(names) and all(names)


STROKES = "all => all.map(each => getComputedStyle(each).stroke)"


@pytest.mark.full
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_policies_types_and_tiers_have_different_colours(
    scheme: str, reports: dict[str, Path], browser: Browser
) -> None:
    page = browser.new_page(color_scheme="dark" if scheme == "dark" else "light")
    page.goto(reports["jobs"].as_uri())
    strokes: dict[str, set[str]] = {"policy": set(), "type": set(), "tier": set()}
    for figure in page.locator("figure").all():
        title = figure.locator("figcaption").inner_text()
        family = "type" if "by type" in title else "tier" if "by tier" in title else "policy"
        colours = figure.locator("polyline").evaluate_all(STROKES)
        samples = figure.locator(".legend line").evaluate_all(STROKES)
        assert colours == samples and len(set(colours)) == len(colours)
        strokes[family] |= set(colours)
    page.close()
    assert [len(strokes[family]) for family in ("policy", "type", "tier")] == [3, 3, 2]
    assert not any(one & other for one, other in combinations(strokes.values(), 2))


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb (WCAG 2.2)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def lightness(colour: str) -> float:
    """CIE L* in [0, 100]."""
    return 116 * luminance(colour) ** (1 / 3) - 16


@pytest.mark.parametrize("family", COLOURS)
def test_colours_differ_in_lightness_and_stand_out_from_the_page(family: str) -> None:
    for paper, colours in zip(("#ffffff", "#111827"), COLOURS[family], strict=True):  # type: ignore[index]
        values = sorted(lightness(colour) for colour in colours)
        assert all(higher - lower >= 3 for lower, higher in pairwise(values))
        for colour in colours:
            low, high = sorted((luminance(colour), luminance(paper)))
            assert (high + 0.05) / (low + 0.05) >= 3


@pytest.mark.full
def test_shares_are_per_cent_and_headers_have_units(reports: dict[str, Path], browser: Browser) -> None:
    page = browser.new_page()
    page.goto(reports["jobs"].as_uri())
    headers = page.locator("th").all_inner_texts()
    assert {"mean JCT h", "longest JCT h", "jobs with rho > 1.05 %", "utilisation %", "a100 %", "envy %"} <= set(
        headers
    )
    content = json.loads((reports["jobs"].parent / "results.json").read_text())
    of_policies = [content["policies"][policy] for policy in POLICIES]
    row = page.locator("tr", has=page.get_by_text("utilisation %", exact=True)).locator("td").all_inner_texts()
    assert [float(text) for text in row] == pytest.approx([100 * of["utilisation"] for of in of_policies], abs=0.06)
    assert page.get_by_text("1 jobs larger than any type skipped").count() == 1
    assert page.locator(".marked th").all_inner_texts() == ["policy", "space_sharing", "planning_lead_fraction"]
    page.close()
