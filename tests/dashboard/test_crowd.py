"""Ten thousand unfinished jobs on 256 workers: pages stay small, and show groups."""

import os
import time

import pytest
from playwright.sync_api import Response, expect

from gavel.ports import Changes
from gavel.types import NodeState, NodeStatus
from tests.dashboard.conftest import Dashboard, Tab
from tests.dashboard.crowd import gather
from tests.dashboard.scene import KINDS

pytestmark = pytest.mark.browser

JOBS = 10_000 if os.environ.get("GAVEL_TEST_PROFILE") == "full" else 2_000
LOADED_BYTES_MAX = 2_000_000


@pytest.fixture
def crowded(dashboard: Dashboard) -> Dashboard:
    gather(dashboard.store, time.time(), jobs=JOBS, workers=256)
    return dashboard


@pytest.mark.full
def test_the_pages_of_a_crowd_are_small_and_grouped(crowded: Dashboard, tab: Tab) -> None:
    loaded: dict[str, int] = {}

    def note(response: Response) -> None:
        loaded[response.url] = int(response.headers.get("content-length", 0))

    tab.page.on("response", note)
    for path in ("/", "/allocation", "/placements", "/queue", "/tiers"):
        loaded.clear()
        tab.page.goto(path)
        expect(tab.page.locator("body")).to_have_attribute("data-ready", "yes")
        assert 0 < sum(loaded.values()) < LOADED_BYTES_MAX, (path, loaded)
    tab.page.goto("/")
    expect(tab.page.locator("#grouped")).to_be_checked()
    expect(tab.page.locator("#allocation-table tbody tr")).to_have_count(2 * len(KINDS))
    expect(tab.page.locator("#tile-running")).to_have_text("256")
    expect(tab.page.locator("#jobs-count")).to_contain_text("filter to see others")
    expect(tab.page.locator("#placements-note")).to_contain_text("64 of 256 workers")


@pytest.mark.full
def test_of_many_nodes_those_that_need_a_look_come_first_and_others_are_found(dashboard: Dashboard, tab: Tab) -> None:
    gather(dashboard.store, time.time(), jobs=300, workers=2_400, rounds=1)
    nodes = [NodeStatus(name=f"node-{index}") for index in range(299)]
    drained = NodeStatus(name="node-299", state=NodeState.DRAINED)
    dashboard.store.commit(dashboard.store.snapshot().version, Changes(nodes=(*nodes, drained)))
    tab.page.goto("/nodes")
    rows = tab.page.locator("#nodes-table tbody tr")
    expect(rows).to_have_count(200)
    expect(rows.first).to_contain_text("node-299")
    expect(tab.page.locator("#nodes-more")).to_contain_text("200 of 300 nodes are shown; those out of service")
    tab.page.get_by_role("searchbox", name="Find nodes").fill("node-25")
    expect(rows).to_have_count(11)
    expect(tab.page.locator("#nodes-more")).to_have_text("11 of 11 found nodes are shown.")
