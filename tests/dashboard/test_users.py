"""What a user sees of others on every page. Every test also fails on any console error (fixture `tab`)."""

import re
import time

import pytest
from playwright.sync_api import expect

from api.access.auth import SESSION_COOKIE, digest, new_token
from api.dashboard.pages import PAGES
from gavel.types import Scope, User
from tests.dashboard.conftest import Dashboard, Tab
from tests.dashboard.scene import tell
from tests.sessions import a_session

pytestmark = pytest.mark.browser


@pytest.mark.full
def test_others_jobs_hold_workers_without_a_name_on_every_page(dashboard: Dashboard, tab: Tab) -> None:
    jobs = tell(dashboard.store, time.time(), jobs=6, rounds=6)  # all of them ann's
    dashboard.store.put_user(User(name="bob", tiers=("gold",)), by="test", now_s=time.time())
    token = new_token()
    dashboard.store.add_token(digest(token), user="bob", scope=Scope.USER, now_s=time.time())
    session = a_session(dashboard.store, token)
    tab.page.context.add_cookies([{"name": SESSION_COOKIE, "value": session, "url": dashboard.url}])
    for path in PAGES:
        tab.page.goto(path)
        expect(tab.page.locator("body")).to_have_attribute("data-ready", "yes")
        shown = tab.page.content()
        assert not any(job.id in shown or job.spec.name in shown for job in jobs), path
    tab.page.goto("/tiers")
    gold = tab.page.locator("#tiers-table tbody tr", has_text="gold").locator("td")
    expect(gold.nth(3)).to_have_text("0 of 3")
    expect(tab.page.locator("#tiers-table .bar").nth(1)).to_have_attribute("title", re.compile("by weight .* 67 %"))
    tab.page.goto("/placements")
    rows = tab.page.locator("#placements-table tbody tr")
    expect(rows.first).to_contain_text("another user's job")
    canvas = tab.page.locator("#placements-canvas")
    canvas.focus()
    tab.wait_for_paint()
    tab.page.keyboard.press("ArrowDown")
    expect(tab.page.locator("#tooltip")).to_contain_text("another user's job")
    tab.page.keyboard.press("Enter")
    expect(tab.page.locator("#why")).to_be_hidden()
    expect(tab.page.locator("#outcome")).to_be_hidden()
