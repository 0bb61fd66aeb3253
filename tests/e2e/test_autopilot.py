"""The autopilot of a real service: it finds out that what is in force is bad, and uses something else from then on."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, sync_playwright

from gavel.client import Autopilot, Client
from gavel.demo.service import ServiceProcess, wait_until
from tests.dashboard.conftest import CHROMIUM, FLAGS
from tests.quiet_network import quiet_network

LIMIT_S = 400.0  # a decision has the lowest priority: beside other tests it waits long for its few seconds
SETTINGS = {
    "GAVEL_BACKEND": "simulated",
    "GAVEL_SIMULATED_NODES": json.dumps({"v100": 1, "k80": 1}),
    "GAVEL_SIMULATED_WORKERS_PER_NODE": "2",
    "GAVEL_SIMULATED_REPORT_PERIOD_S": "0.2",
    "GAVEL_ROUND_DURATION_S": "1",
    "GAVEL_POLICY": "fifo",
}
ENDED = 22
RATES = {"v100": 8.0, "k80": 4.0}

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path_factory.mktemp("autopilot") / "state", SETTINGS) as made:
        yield made


@pytest.fixture
def client(service: ServiceProcess) -> Iterator[Client]:
    with Client(service.url, service.operator_token) as made:
        yield made


def submit(client: Client, steps: int, count: int) -> list[str]:
    fields: dict[str, Any] = {"argv": ["mlp"], "total_steps": steps, "throughputs": RATES}
    return [client.submit(**fields)["id"] for _ in range(count)]


@pytest.mark.full
def test_auto_leaves_a_bad_composition_and_says_why(client: Client) -> None:
    """1. Short jobs end, so that lengths are known. 2. Long ones hold all workers, short ones wait. 3. It switches."""
    short = submit(client, 4, ENDED)
    assert wait_until(lambda: all(client.job(each)["state"] == "COMPLETED" for each in short), LIMIT_S)
    submit(client, 20_000, 4)
    submit(client, 4, 12)
    client.set_autopilot(
        mode="auto", goal="mean_slowdown", candidates=["fifo", "shortest_job_first"], epoch_s=5.0, wait_s=30
    )
    seen: list[Autopilot] = []

    def switched() -> bool:
        seen.append(client.autopilot())
        return seen[-1]["in_force"] == "shortest_job_first"

    assert wait_until(switched, LIMIT_S, every_s=0.5), seen[-1]
    decision = next(each for each in client.autopilot_decisions() if each["is_followed"])
    assert (decision["incumbent"], decision["chosen"], decision["failure"]) == ("fifo", "shortest_job_first", "")
    assert "it gains" in decision["reason"] and decision["reason"] in seen[-1]["sentence"]
    assert decision["cpu_s"] > 0
    entry = next(each for each in client.audit() if each["by"] == "autopilot")
    assert entry["after"]["decision"] == decision["number"]
    assert wait_until(lambda: client.rounds(limit=1)[0]["policy"] == "shortest_job_first", LIMIT_S)


@pytest.fixture
def page(service: ServiceProcess) -> Iterator[Page]:
    """The operator's browser, logged in by the link that the service prints."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on the PATH: install the package `chromium` to run the browser tests")
    with quiet_network(), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        made = browser.new_page(viewport={"width": 1360, "height": 900}, reduced_motion="reduce")
        made.set_default_timeout(1000 * LIMIT_S)
        made.goto(f"{service.url}/login#token={service.operator_token}")
        made.wait_for_url(f"{service.url}/")
        yield made
        browser.close()


@pytest.mark.full
@pytest.mark.browser
def test_the_page_tells_what_it_switched_to_and_why(page: Page, service: ServiceProcess, client: Client) -> None:
    decision = next(each for each in client.autopilot_decisions() if each["is_followed"])
    page.goto(f"{service.url}/autopilot")
    page.wait_for_selector("body[data-ready]")
    page.wait_for_selector("#decisions-table tbody tr")
    assert page.locator("#autopilot-policy").inner_text() == "shortest_job_first"
    assert page.locator("#autopilot-sentence").inner_text().startswith("shortest_job_first is in force: ")
    rows = [line.split("\t") for line in page.locator("#decisions-table tbody tr").all_inner_texts()]
    (shown,) = [row for row in rows if row[0] == str(decision["number"])]
    assert shown[4] == "switched" and shown[-1] == decision["reason"]


@pytest.mark.full
def test_a_decision_is_made_again_from_its_question(client: Client) -> None:
    decision = next(each for each in client.autopilot_decisions() if each["is_followed"])
    assert client.verify_autopilot_decision(decision["number"]) == {
        "number": decision["number"],
        "same": True,
        "differences": [],
    }


@pytest.mark.full
def test_an_epoch_teaches_what_each_composition_would_have_cost(client: Client) -> None:
    def taught() -> bool:
        return any(each["actual"] is not None for each in client.autopilot_decisions())

    assert wait_until(taught, LIMIT_S, every_s=0.5), [each["failure"] for each in client.autopilot_decisions()]
    regrets = {each["composition"]: each for each in client.autopilot()["regrets"]}
    assert set(regrets) == {"fifo", "shortest_job_first"}


@pytest.mark.full
def test_what_a_person_sets_stays(client: Client) -> None:
    client.set_policy("fifo", wait_s=30)
    answer = client.autopilot()
    assert (answer["in_force"], answer["setting"]["mode"]) == ("fifo", "advise")
