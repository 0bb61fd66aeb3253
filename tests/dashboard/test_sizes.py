"""The sizes of an elastic job on its page, in a real Chromium."""

import time
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from gavel.mechanism.jobs.events import EventKind
from gavel.mechanism.jobs.launches import launch_message
from gavel.ports import Changes, JobEvent
from gavel.types import Job
from tests.builders import a_spec
from tests.dashboard.conftest import Dashboard, Tab

pytestmark = pytest.mark.browser


def happens(dashboard: Dashboard, job: Job, *changes: tuple[float, int]) -> None:
    """The events of gangs: how many seconds ago, and of how many workers; 0: the gang ended."""
    now_s = time.time()
    events = tuple(
        JobEvent(
            job_id=job.id,
            at_s=now_s - ago_s,
            kind=EventKind.LAUNCHED if size else EventKind.PREEMPTED,
            message=launch_message([f"fast-{each}" for each in range(size)], number, 0) if size else "The lease ended.",
        )
        for number, (ago_s, size) in enumerate(changes, start=1)
    )
    dashboard.store.commit(dashboard.store.snapshot().version, Changes(events=events))


def test_the_page_of_an_elastic_job_shows_its_sizes_over_time(dashboard: Dashboard, tab: Tab) -> None:
    """1 before a gang, 2 a chart and a table, without the gangs that had the size of the one before at once, 3 live."""
    spec = replace(
        a_spec(tier="default", name="grows", total_steps=100), sizes=(1, 2, 4), global_batch=64, max_global_batch=512
    )
    job = dashboard.store.submit(spec, key=None, body_hash="", now_s=time.time() - 200).job
    tab.page.goto(f"/jobs/{job.id}")
    expect(tab.page.locator("#sizes-empty")).to_have_text("It has not had workers yet; its sizes are 1, 2, 4.")
    expect(tab.page.locator("main")).to_contain_text("(elastic; 64 samples in each step, up to 512 in an update)")
    happens(dashboard, job, (180, 1), (120, 0), (119, 2), (60, 0))
    tab.page.reload()
    rows = tab.page.locator("#sizes-table tbody tr")
    expect(rows).to_have_count(2)
    assert [row.locator("td").all_text_contents() for row in rows.all()] == [["2", "59 s"], ["1", "1 min 0 s"]]
    expect(tab.page.locator("#sizes-plot canvas")).to_be_visible()
    drawn = """(canvas) => new Set(new Uint32Array(canvas.getContext("2d")
      .getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size"""
    tab.wait_for_paint()
    assert tab.page.locator("#sizes-plot canvas").evaluate(drawn) > 3, "a line and an axis"
    happens(dashboard, job, (30, 4))
    dashboard.store.commit(dashboard.store.snapshot().version, Changes(jobs=(replace(job, steps_done=1),)))
    expect(rows).to_have_count(3)
    expect(rows.first.locator("td").first).to_have_text("4")


def test_the_page_of_a_rigid_job_shows_none(dashboard: Dashboard, tab: Tab) -> None:
    job = dashboard.store.submit(a_spec(tier="default"), key=None, body_hash="", now_s=time.time() - 200).job
    happens(dashboard, job, (100, 1))
    tab.page.goto(f"/jobs/{job.id}")
    expect(tab.page.locator("#story-list li")).not_to_have_count(0)
    expect(tab.page.locator("#sizes")).to_be_hidden()
