"""A day of an operator at the dashboard, over a real service with real jobs. Pictures stay in artifacts/dashboard."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from api.dashboard.pages import PAGES
from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until
from tests.conftest import IS_FULL
from tests.dashboard.conftest import WAIT_MS

pytestmark = pytest.mark.browser

PICTURES = Path(__file__).parents[2] / "artifacts" / "dashboard"
PROGRAM = """
import time
from gavel_runtime import job

for step in job.steps(total=100_000):
    print(f"step {step} <img src=x onerror=document.title='taken'> \\x1b[31mred\\x1b[0m", flush=True)
    time.sleep(0.02)
"""


@dataclass
class Person:
    """An operator at a page, and what the page's console complained of."""

    page: Page
    client: Client
    job_id: str
    errors: list[str]

    def picture(self, name: str) -> None:
        self.page.screenshot(path=PICTURES / f"{name}.png")

    def sees_job(self, state: str) -> None:
        """The service has brought the job into this state, and the page says so."""
        is_so = wait_until(lambda: self.client.job(self.job_id)["state"] == state, WAIT_MS / 1000)
        assert is_so, (self.client.job(self.job_id), list(self.client.events(self.job_id)))
        expect(self.page.locator("#job-state")).to_have_text(state)


@pytest.fixture(scope="module")
def person(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """Logged in by the link that the service prints, with one job submitted."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    folder = tmp_path_factory.mktemp("journey")
    (folder / "train.py").write_text(PROGRAM)
    with (
        ServiceProcess(folder / "state", {"GAVEL_ROUND_DURATION_S": "2", "GAVEL_VIRTUAL_NODES": "2"}) as service,
        Client(service.url, service.operator_token) as client,
    ):
        assert wait_until(lambda: bool(client.cluster()["workers"]), 60)
        job = client.submit(name="speech", argv=[sys.executable, str(folder / "train.py")], total_steps=100_000)
        context = chromium.new_context(viewport={"width": 1360, "height": 900}, reduced_motion="reduce")
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        expect.set_options(timeout=WAIT_MS)
        errors: list[str] = []
        page.on(
            "console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{service.url}/login#token={service.operator_token}")
        page.wait_for_url(f"{service.url}/")
        yield Person(page, client, job["id"], errors)
        context.close()


def go(person: Person, path: str) -> Page:
    person.page.goto(f"{person.client.url}{path}")
    expect(person.page.locator("body")).to_have_attribute("data-ready", "yes")
    return person.page


def test_1_a_submitted_job_is_seen_to_run_and_to_get_on(person: Person) -> None:
    page = go(person, "/")
    row = page.locator("#jobs-table tbody tr", has_text="speech")
    expect(row).to_contain_text(re.compile("RUNNING|PROFILING"))
    expect(row.locator(".progress")).not_to_have_text(re.compile("^0 /"))
    expect(page.locator("#tile-running")).to_have_text("1")
    person.picture("overview")


def test_2_its_page_follows_the_log_and_what_it_wrote_stays_text(person: Person) -> None:
    page = go(person, f"/jobs/{person.job_id}")
    log = page.locator("#log-text")
    expect(log).to_contain_text("onerror=document.title='taken'> red")
    first = len(log.text_content() or "")
    page.wait_for_function("length => document.getElementById('log-text').textContent.length > length", arg=first)
    assert log.locator("*").count() == 0 and "speech" in page.title() and "\x1b" not in (log.text_content() or "")
    person.picture("job")


def test_3_a_click_says_why_and_when(person: Person) -> None:
    page = go(person, f"/jobs/{person.job_id}")
    expect(page.locator("#job-reason")).to_contain_text(
        re.compile("The gang runs on .* the job is .* done and ends in about")
    )
    expect(page.locator("#explain-facts")).to_be_hidden()
    page.get_by_text("The numbers behind it").first.click()
    expect(page.locator("#explain-facts")).to_contain_text("Target fraction of time")
    person.picture("why")


def test_4_a_paused_job_waits_in_the_queue_until_it_is_resumed(person: Person) -> None:
    page = go(person, f"/jobs/{person.job_id}")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#outcome")).to_contain_text("stops after a checkpoint")
    person.sees_job("PAUSED")
    go(person, "/queue")
    expect(page.locator("#queue-table tbody tr")).to_contain_text("PAUSED")
    person.picture("queue")
    go(person, f"/jobs/{person.job_id}")
    page.get_by_role("button", name="Resume").click()
    person.sees_job("RUNNING")


def test_5_a_tier_is_edited_after_its_preview(person: Person) -> None:
    page = go(person, "/tiers")
    page.get_by_role("button", name="Edit tier default").click()
    page.get_by_label("Weight", exact=True).fill("3")
    page.get_by_label("Guarantee, %").fill("20")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#preview-table")).to_contain_text("tier default")
    person.picture("tier-preview")
    assert person.client.tiers()[0]["weight"] == 1.0, "a preview changes nothing"
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#outcome")).to_contain_text("Tier default changes with the next round")
    (tier,) = person.client.tiers()
    assert (tier["weight"], tier["guarantee"]) == (3.0, 0.2)


def test_6_what_the_service_refuses_of_a_tier_is_said_in_the_editor(person: Person) -> None:
    page = go(person, "/tiers")
    page.get_by_role("button", name="New tier").click()
    page.get_by_label("Name", exact=True).fill("greedy")
    page.get_by_label("Guarantee, %").fill("90")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#tier-refusal")).to_contain_text("guarantee")
    assert [tier["name"] for tier in person.client.tiers()] == ["default"]
    person.errors[:] = [text for text in person.errors if "422" not in text]  # the refusal, as the browser says it


@pytest.mark.full
def test_7_the_policy_is_switched_after_a_shadow_run(person: Person) -> None:
    page = go(person, "/policy")
    expect(page.locator("#current-policy")).to_have_text("hierarchical")
    page.get_by_role("button", name="Try policy max_min_fairness").click()
    expect(page.locator("#switch-formula")).to_contain_text("maximise")
    switch = page.get_by_role("button", name="Switch from the next round on")
    expect(switch).to_be_disabled()
    page.get_by_role("button", name="Shadow run").click()
    expect(page.locator("#shadow-table")).to_contain_text("tier default")
    person.picture("shadow-run")
    switch.click()
    expect(page.locator("#current-policy")).to_have_text("max_min_fairness")
    assert wait_until(lambda: person.client.rounds(limit=1)[0]["policy"] == "max_min_fairness", 2 * WAIT_MS / 1000)


def test_8_a_node_is_drained_and_taken_back(person: Person) -> None:
    page = go(person, "/nodes")
    row = page.locator("#nodes-table tbody tr").first
    name = row.locator("th").text_content()
    page.get_by_role("button", name=f"Drain node {name}").click()
    page.get_by_label("Window, minutes").fill("0.05")
    page.locator("#drain").get_by_role("button", name="Drain").click()
    expect(row.locator(".badge")).to_have_text("drained")
    person.picture("drained")
    page.get_by_role("button", name=f"Uncordon node {name}").click()
    expect(row.locator(".badge")).to_have_text("ready")


SCHEMES = ("light", "dark") if IS_FULL else ("light",)
LOOKED_AT = PAGES if IS_FULL else ("/", "/submit")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_9_no_page_has_a_serious_accessibility_fault(person: Person, scheme: str) -> None:
    person.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    serious = []
    for path in (*LOOKED_AT, f"/jobs/{person.job_id}"):
        page = go(person, path)
        person.picture(f"{path.strip('/').split('/')[0] or 'overview'}-{scheme}")
        faults = Axe().run(page).response["violations"]
        serious += [
            (path, each["id"], [node["target"] for node in each["nodes"]])
            for each in faults
            if each["impact"] in ("serious", "critical")
        ]
    assert serious == []


def test_a_cancelled_job_ends_and_nobody_s_console_complained(person: Person) -> None:
    page = go(person, f"/jobs/{person.job_id}")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator("#job-state")).to_have_text("CANCELLED")
    expect(page.locator("#log-note")).to_have_text("complete")
    assert person.errors == []


def test_b_a_job_that_the_form_submits_runs_to_its_end(person: Person) -> None:
    page = go(person, "/submit")
    page.get_by_label("a program of my own").check()
    page.get_by_label("Program and arguments").fill(f"""{sys.executable} -c "print('by the form')" """)
    page.get_by_label("Steps", exact=True).fill("1")
    person.picture("submit")
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("#job-state")).to_have_text("COMPLETED")
    expect(page.locator("#log-text")).to_have_text(re.compile("by the form"))
    assert person.errors == []
