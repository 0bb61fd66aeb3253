"""The page of the autopilot in a real Chromium: what is in force and why, what was weighed, regret, and the form."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from api.access.auth import SESSION_COOKIE, digest, new_token
from api.dashboard import pages
from gavel.mechanism.commands.autopilot_commands import with_fields
from gavel.policies.registry import available
from gavel.ports import Changes
from gavel.types import Operation, OperationState, Scope
from gavel.types.autopilot import AutopilotMode, AutopilotSetting
from tests.api.conftest import wait_until
from tests.autopilot_history import COMPOSITIONS, keep, three_decisions
from tests.dashboard.conftest import WAIT_MS, Dashboard, Tab
from tests.dashboard.scene import tell
from tests.dashboard.test_first_look import CUT, LOST, PHONE
from tests.sessions import a_session

pytestmark = pytest.mark.browser

OVERFLOWING = """() => [...document.querySelectorAll('main .panel, main dd, main td, main figure, main .legend')]
  .filter((each) => each.checkVisibility() && getComputedStyle(each).display !== 'inline')
  .filter((each) => each.scrollWidth > each.clientWidth + 1)
  .map((each) => each.outerHTML.slice(0, 120))"""


def rows(tab: Tab, table: str) -> list[list[str]]:
    return [line.split("\t") for line in tab.page.locator(f"#{table} tbody tr").all_inner_texts()]


def decided(dashboard: Dashboard) -> None:
    """A service whose autopilot has switched once."""
    tell(dashboard.store, time.time(), jobs=4, rounds=2)
    keep(dashboard.store, *three_decisions(time.time()))
    setting = AutopilotSetting(mode=AutopilotMode.AUTO, epoch_s=3600.0)
    changes = Changes(policy="shortest_job_first", autopilot=setting)
    dashboard.store.commit(dashboard.store.snapshot().version, changes)


@pytest.mark.full
def test_before_the_first_decision_the_page_says_what_is_in_force(dashboard: Dashboard, tab: Tab) -> None:
    tab.page.goto("/autopilot")
    expect(tab.page.locator("#autopilot-sentence")).to_contain_text("The autopilot has made no decision yet.")
    expect(tab.page.locator("#autopilot-mode")).to_have_text("mode advise")
    for part in ("scores", "regret", "features", "decisions"):
        expect(tab.page.locator(f"#{part}-empty")).to_be_visible()


def test_the_page_tells_what_is_in_force_why_and_what_was_weighed(dashboard: Dashboard, tab: Tab) -> None:
    decided(dashboard)
    tab.page.goto("/autopilot")
    expect(tab.page.locator("#autopilot-policy")).to_have_text("shortest_job_first")
    expect(tab.page.locator("#autopilot-sentence")).to_have_text(
        "shortest_job_first is in force: every other composition is behind, or breaks a limit."
    )
    scores = rows(tab, "scores-table")
    assert [row[0] for row in scores] == list(COMPOSITIONS)
    assert scores[0][1:3] == ["−20.0 %", "± 8.0 %"] and scores[1][-1] == "in force, chosen"
    regrets = rows(tab, "regret-table")
    assert tuple(regrets[0][:2]) == ("shortest_job_first", "+17.6 %")
    assert regrets[-1][1] == "−38.5 %"
    decisions = rows(tab, "decisions-table")
    assert [row[0] for row in decisions] == ["2", "1", "0"]
    assert decisions[-1][4:7] == ["switched", "0.5", "1"] and decisions[0][6] == "–"
    assert decisions[-1][7].startswith("it gains 31.0 %")
    expect(tab.page.locator("#features-plots figure")).to_have_count(3)
    for number, canvas in enumerate(("scores-canvas", "regret-canvas")):
        tab.page.locator(f"#{canvas}").focus()
        tab.wait_for_paint()
        tab.page.keyboard.press("ArrowDown")
        text = "max_min_fairness: −20.0 % ± 8.0 %" if number == 0 else "+17.6 % against shortest_job_first"
        expect(tab.page.locator("#tooltip")).to_contain_text(text)
        tab.page.keyboard.press("Escape")


@pytest.mark.small("390")
@pytest.mark.parametrize("width", [PHONE["width"], 800, 1360])
def test_nothing_is_cut_off_on_any_screen(dashboard: Dashboard, tab: Tab, width: int) -> None:
    decided(dashboard)
    long = "rank_weighted_speed?length=attained_service/backfill=false/planner=greedy/round_duration_s=360"
    *_, last = three_decisions(time.time())
    scores = (*last.scores, replace(last.scores[0], composition=long, error=float("inf")))
    keep(dashboard.store, replace(last, number=3, scores=scores, replayed=((long, 0.9), *last.replayed)))
    tab.page.set_viewport_size({"width": width, "height": 900})
    tab.page.goto("/autopilot")
    expect(tab.page.locator("#decisions-table tbody tr")).to_have_count(4)
    tab.wait_for_paint()
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
    for script in (LOST, CUT, OVERFLOWING):
        assert tab.page.evaluate(script) == []
    tab.page.get_by_role("button", name="Set mode and goal").click()
    box = tab.page.locator("#autopilot-editor").bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= width
    assert tab.page.locator("#autopilot-editor").evaluate("(each) => each.scrollWidth - each.clientWidth") <= 1


@dataclass
class Mechanism:
    """What the scheduler does with the commands of this page."""

    dashboard: Dashboard

    def pending(self) -> list[Operation]:
        return [each for each in self.dashboard.store.snapshot().commands if each.kind == "autopilot.set"]

    def apply(self) -> dict[str, Any]:
        """Apply the next command, once it has come; return its body."""
        wait_until(lambda: bool(self.pending()))
        command, store = self.pending()[0], self.dashboard.store
        after = with_fields(store.snapshot().autopilot, command.body)
        done = replace(command, state=OperationState.DONE, finished_at_s=time.time())
        store.commit(store.snapshot().version, Changes(operations=(done,), autopilot=after))
        return dict(command.body)


def test_an_operator_sets_mode_and_goal_and_confirms(dashboard: Dashboard, tab: Tab) -> None:
    mechanism = Mechanism(dashboard)
    tab.page.goto("/autopilot")
    expect(tab.page.locator("body")).to_have_attribute("data-ready", "yes")
    tab.page.get_by_role("button", name="Set mode and goal").click()
    form, refusal = tab.page.locator("#autopilot-form"), tab.page.locator("#autopilot-refusal")
    save = tab.page.get_by_role("button", name="Set", exact=True)
    save.click()
    expect(refusal).to_have_text("Nothing differs from what is set.")
    form.get_by_label("Goal").fill("mean_jtc")
    save.click()
    expect(refusal).to_contain_text("did you mean mean_jct?")
    tab.errors.clear()  # the browser itself reports the 422
    form.get_by_label("Goal").fill("mean_slowdown")
    form.get_by_label("Mode").select_option("auto")
    expect(tab.page.locator("#mode-meaning")).to_contain_text("in force from the next round on")
    save.click()
    tab.page.get_by_role("button", name="No", exact=True).click()
    assert mechanism.pending() == [], "not without a yes"
    save.click()
    tab.page.get_by_role("button", name="Switch by itself").click()
    assert mechanism.apply() == {"mode": "auto", "goal": "mean_slowdown"}
    expect(tab.page.locator("#outcome")).to_have_text("The autopilot is set.")
    expect(tab.page.locator("#autopilot-mode")).to_have_text("mode auto")


@pytest.mark.full
def test_an_operator_pins_a_composition(dashboard: Dashboard, tab: Tab) -> None:
    mechanism = Mechanism(dashboard)
    tab.page.goto("/autopilot")
    expect(tab.page.locator("body")).to_have_attribute("data-ready", "yes")
    tab.page.get_by_role("button", name="Set mode and goal").click()
    form = tab.page.locator("#autopilot-form")
    form.get_by_label("Mode").select_option("pin")
    form.get_by_label("Pinned composition").fill("fifo/backfill=off")
    form.get_by_label("Candidates, one a line").fill("fifo\n\n equal_share ")
    tab.page.get_by_role("button", name="Set", exact=True).click()
    tab.page.get_by_role("button", name="Pin it").click()
    body = mechanism.apply()
    assert body == {"mode": "pin", "pinned": "fifo/backfill=false", "candidates": ["fifo", "equal_share"]}
    expect(tab.page.locator("#autopilot-sentence")).to_contain_text("fifo/backfill=false is pinned")


@pytest.fixture
def ann(chromium: Browser, dashboard: Dashboard) -> Iterator[Page]:
    """The page of a user, who may not change anything."""
    token = new_token()
    dashboard.store.add_token(digest(token), user="ann", scope=Scope.USER, now_s=time.time())
    context = chromium.new_context(base_url=dashboard.url)
    session = a_session(dashboard.store, token)
    context.add_cookies([{"name": SESSION_COOKIE, "value": session, "url": dashboard.url}])
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    yield page
    context.close()


def test_a_user_reads_the_page_and_has_no_form(dashboard: Dashboard, ann: Page) -> None:
    decided(dashboard)
    ann.goto("/autopilot")
    expect(ann.locator("#autopilot-policy")).to_have_text("shortest_job_first")
    assert ann.locator("#autopilot-open").count() == ann.locator("#autopilot-editor").count() == 0


@pytest.mark.full
def test_older_decisions_are_fetched_on_demand(dashboard: Dashboard, tab: Tab) -> None:
    first, *_ = three_decisions(time.time())
    keep(dashboard.store, *(replace(first, number=number) for number in range(45)))
    tab.page.goto("/autopilot")
    listed = tab.page.locator("#decisions-table tbody tr")
    expect(listed).to_have_count(40)
    tab.page.get_by_role("button", name="Older decisions").click()
    expect(listed).to_have_count(45)
    expect(tab.page.get_by_role("button", name="Older decisions")).to_be_hidden()


@pytest.mark.full
def test_the_policy_page_shows_a_composition_and_says_what_a_switch_does_to_the_autopilot(
    dashboard: Dashboard, tab: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided(dashboard)
    store = dashboard.store
    store.commit(store.snapshot().version, Changes(policy="fifo/backfill=false"))
    monkeypatch.setitem(pages.FEATURES, "what-if", "/nowhere")  # a switch needs no shadow run then
    tab.page.goto("/policy")
    expect(tab.page.locator("#current-policy")).to_have_text("fifo/backfill=false")
    expect(tab.page.locator("#current-when")).not_to_be_empty()
    tab.page.get_by_role("button", name="Try policy equal_share").click()
    tab.page.get_by_role("button", name="Switch from the next round on").click()
    wait_until(lambda: bool(store.snapshot().commands))
    command = store.snapshot().commands[0]
    result = {"policy": "equal_share", "note": "the autopilot was in mode auto; it advises from now on"}
    done = replace(command, state=OperationState.DONE, result=result, finished_at_s=time.time())
    store.commit(store.snapshot().version, Changes(operations=(done,), policy="equal_share"))
    expect(tab.page.locator("#outcome")).to_have_text(
        "equal_share decides from the next round on. Note: the autopilot was in mode auto; it advises from now on."
    )


def test_every_policy_of_the_registry_is_on_the_policy_page(dashboard: Dashboard, tab: Tab) -> None:
    tab.page.goto("/policy")
    names = {each.name for each in available(None)}
    expect(tab.page.locator("#policies-table tbody tr")).to_have_count(len(names))
    assert set(tab.page.locator("#policies-table tbody th").all_inner_texts()) == names
    assert names >= {
        *("least_remaining_work", "least_attained_service", "smallest_gang_first", "short_and_long_apart"),
        *("fair_by_cores", "fair_by_memory", "weighted_priority"),
    }
