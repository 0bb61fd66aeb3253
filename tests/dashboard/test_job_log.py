"""The log on a job's page, in a real Chromium."""

import time
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from gavel.ports import Changes
from gavel.types import JobState
from tests.builders import a_cluster, a_spec
from tests.dashboard.conftest import Dashboard, Tab
from tests.dashboard.scene import tell

pytestmark = pytest.mark.browser


@pytest.mark.full
def test_what_a_job_wrote_stays_text(dashboard: Dashboard, tab: Tab) -> None:
    hostile = "<script>document.title = 'taken'</script><img src=x onerror=\"document.title='taken'\"> \x1b[31mred\n"
    job = dashboard.store.submit(a_spec(tier="default", name="loud"), key=None, body_hash="", now_s=time.time()).job
    moved = replace(job, message="<b onclick=alert(1)>why</b>", state=JobState.LEASED)
    dashboard.store.commit(dashboard.store.snapshot().version, Changes(jobs=(moved,), cluster=a_cluster(fast=1)))
    (dashboard.logs / job.id).write_bytes(hostile.encode() + b"caf\xc3")
    tab.page.goto(f"/jobs/{job.id}")
    log = tab.page.locator("#log-text")
    expect(log).to_contain_text("<script>document.title = 'taken'</script>")
    with (dashboard.logs / job.id).open("ab") as file:
        file.write(b"\xa9 later\n")
    expect(log).to_contain_text("café later")
    assert log.locator("*").count() == 0
    assert "\x1b" not in (log.text_content() or "") and "[31m" not in (log.text_content() or "")
    expect(tab.page.locator("#job-reason")).to_contain_text("<b onclick=alert(1)>why</b>")
    expect(tab.page.locator("#story-list li").first).to_contain_text("job.submitted")
    assert tab.page.title().startswith("loud · RUNNING")


LINES_AT_ONCE = """async () => {
  const { JobLog } = await import("/static/joblog.js");
  const element = document.getElementById("log-text");
  const layouts = [];
  new MutationObserver((changes) => layouts.push(...changes)).observe(element, { childList: true });
  const log = new JobLog(document.body.dataset.job);
  for (let line = 0; line < 500; line += 1) log.append(`line ${line}\\n`);
  do await new Promise(requestAnimationFrame);
  while (!element.textContent.includes("line 499"));
  return layouts.length;
}"""


def test_many_lines_of_a_log_that_come_at_once_are_laid_out_together(dashboard: Dashboard, tab: Tab) -> None:
    """A long log takes a while to lay out: a page that did it for each line had no time for anything else."""
    job = next(job for job in tell(dashboard.store, time.time(), jobs=2, rounds=2) if job.state == "LEASED")
    tab.page.goto(f"/jobs/{job.id}")
    expect(tab.page.locator("body")).to_have_attribute("data-ready", "yes")
    assert tab.page.evaluate(LINES_AT_ONCE) <= 5
