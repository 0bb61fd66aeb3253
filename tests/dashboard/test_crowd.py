"""Ten thousand unfinished jobs on 256 workers: pages stay small, and show groups."""

import os
import time

import pytest
from playwright.sync_api import Response, expect

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
