"""Curves of metrics and files in a real Chromium: over steps and time, zoomed, with leases, of several jobs."""

import re
import time
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from gavel.ports import Changes
from gavel.types import Job, MetricPoint, WrittenCheckpoint
from tests.builders import a_spec
from tests.dashboard.conftest import Dashboard, Tab

pytestmark = pytest.mark.browser


def a_job(dashboard: Dashboard, name: str, points: int = 60, **labels: str) -> Job:
    """A job with two metrics, whose later half ran on another type."""
    spec = a_spec(tier="default", name=name, total_steps=1000, labels=labels)
    job = dashboard.store.submit(spec, key=None, body_hash="", now_s=time.time() - 100).job
    new = points_of(job, range(1, points + 1))
    dashboard.store.commit(dashboard.store.snapshot().version, Changes(metric_points=new))
    return job


def points_of(job: Job, steps: range) -> tuple[MetricPoint, ...]:
    return tuple(
        MetricPoint(
            job_id=job.id,
            generation=1 + (step > 30),
            accelerator_type="avx2" if step > 30 else "scalar",
            previous_step=step - 1,
            step=step,
            at_s=time.time() - 100 + step,
            values={"loss": 1 / step, "<b>error</b>": 0.5},
        )
        for step in steps
    )


def test_a_job_s_page_draws_every_metric_over_steps_or_time(dashboard: Dashboard, tab: Tab) -> None:
    job = a_job(dashboard, "one")
    tab.page.goto(f"/jobs/{job.id}")
    figures = tab.page.locator("#curves figure")
    expect(figures).to_have_count(2)
    expect(figures.locator("figcaption")).to_have_text(["<b>error</b>", "loss"])
    drawn = """(canvas) => new Set(new Uint32Array(canvas.getContext("2d")
      .getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size"""
    tab.wait_for_paint()
    assert figures.nth(1).locator("canvas").evaluate(drawn) > 20, "grounds of two types, a line, an axis"
    table = tab.page.locator("#curves-table")
    expect(table.locator("thead th")).to_have_text(["Job", "Step", "At", "Type", "<b>error</b>", "loss"])
    expect(table.locator("tbody tr").last.locator("td")).to_have_text(["60", _any(), "avx2", "0.5", "0.0167"])
    expect(figures.nth(1).locator(".u-legend .u-label").first).to_have_text("step")
    tab.page.locator("#curves-x").select_option("time")
    expect(tab.page.locator("#curves figure").nth(1).locator(".u-legend .u-label").first).to_have_text("time")


@pytest.mark.full
def test_a_part_is_dragged_and_stays_when_new_points_come(dashboard: Dashboard, tab: Tab) -> None:
    job = a_job(dashboard, "one")
    tab.page.goto(f"/jobs/{job.id}")
    over = tab.page.locator("#curves figure").nth(1).locator(".u-over")
    expect(over).to_be_visible()
    expect(tab.page.locator("body[data-ready=yes]")).to_be_attached()
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    tab.page.mouse.move(box["x"] + box["width"] * 0.25, middle)
    tab.page.mouse.down()
    tab.page.mouse.move(box["x"] + box["width"] * 0.75, middle, steps=4)
    tab.page.mouse.up()
    tab.page.mouse.move(box["x"] + 1, middle)
    value = tab.page.locator("#curves figure").nth(1).locator(".u-legend .u-value").first
    expect(value).to_have_text("16")  # a quarter of 1 to 60
    more = points_of(job, range(61, 63))
    dashboard.store.commit(
        dashboard.store.snapshot().version, Changes(jobs=(replace(job, steps_reported=62),), metric_points=more)
    )
    expect(tab.page.locator("#curves-table tbody tr").last.locator("td").first).to_have_text("62")
    tab.page.mouse.move(box["x"] + 2, middle)
    expect(value).to_have_text("16")
    over.dblclick(position={"x": 1, "y": 20})
    tab.page.mouse.move(box["x"] + 2, middle)
    expect(value).to_have_text("1")


def test_several_jobs_lie_over_one_another_each_in_its_colour(dashboard: Dashboard, tab: Tab) -> None:
    first = a_job(dashboard, "first", rate="0.1")
    a_job(dashboard, "second", 40, rate="0.01")
    tab.page.goto(f"/curves?jobs={first.id},second,0000000000000000,<b>")
    expect(tab.page.locator("#compare-notes")).to_have_text(
        "There is no job 0000000000000000, or it is not yours. There is no job <b>, or it is not yours."
    )
    expect(tab.page.locator("#compare-jobs li")).to_have_count(2)
    expect(tab.page.locator("#compare-jobs li").first).to_contain_text("first QUEUED rate=0.1")
    labels = tab.page.locator("#curves figure").nth(1).locator(".u-legend .u-label")
    expect(labels).to_have_text(["step", "first", "second"])
    colours = tab.page.locator("#compare-jobs i").evaluate_all("(all) => all.map((each) => each.style.background)")
    lines = (
        tab.page.locator("#curves figure")
        .nth(1)
        .locator(".u-legend .u-marker")
        .evaluate_all("(all) => all.map((each) => each.style.borderColor).filter(Boolean)")
    )
    assert len(set(colours)) == 2 and colours == lines


@pytest.mark.full
def test_a_page_without_metrics_says_how_to_report_them(dashboard: Dashboard, tab: Tab) -> None:
    job = dashboard.store.submit(a_spec(tier="default"), key=None, body_hash="", now_s=time.time()).job
    tab.page.goto(f"/jobs/{job.id}")
    expect(tab.page.locator("#curves-empty")).to_contain_text("job.report(loss=0.3)")
    tab.page.goto("/curves")
    expect(tab.page.locator("#curves-empty")).to_have_text("Name jobs by their names or ids, with commas between them.")


def test_files_of_a_job_are_listed_and_downloaded(dashboard: Dashboard, tab: Tab) -> None:
    job = dashboard.store.submit(a_spec(tier="default"), key=None, body_hash="", now_s=time.time()).job
    folder = dashboard.logs.parent / "outputs" / job.id / "a b"
    folder.mkdir(parents=True)
    (folder / "<i>model.pt").write_bytes(b"x" * 3200)
    (dashboard.logs.parent / "checkpoints" / job.id / "1-40").mkdir(parents=True)
    written = WrittenCheckpoint(
        name="1-40", step=40, at_s=time.time(), size_bytes=2_000_000, written_s=1.25, cost_s=0.5
    )
    saved = replace(job, checkpoint="1-40", steps_done=40, checkpoints_written=(written,))
    dashboard.store.commit(dashboard.store.snapshot().version, Changes(jobs=(saved,)))
    tab.page.goto(f"/jobs/{job.id}")
    expect(tab.page.locator("#checkpoint")).to_contain_text("Checkpoint 1-40: after 40 steps, 0 B, written at")
    newest = tab.page.locator("#checkpoints-table tbody tr").first.locator("th, td")
    expect(newest).to_have_text(["1-40", "40", "2 MB", "1.25 s", "0.50 s", _any()])
    expect(tab.page.locator("#facts")).to_contain_text(
        "stated by its program; the training stands still for 0.5 s for one"
    )
    cells = tab.page.locator("#files-table tbody tr").first.locator("th, td")
    expect(cells).to_have_text(["a b/<i>model.pt", "3.2 kB", _any()])
    expect(tab.page.locator("#files-note")).to_contain_text("3.2 kB of 10 GB that a job may keep")
    with tab.page.expect_download() as download:
        cells.first.locator("a").click()
    assert download.value.path().read_bytes() == b"x" * 3200


def _any() -> re.Pattern[str]:
    return re.compile(".")
