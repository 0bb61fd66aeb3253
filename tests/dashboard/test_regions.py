"""The region of a job on its page, in a real Chromium."""

import time
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from gavel.ports import Changes
from gavel.types import Reason, Residence, in_region
from tests.builders import a_spec
from tests.dashboard.conftest import Dashboard, Tab

pytestmark = pytest.mark.browser
WHY = "It moves from us to eu, where it is expected to be 2 times as fast as there."


def test_the_page_of_a_job_shows_its_region_and_what_its_moves_have_cost(dashboard: Dashboard, tab: Tab) -> None:
    where = {"data_region": "us", "data_bytes": 150_000_000_000, "regions": ("eu", "us")}
    spec = replace(a_spec(tier="default", name="moves", total_steps=100), **where)
    job = dashboard.store.submit(spec, key=None, body_hash="", now_s=time.time() - 200).job
    own = Residence(region="eu", moved_from="us", moves=1, egress_bytes=150_000_000_000, egress_usd=13.5, why=WHY)
    after = replace(job, residence=own, spec=in_region(job.spec, "eu"), reason=Reason.MOVING, message=WHY)
    dashboard.store.commit(dashboard.store.snapshot().version, Changes(jobs=(after,)))
    tab.page.goto(f"/jobs/{job.id}")
    facts = tab.page.locator("#facts")
    expect(facts).to_contain_text(f"eu. {WHY} Its 1 move copied 150 GB for 13.50 USD.")
    expect(facts).to_contain_text("150 GB in us")
    expect(facts).to_contain_text("regions eu, us")
