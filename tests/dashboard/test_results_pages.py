"""Pages about what jobs leave: utilization, a job submitted again, an unknown length, all of it on a telephone."""

import json
import time
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from gavel.ports import Changes, JobEvent
from gavel.types import Job
from tests.builders import a_spec
from tests.dashboard.conftest import Dashboard, Tab
from tests.dashboard.scene import tell
from tests.dashboard.test_curves import a_job, points_of
from tests.dashboard.test_first_look import CUT, LOST, PHONE, fail

pytestmark = pytest.mark.browser

READY = "body[data-ready=yes]"


def sample(dashboard: Dashboard, job: Job, ranks: int = 2, samples: int = 30) -> None:
    """Samples of a job whose second rank idles."""
    now_s = time.time()
    lines = (
        {
            "at_s": now_s - 10 * (samples - i),
            "generation": 1,
            "ranks": [[r, 1.5 - r, (r + 1) << 30] for r in range(ranks)],
        }
        for i in range(samples)
    )
    path = dashboard.logs / f"{job.id}.log.utilization"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def leave_files(dashboard: Dashboard, job: Job) -> Job:
    """Files with long names, and an accepted checkpoint."""
    folder = dashboard.logs.parent / "outputs" / job.id
    folder.mkdir(parents=True)
    for name in ("model.pt", "a-name-that-is-longer-than-a-telephone-is-wide-" + "x" * 80 + ".safetensors"):
        (folder / name).write_bytes(b"x" * 1000)
    checkpoint = dashboard.logs.parent / "checkpoints" / job.id / "1-30"
    checkpoint.mkdir(parents=True)
    (checkpoint / "weights").write_bytes(b"w" * 1000)
    saved = replace(job, steps_done=30, steps_reported=30, checkpoint="1-30", generation=1)
    dashboard.store.commit(dashboard.store.snapshot().version, Changes(jobs=(saved,)))
    return saved


@pytest.mark.full
def test_what_each_rank_uses_is_drawn_and_in_a_table(dashboard: Dashboard, tab: Tab) -> None:
    job = a_job(dashboard, "one")
    tab.page.goto(f"/jobs/{job.id}")
    expect(tab.page.locator("#utilization-empty")).to_contain_text("No sample yet")
    sample(dashboard, job)
    tab.page.reload()
    figures = tab.page.locator("#utilization figure")
    expect(figures.locator("figcaption")).to_have_text(["CPU cores", "Memory"])
    expect(figures.first.locator(".u-legend .u-label")).to_have_text(["time", "rank 0", "rank 1"])
    cells = tab.page.locator("#utilization-table tbody tr").last.locator("th, td")
    expect(cells).to_have_count(4)
    assert cells.nth(0).text_content() == "1" and cells.nth(2).text_content() == "0.50"
    line = {"at_s": time.time(), "generation": 1, "ranks": [[0, 1.5, 1 << 30, 0.25, 5_000_000_000]]}
    (dashboard.logs / f"{job.id}.log.utilization").write_text(json.dumps(line) + "\n")
    tab.page.reload()
    names = ["CPU cores", "Memory", "Accelerator busy", "Accelerator memory"]
    expect(figures.locator("figcaption")).to_have_text(names)
    expect(cells.last).to_have_text("5 GB")
    expect(cells.nth(4)).to_have_text("25 %")


@pytest.mark.full
def test_a_lone_sample_is_drawn_in_its_minute(dashboard: Dashboard, tab: Tab) -> None:
    job = a_job(dashboard, "short")
    sample(dashboard, job, ranks=1, samples=1)
    tab.page.goto(f"/jobs/{job.id}")
    over = tab.page.locator("#utilization figure").first.locator(".u-over")
    over.scroll_into_view_if_needed()
    over.hover()
    expect(tab.page.locator("#utilization figure").first.locator(".u-value").last).to_have_text("1.50")
    place, point = over.bounding_box(), tab.page.locator("#utilization figure .u-cursor-pt").first.bounding_box()
    assert place is not None and point is not None
    assert (point["x"] + point["width"] / 2 - place["x"]) / place["width"] == pytest.approx(0.5, abs=0.05)


def test_a_failed_job_is_submitted_again_from_its_page_with_its_setup(dashboard: Dashboard, tab: Tab) -> None:
    jobs = tell(dashboard.store, time.time(), jobs=4, rounds=2)
    asked = a_spec(
        tier=jobs[0].spec.tier,
        name="once-more",
        kind="operator/once-more",
        setup="pip install -r requirements.txt",
        user="operator",
    )
    job = dashboard.store.submit(asked, key=None, body_hash="", now_s=time.time()).job
    tab.page.goto(f"/jobs/{job.id}")
    again = tab.page.get_by_role("button", name="Submit again")
    expect(tab.page.locator(READY)).to_be_attached()
    expect(again).to_be_hidden()
    fail(dashboard, job)
    tab.page.reload()
    again.click()
    expect(tab.page.locator("#facts")).to_contain_text(job.id)
    expect(tab.page.locator("#job-state")).to_have_text("QUEUED")
    expect(again).to_be_hidden()
    expect(tab.page.locator("#facts")).to_contain_text("pip install -r requirements.txt")
    assert not tab.page.url.endswith(job.id)


@pytest.mark.full
def test_a_job_whose_length_is_unknown_says_so_on_the_list_its_page_and_beside_its_curves(
    dashboard: Dashboard, tab: Tab
) -> None:
    spec = a_spec(tier="default", name="open-end", total_steps=None)
    job = dashboard.store.submit(spec, key=None, body_hash="", now_s=time.time() - 100).job
    running = replace(job, steps_reported=60)
    dashboard.store.commit(
        dashboard.store.snapshot().version, Changes(jobs=(running,), metric_points=points_of(job, range(1, 61)))
    )
    tab.page.goto("/")
    row = tab.page.locator("#jobs-table tbody tr", has_text="open-end")
    expect(row).to_contain_text("unknown")
    tab.page.goto(f"/jobs/{job.id}")
    expect(tab.page.locator("#job-steps")).to_have_text("60 steps so far, how many there are is unknown yet")
    expect(tab.page.locator("#tile-left")).to_have_text("unknown")
    expect(tab.page.locator("#curves figure")).to_have_count(2)
    tab.page.goto(f"/curves?jobs={job.id}")
    expect(tab.page.locator("#curves figure")).to_have_count(2)
    for wrong in ("NaN", "null", "undefined", "Infinity"):
        expect(tab.page.locator("main")).not_to_contain_text(wrong)
    fail(dashboard, running)
    tab.page.goto("/")
    expect(row).to_contain_text("60 steps")
    expect(row).not_to_contain_text("unknown")
    tab.page.goto(f"/jobs/{job.id}")
    expect(tab.page.locator("#job-steps")).to_have_text("60 steps; the program never said how many there are")
    expect(tab.page.locator("#tile-left")).to_have_text("–")


def test_on_a_telephone_metrics_files_checkpoints_and_utilization_fit_the_screen(
    dashboard: Dashboard, tab: Tab
) -> None:
    tell(dashboard.store, time.time(), jobs=2, rounds=1)
    job = leave_files(dashboard, a_job(dashboard, "a-job-with-a-rather-long-name-for-a-small-screen"))
    sample(dashboard, job, ranks=6)
    tab.page.set_viewport_size({"width": PHONE["width"], "height": PHONE["height"]})
    for path in (f"/jobs/{job.id}", f"/curves?jobs={job.id}"):
        tab.page.goto(path)
        expect(tab.page.locator("#curves figure")).to_have_count(2)
        if path.startswith("/jobs"):
            expect(tab.page.locator("#files-table tbody tr")).to_have_count(2)
            expect(tab.page.locator("#checkpoint a")).to_be_visible()
            expect(tab.page.locator("#utilization figure")).to_have_count(2)
        tab.wait_for_paint()
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
        assert tab.page.evaluate(LOST) == [], path
        assert tab.page.evaluate(CUT) == [], path


@pytest.mark.full
def test_the_history_of_a_job_that_has_ended_is_complete(dashboard: Dashboard, tab: Tab) -> None:
    """More events than one answer of the service has, over two days."""
    job = dashboard.store.submit(a_spec(tier="default"), key=None, body_hash="", now_s=time.time() - 200_000).job
    events = tuple(
        JobEvent(job_id=job.id, at_s=time.time() - 200_000 + i, kind="lease.extended", message=f"number {i}.")
        for i in range(450)
    )
    dashboard.store.commit(dashboard.store.snapshot().version, Changes(events=events))
    fail(dashboard, job)
    tab.page.goto(f"/jobs/{job.id}")
    expect(tab.page.locator("#story-list li")).to_have_count(451)
    expect(tab.page.locator("#story-list li").first).to_contain_text("number 449.")
    year = time.strftime("%Y", time.localtime(time.time() - 200_000))
    expect(tab.page.locator("#story-list li time").first).to_contain_text(year)
