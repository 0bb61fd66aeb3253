"""A first script on the dashboard, on a telephone and on a desk: submitted, watched, downloaded; another one fails.

With real jobs on a real service, in `make test-full`. Pictures stay in artifacts/dashboard.
"""

import os
import re
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until
from tests.dashboard.conftest import WAIT_MS

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(os.environ.get("GAVEL_TEST_PROFILE") != "full", reason="minutes of real jobs: make test-full"),
]

PICTURES = Path(__file__).parents[2] / "artifacts" / "dashboard"
SCREENS = {"phone": {"width": 390, "height": 844}, "desk": {"width": 1360, "height": 900}}
TRAINS = """
import time
from gavel_runtime import job

done = []


def save(folder):
    (folder / "done.txt").write_text(str(len(done)))


def load(folder):
    done[:] = range(int((folder / "done.txt").read_text()))


for step in job.steps(total=100_000, checkpoint=save, restore=load, checkpoint_every_s=1.0):
    done.append(step)
    job.report(loss=1 / (1 + step))
    if step % 20 == 0:
        (job.output_dir / "summary.txt").write_text(f"steps {step}")
        print("step", step, flush=True)
    time.sleep(0.02)
"""
FAILS = "print('loading the data')\nraise SystemExit('no file named train.csv')\n"


@dataclass
class Visit:
    """A person signed in at a screen, the folder with the scripts, and what the console complained of."""

    screen: str
    page: Page
    url: str
    folder: Path
    errors: list[str]

    def go(self, path: str) -> Page:
        self.page.goto(f"{self.url}{path}")
        self.settle()
        return self.page

    def settle(self) -> None:
        """The page has what it shows, and nothing of it is wider than the screen."""
        expect(self.page.locator("body")).to_have_attribute("data-ready", "yes")
        width = self.page.evaluate("document.documentElement.scrollWidth")
        assert width <= SCREENS[self.screen]["width"], self.page.url

    def submit(self, script: str, name: str) -> None:
        """Fill in the form and send it; the page of the job is shown."""
        page = self.go("/submit")
        page.get_by_label("a program of my own").check()
        page.get_by_label("Program and arguments").fill(f"{sys.executable} {self.folder / script}")
        page.get_by_label("Steps", exact=True).fill("")
        page.get_by_label("Name").fill(name)
        self.picture("form")
        page.get_by_role("button", name="Submit").click()
        expect(page.locator("#job-name")).to_have_text(name)
        self.settle()

    def picture(self, name: str) -> None:
        self.page.screenshot(path=PICTURES / f"first-script-{name}-{self.screen}.png", full_page=True)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServiceProcess, str, Path]]:
    """A service with workers, the token of a user, and a folder with two scripts."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    folder = tmp_path_factory.mktemp("first-script")
    (folder / "train.py").write_text(TRAINS)
    (folder / "broken.py").write_text(FAILS)
    with (
        ServiceProcess(folder / "state", {"GAVEL_ROUND_DURATION_S": "2", "GAVEL_JOB_FOLDERS": str(folder)}) as running,
        Client(running.url, running.operator_token) as operator,
    ):
        assert wait_until(lambda: bool(operator.cluster()["workers"]), 60)
        operator.put_user("ann", ["default"])
        yield running, operator.create_token("ann"), folder


@pytest.fixture(params=SCREENS)
def visit(
    request: pytest.FixtureRequest, chromium: Browser, service: tuple[ServiceProcess, str, Path]
) -> Iterator[Visit]:
    """Ann has typed her token on the page that asks for it."""
    running, token, folder = service
    is_phone = request.param == "phone"
    context = chromium.new_context(
        viewport=SCREENS[request.param],  # type: ignore[arg-type]
        is_mobile=is_phone,
        has_touch=is_phone,
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    expect.set_options(timeout=WAIT_MS)
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{running.url}/login")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()
    ann = Visit(request.param, page, running.url, folder, errors)
    ann.settle()
    errors[:] = [text for text in errors if "401" not in text]  # the page that asks for the token has this status
    yield ann
    context.close()
    assert errors == []


@pytest.mark.timeout(400)
def test_a_first_script_is_submitted_watched_and_its_results_downloaded(visit: Visit) -> None:
    visit.submit("train.py", "mine")
    page = visit.page
    expect(page.locator("#job-state")).to_have_text("RUNNING")
    expect(page.locator("#job-progress")).not_to_have_attribute("value", "0")
    expect(page.locator("#log-text")).to_contain_text("step 20")
    expect(page.locator("#curves figure figcaption")).to_have_text(["loss"])
    expect(page.locator("#checkpoint")).to_contain_text(re.compile(r"after [\d,]+ steps"))
    page.reload()
    visit.settle()
    with page.expect_download() as file:
        page.get_by_role("link", name="summary.txt").click()
    assert re.fullmatch(r"steps \d+", file.value.path().read_text())
    with page.expect_download() as archive:
        page.locator("#checkpoint a").click()
    with tarfile.open(archive.value.path()) as members:
        assert any(name.endswith("done.txt") for name in members.getnames())
    visit.picture("running")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator("#job-state")).to_have_text("CANCELLED")


@pytest.mark.timeout(400)
def test_a_script_that_fails_says_why_and_is_submitted_again(visit: Visit) -> None:
    visit.submit("broken.py", "broken")
    page = visit.page
    expect(page.locator("#job-state")).to_have_text("FAILED")
    expect(page.locator("#failure-tail")).to_contain_text("no file named train.csv")
    expect(page.locator("#failure-exit")).to_contain_text("1")
    assert page.locator("#failure").bounding_box()["y"] < SCREENS[visit.screen]["height"], "on the first screen"  # type: ignore[index]
    visit.picture("failed")
    first = page.url
    page.get_by_role("button", name="Submit again").click()
    page.wait_for_url(lambda url: "/jobs/" in url and url != first)
    expect(page.locator("#job-state")).to_have_text("FAILED")
    expect(page.locator("#facts")).to_contain_text(first.split("/")[-1])
