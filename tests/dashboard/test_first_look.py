"""What a person sees first: why a job failed, what comes next, a page for what is not there; on a telephone, too."""

import time
from dataclasses import replace

import pytest
from playwright.sync_api import Locator, expect

from api.dashboard.pages import PAGES
from gavel.ports import Changes
from gavel.types import Job, JobState, Reason
from tests.dashboard.conftest import Dashboard, Tab
from tests.dashboard.scene import tell

pytestmark = pytest.mark.browser

PHONE = {"width": 390, "height": 844}
LOST = """() => [...document.querySelectorAll('table :is(button, a, .badge, progress), nav a, main button')]
  .filter((each) => each.checkVisibility() && !each.closest('dialog:not([open])'))
  .filter((each) => { const box = each.getBoundingClientRect(); return box.left < 0 || box.right > innerWidth + 1; })
  .map((each) => each.outerHTML.slice(0, 80))"""
CUT = """() => [...document.querySelectorAll('.sentence, .note, td.reason, .lines li')]
  .filter((each) => each.checkVisibility() && each.scrollWidth > each.clientWidth + 1).map((each) => each.outerHTML)"""

SIDEWAYS_PX = """() => [...document.querySelectorAll('.scroll:has(td.reason)')]
  .filter((each) => each.checkVisibility() && each.scrollWidth > each.clientWidth + 1)
  .map((each) => each.scrollWidth - each.clientWidth)"""


def fail(dashboard: Dashboard, job: Job) -> None:
    tail = "step 30\nTraceback (most recent call last):\nValueError: the \x1b[31mloss\x1b[0m is <nan>\n"
    ended = {"finished_at_s": time.time(), "started_at_s": time.time() - 9, "exit_code": 3, "log_tail": tail}
    failed = replace(job, state=JobState.FAILED, message="The program ended with exit code 3.", **ended)
    dashboard.store.commit(dashboard.store.snapshot().version, Changes(jobs=(failed,)))
    (dashboard.logs / job.id).write_text("".join(f"step {i} loss {i / 7:.2f}\n" for i in range(200)) + tail)


def test_a_failed_job_s_page_begins_with_the_reason_and_the_end_of_its_log(dashboard: Dashboard, tab: Tab) -> None:
    job = next(each for each in tell(dashboard.store, time.time(), jobs=6, rounds=3) if each.state is JobState.LEASED)
    fail(dashboard, job)
    tab.page.goto(f"/jobs/{job.id}")
    expect(tab.page.locator("#job-reason")).to_contain_text("Failed at step")
    expect(tab.page.locator("#failure-title")).to_have_text("Why it failed exit code 3")
    expect(tab.page.locator("#failure-reason")).to_contain_text("The program ended with exit code 3.")
    expect(tab.page.locator("#failure-tail")).to_have_text(
        "step 30\nTraceback (most recent call last):\nValueError: the loss is <nan>"
    )
    box, log = tab.page.locator("#failure").bounding_box(), tab.page.locator("#log-text")
    assert box is not None and box["y"] < 400, "at the top"
    expect(log).to_contain_text("step 199")
    tab.page.get_by_label("Search the log").fill("LOSS 1.")
    expect(tab.page.locator("#log-matches")).to_have_text("7 lines have it")
    assert (log.text_content() or "").splitlines()[0] == "step 7 loss 1.00"
    with tab.page.expect_download() as download:
        tab.page.get_by_role("link", name="Download").click()
    assert download.value.suggested_filename == f"{job.id}.log"
    assert "step 199" in download.value.path().read_text()


@pytest.mark.full
def test_a_job_whose_setup_failed_has_the_reason_at_the_top_and_says_why_nothing_was_sampled(
    dashboard: Dashboard, tab: Tab
) -> None:
    job = tell(dashboard.store, time.time(), jobs=2, rounds=1)[0]
    ended = {"finished_at_s": time.time(), "reason": Reason.PROGRAM_NOT_STARTED, "exit_code": 127}
    failed = replace(job, state=JobState.FAILED, message="Its setup failed with exit code 1.", **ended)
    dashboard.store.commit(dashboard.store.snapshot().version, Changes(jobs=(failed,)))
    tab.page.goto(f"/jobs/{job.id}")
    expect(tab.page.locator("#failure-reason")).to_contain_text("Its setup failed with exit code 1.")
    expect(tab.page.locator("#utilization-empty")).to_have_text(
        "No sample was taken: its program ran for less than two seconds."
    )


@pytest.mark.full
def test_a_job_that_is_not_there_has_a_page_that_says_so(dashboard: Dashboard, tab: Tab) -> None:
    tell(dashboard.store, time.time(), jobs=2, rounds=1)
    answer = tab.page.goto("/jobs/0000000000000000")
    assert answer is not None and answer.status == 404
    expect(tab.page.locator("main")).to_contain_text("There is no job 0000000000000000, or it belongs to another user.")
    tab.errors.clear()  # the browser itself reports the 404
    tab.page.get_by_role("link", name="Back to the overview").click()
    expect(tab.page.locator("#jobs-table tbody tr")).to_have_count(2)


def test_the_overview_begins_with_what_failed_what_completed_and_what_comes(dashboard: Dashboard, tab: Tab) -> None:
    tell(dashboard.store, time.time())
    tab.page.goto("/")
    expect(tab.page.locator("#failed-list")).to_contain_text("rnn-9")
    expect(tab.page.locator("#completed-list")).to_contain_text("rnn-4")
    expect(tab.page.locator("#next-list li")).to_have_count(4)
    boxes = [tab.page.locator(each).bounding_box() for each in ("#now", "#allocation", "#tile-solve", "#tile-renewals")]
    now, *details = [box["y"] for box in boxes if box is not None]
    assert len(details) == 3 and all(now < each for each in details), "details of the solver follow"
    assert tab.page.evaluate(CUT) == []


@pytest.mark.small("800")
@pytest.mark.parametrize("wide", [700, 800, 1024, 1280])
def test_no_reason_is_cut_on_a_screen_between_a_telephone_and_a_desk(dashboard: Dashboard, tab: Tab, wide: int) -> None:
    for job in tell(dashboard.store, time.time(), jobs=8, rounds=3):
        spec = replace(job.spec, name="", kind="operator/transformer-opelkjde", total_steps=None)
        words = "The interpreter /opt/conda/envs/vision/bin/python is not on node vm; name one that is there."
        changed = replace(job, spec=spec, message=words)
        dashboard.store.commit(dashboard.store.snapshot().version, Changes(jobs=(changed,)))
    tab.page.set_viewport_size({"width": wide, "height": 900})
    for path in ("/", "/queue"):
        tab.page.goto(path)
        expect(tab.page.locator("body")).to_have_attribute("data-ready", "yes")
        assert tab.page.evaluate(SIDEWAYS_PX) == [], path


@pytest.mark.small("18")
@pytest.mark.parametrize("jobs", [2, 18])
def test_the_overview_s_first_lists_leave_no_blank_area(dashboard: Dashboard, tab: Tab, jobs: int) -> None:
    tell(dashboard.store, time.time(), jobs=jobs, rounds=2)
    tab.page.goto("/")
    expect(tab.page.locator("body")).to_have_attribute("data-ready", "yes")
    lowest = "Math.max(...[...each.children].map((child) => child.scrollHeight))"
    blank_px = f"(all) => all.map((each) => each.clientHeight - {lowest})"
    blank = tab.page.locator("#now section").evaluate_all(blank_px)
    assert len(blank) == 3 and max(blank) <= 4, blank


@pytest.mark.full
@pytest.mark.parametrize("width", [1360, 1920])
def test_log_out_stands_in_one_line_with_the_pages(dashboard: Dashboard, tab: Tab, width: int) -> None:
    tell(dashboard.store, time.time(), jobs=2, rounds=1)
    tab.page.set_viewport_size({"width": width, "height": 900})
    tab.page.goto("/")
    expect(tab.page.locator("#policy")).to_have_text("hierarchical")
    boxes = [tab.page.locator(each).bounding_box() for each in (".top nav", "#scheduler", ".status button")]
    middles = [box["y"] + box["height"] / 2 for box in boxes if box is not None]
    assert len(middles) == 3 and max(middles) - min(middles) < 8, middles


@pytest.mark.full
def test_on_a_telephone_every_state_and_button_is_on_the_screen(dashboard: Dashboard, tab: Tab) -> None:
    jobs = tell(dashboard.store, time.time(), jobs=12, rounds=5)
    tab.page.set_viewport_size({"width": PHONE["width"], "height": PHONE["height"]})
    for path in (*PAGES, f"/jobs/{jobs[0].id}"):
        tab.page.goto(path)
        expect(tab.page.locator("body")).to_have_attribute("data-ready", "yes")
        assert tab.page.evaluate(LOST) == [], path
        assert tab.page.evaluate(CUT) == [], path
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
    tab.page.goto("/")
    box = tab.page.locator("#jobs-table").bounding_box()
    foot = tab.page.locator("footer.foot").bounding_box()
    assert box is not None and foot is not None and box["y"] + box["height"] < foot["y"], (
        "cards need no scrolling inside"
    )
    card = tab.page.locator("#jobs-table tbody tr").first
    colour, name = card.locator(".swatch").bounding_box(), card.locator("th a").bounding_box()
    assert colour is not None and name is not None and 0 < name["x"] - (colour["x"] + colour["width"]) < 16
    for label in ("State", "Progress", "Why"):
        expect(card.locator(f"[data-label={label}]")).to_be_visible()
    assert width(card.locator("[data-label=Why]")) > 0.95 * width(card), "a sentence has the whole card"
    assert (tab.page.get_by_role("button", name="Log out").bounding_box() or {"height": 0})["height"] >= 24


def width(place: Locator) -> float:
    """Return how wide it is on the screen, in pixels."""
    box = place.bounding_box()
    return box["width"] if box else 0.0


@pytest.mark.small("390")
@pytest.mark.parametrize("wide", [390, 800, 1360, 1920])
def test_the_tiles_of_a_job_leave_no_blank_place(dashboard: Dashboard, tab: Tab, wide: int) -> None:
    jobs = tell(dashboard.store, time.time(), jobs=2, rounds=1)
    tab.page.set_viewport_size({"width": wide, "height": 900})
    tab.page.goto(f"/jobs/{jobs[0].id}")
    last, tiles = tab.page.locator(".tiles > .tile").last.bounding_box(), tab.page.locator(".tiles").bounding_box()
    assert last is not None and tiles is not None
    assert last["x"] + last["width"] == pytest.approx(tiles["x"] + tiles["width"], abs=1)


def test_the_ticks_of_an_axis_are_told_apart(tab: Tab) -> None:
    """A rank whose memory hardly changes had one number at all of them."""
    tab.page.goto("/")
    script = """async ([values, name]) => {
      const format = await import('/static/format.js'); return format.ticks(values, format[name]); }"""
    cases = {
        ("bytes", (15_410_000, 15_412_000, 15_415_000)): ["15.41 MB", "15.412 MB", "15.415 MB"],
        ("bytes", (1e9, 2e9)): ["1 GB", "2 GB"],
        ("quantity", (1817.2, 1817.3)): ["1817.2", "1817.3"],
        ("quantity", (1817, 1818)): ["1\u202f817", "1\u202f818"],
    }
    for (name, values), texts in cases.items():
        assert tab.page.evaluate(script, [list(values), name]) == texts


def test_the_instants_of_an_axis_do_not_meet_where_they_have_dates(tab: Tab) -> None:
    tab.page.goto("/")
    script = """async (at) => {
      const [{ tickSpace }, { instant }] = await Promise.all([import('/static/plot.js'), import('/static/format.js')]);
      const pen = document.createElement("canvas").getContext("2d");
      pen.font = "12px system-ui, sans-serif";
      return [tickSpace(at), pen.measureText(instant(at)).width]; }"""
    for at_s in (time.time(), time.time() - 3 * 86_400):
        space, width = tab.page.evaluate(script, at_s)
        assert space > width + 8


@pytest.mark.full
def test_a_job_keeps_its_colour_on_other_pages_and_later(dashboard: Dashboard, tab: Tab) -> None:
    jobs = tell(dashboard.store, time.time(), jobs=6, rounds=3)
    colours = "async (ids) => { const { colourOf } = await import('/static/palette.js'); return ids.map(colourOf); }"
    ids = [job.id for job in jobs]
    tab.page.goto("/")
    expect(tab.page.locator("body")).to_have_attribute("data-ready", "yes")
    first = tab.page.evaluate(colours, ids)
    assert len(set(first)) == len(ids)
    tab.page.goto("/placements")
    expect(tab.page.locator("body")).to_have_attribute("data-ready", "yes")
    assert tab.page.evaluate(colours, ids[::-1]) == first[::-1]
