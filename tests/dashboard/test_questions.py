"""A question that takes a while, in a real Chromium: it says so, and is cancelled."""

import time

import pytest
from playwright.sync_api import expect

from api import what_if
from tests.api.conftest import wait_until
from tests.dashboard.conftest import Dashboard, Tab
from tests.dashboard.scene import tell

pytestmark = pytest.mark.browser


def never(question: object) -> None:
    """A question that takes until it is ended."""
    time.sleep(600)


def is_free() -> bool:
    return what_if._slots._value == what_if.AT_ONCE


@pytest.mark.full
def test_a_shadow_run_says_how_long_it_takes_and_is_cancelled(
    dashboard: Dashboard, tab: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(dashboard.store, time.time())
    monkeypatch.setattr(what_if, "effects", never)
    tab.page.goto("/policy")
    tab.page.get_by_role("button", name="Try policy fifo").click()
    progress = tab.page.locator("#shadow-progress")
    tab.page.get_by_role("button", name="Shadow run").click()
    expect(progress).to_contain_text("Working it out for 1 s")
    assert not is_free()
    tab.page.get_by_role("button", name="Cancel").click()
    expect(progress).to_have_text("Cancelled. Nothing is changed.")
    wait_until(is_free)
    expect(tab.page.get_by_role("button", name="Switch from the next round on")).to_be_disabled()


@pytest.mark.full
def test_a_preview_ends_with_its_dialog(dashboard: Dashboard, tab: Tab, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(dashboard.store, time.time())
    monkeypatch.setattr(what_if, "effects", never)
    tab.page.goto("/tiers")
    tab.page.get_by_role("button", name="Edit tier gold").click()
    tab.page.get_by_role("button", name="Preview").click()
    expect(tab.page.locator("#preview-progress")).to_contain_text("Working it out")
    wait_until(lambda: not is_free())
    tab.page.locator("#tier-close").click()
    wait_until(is_free)
