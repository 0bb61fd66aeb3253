"""The dashboard in a real Chromium. Every test also fails on any console error or warning (fixture `tab`)."""

import re
import time
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from gavel.backends.code_store import CodeStore
from gavel.ports import Changes
from gavel.types import Check, CodeVersion, DemandSpec, ServiceSpec, Serving
from tests.builders import a_spec
from tests.dashboard.conftest import Dashboard, Tab
from tests.dashboard.scene import KINDS, TYPES, tell
from workloads.catalogue import CATALOGUE

pytestmark = pytest.mark.browser


@pytest.mark.full
def test_the_table_twin_holds_every_cell_of_the_matrix(dashboard: Dashboard, tab: Tab) -> None:
    tell(dashboard.store, time.time(), jobs=6, rounds=3)
    tab.page.goto("/")
    table = tab.page.locator("#allocation-table")
    expect(table.locator("tbody tr")).to_have_count(5)  # one of the six has ended
    expect(table.locator("thead th")).to_have_count(2 + 2 * len(TYPES))
    first = dashboard.store.round().allocation.time_fraction[0]
    cells = table.locator("tbody tr").first.locator("td").all_text_contents()
    assert table.locator("tbody th").first.text_content() == "attention-0"
    assert cells[1::2] == [f"{value:.3f}" for value in first]


@pytest.mark.full
def test_a_pointer_and_the_arrow_keys_show_the_same_tooltip(dashboard: Dashboard, tab: Tab) -> None:
    tell(dashboard.store, time.time(), jobs=6, rounds=3)
    tab.page.goto("/")
    expect(tab.page.locator("#allocation-table tbody tr")).to_have_count(5)
    tooltip, canvas = tab.page.locator("#tooltip"), tab.page.locator("#allocation-canvas")
    box = canvas.bounding_box()
    assert box is not None
    tab.wait_for_paint()
    canvas.hover(position={"x": box["width"] * 0.32, "y": 34})
    expect(tooltip).to_be_visible()
    expect(tooltip).to_contain_text("attention-0 · gold · avx2")
    expect(tooltip).to_contain_text("target")
    tab.page.mouse.move(0, 0)
    expect(tooltip).to_be_hidden()
    canvas.focus()
    tab.page.keyboard.press("ArrowDown")
    expect(tooltip).to_contain_text("attention-0 · gold · avx2")
    expect(tab.page.locator("#announcer")).to_contain_text("attention-0")
    tab.page.keyboard.press("Escape")
    expect(tooltip).to_be_hidden()


def test_the_overview_shows_tiles_placements_tiers_and_jobs(dashboard: Dashboard, tab: Tab) -> None:
    jobs = tell(dashboard.store, time.time())
    tab.page.goto("/")
    expect(tab.page.locator("#policy")).to_have_text("hierarchical")
    expect(tab.page.locator("#round")).to_have_text("40")
    expect(tab.page.locator("#tile-solve")).to_have_text("11 ms")
    expect(tab.page.locator("#scheduler-text")).to_have_text("scheduler running")
    expect(tab.page.locator("#jobs-table tbody tr")).to_have_count(len(jobs))
    expect(tab.page.locator("#tiers-table tbody tr")).to_have_count(3)
    leases = sum(len(lease.worker_ids) for plan in dashboard.store.rounds() for lease in plan.leases)
    blocks = tab.page.locator("#placements-table tbody tr")
    expect(blocks.first).to_be_attached()
    assert blocks.count() < leases, "renewed leases are one block"


def test_the_page_follows_what_the_scheduler_commits(dashboard: Dashboard, tab: Tab) -> None:
    tab.page.goto("/")
    expect(tab.page.locator("#jobs-empty")).to_contain_text(f"gavel job submit --kind {min(CATALOGUE)} --steps 500")
    expect(tab.page.locator("#jobs-empty")).to_contain_text(f"curl -X POST {dashboard.url}/v1/jobs ")
    job = dashboard.store.submit(a_spec(tier="default", name="late"), key=None, body_hash="", now_s=time.time()).job
    expect(tab.page.locator("#jobs-table tbody th")).to_have_text("late")
    expect(tab.page.locator("#jobs-empty")).to_be_hidden()
    moved = replace(job, steps_done=50, message="behind by 0.04; 2 jobs ahead in tier")
    dashboard.store.commit(dashboard.store.snapshot().version, Changes(jobs=(moved,)))
    expect(tab.page.locator("#jobs-table td.reason")).to_have_text("behind by 0.04; 2 jobs ahead in tier")
    expect(tab.page.locator("#jobs-table td.progress")).to_have_text("50 / 100")


def test_jobs_can_be_filtered_and_sorted_and_the_address_keeps_the_filter(dashboard: Dashboard, tab: Tab) -> None:
    tell(dashboard.store, time.time(), jobs=12, rounds=2)
    tab.page.goto("/")
    rows = tab.page.locator("#jobs-table tbody tr")
    expect(rows).to_have_count(12)
    tab.page.locator("#jobs-filter select[name=state]").select_option("COMPLETED")
    expect(rows).to_have_count(1)
    tab.page.reload()
    expect(rows).to_have_count(1)
    tab.page.goto("/?text=mlp")
    expect(rows).to_have_count(2)
    tab.page.locator("#jobs-table thead button", has_text="Job").click()
    expect(tab.page.locator("#jobs-table tbody th")).to_have_text(["mlp-2", "mlp-7"])
    tab.page.locator("#jobs-table thead button", has_text="Job").click()
    expect(tab.page.locator("#jobs-table tbody th")).to_have_text(["mlp-7", "mlp-2"])


@pytest.mark.full
def test_the_matrix_is_shown_by_kind_and_tier_and_a_group_opens(dashboard: Dashboard, tab: Tab) -> None:
    tell(dashboard.store, time.time(), jobs=60, rounds=2)
    tab.page.goto("/allocation")
    rows = tab.page.locator("#allocation-table tbody tr")
    expect(rows).to_have_count(58)
    tab.page.locator("#grouped").check()
    expect(rows).to_have_count(2 * len(KINDS))
    expect(tab.page.locator("#allocation-table tbody th").first).to_contain_text("×")
    tab.page.locator("#allocation-canvas").focus()
    tab.wait_for_paint()
    tab.page.keyboard.press("ArrowDown")
    tab.page.keyboard.press("Enter")
    expect(rows).to_have_count(8)
    expect(tab.page.locator("#allocation-table tbody th").first).to_have_text("attention-0")
    tab.page.locator("#allocation-back").click()
    expect(rows).to_have_count(2 * len(KINDS))


@pytest.mark.full
def test_the_matrix_shows_target_or_received_or_both(dashboard: Dashboard, tab: Tab) -> None:
    tell(dashboard.store, time.time(), jobs=6, rounds=3)
    tab.page.goto("/allocation")
    expect(tab.page.locator("#allocation-table tbody tr")).to_have_count(5)  # there is something to move on
    canvas = tab.page.locator("#allocation-canvas")
    for mode, cells in (("both", 8), ("target", 4), ("received", 4)):
        tab.page.get_by_label(mode, exact=True).check()
        canvas.focus()
        tab.wait_for_paint()
        tab.page.keyboard.press("Escape")
        for _ in range(cells + 3):  # the last cell of the row is the last stop
            tab.page.keyboard.press("ArrowRight")
        expect(tab.page.locator("#tooltip")).to_contain_text(f"attention-0 · gold · {TYPES[-1]}")
        for _ in range(cells - 1):
            tab.page.keyboard.press("ArrowLeft")
        expect(tab.page.locator("#tooltip")).to_contain_text(f"attention-0 · gold · {TYPES[0]}")


@pytest.mark.full
def test_a_click_on_a_cell_says_why(dashboard: Dashboard, tab: Tab) -> None:
    tell(dashboard.store, time.time(), jobs=6, rounds=3)
    tab.page.goto("/allocation")
    expect(tab.page.locator("#allocation-table tbody tr")).to_have_count(5)
    canvas = tab.page.locator("#allocation-canvas")
    box = canvas.bounding_box()
    assert box is not None
    tab.wait_for_paint()
    canvas.click(position={"x": box["width"] * 0.32, "y": 34})
    why = tab.page.locator("#why")
    expect(why).to_contain_text("Why is attention-0 where it is?")
    expect(tab.page.locator("#why-message")).not_to_be_empty()
    tab.page.keyboard.press("Escape")
    expect(why).to_be_hidden()


@pytest.mark.full
def test_placements_go_back_in_time_and_zoom(dashboard: Dashboard, tab: Tab) -> None:
    tell(dashboard.store, time.time(), jobs=12, rounds=60)
    tab.page.goto("/placements")
    chart, span = tab.page.locator("#placements-canvas"), tab.page.locator("#placements-span")
    expect(chart).to_have_attribute("aria-label", re.compile("8 lanes over 40 rounds"))
    chart.focus()
    tab.page.keyboard.press("-")
    expect(chart).to_have_attribute("aria-label", re.compile("over 60 rounds"))
    tab.page.keyboard.press("+")
    tab.page.keyboard.press("+")
    expect(chart).to_have_attribute("aria-label", re.compile("over 20 rounds"))
    tab.page.locator("#placements-earlier").click()
    expect(span).to_have_text("up to round 50")
    tab.page.locator("#placements-now").click()
    expect(span).to_have_text("of the last rounds")


@pytest.mark.full
def test_the_estimator_shows_intervals_of_each_kind(dashboard: Dashboard, tab: Tab) -> None:
    tell(dashboard.store, time.time(), jobs=4, rounds=2)
    tab.page.goto("/estimator")
    expect(tab.page.locator("#throughputs-table tbody tr")).to_have_count(len(KINDS))
    rows = tab.page.locator("#intervals-table tbody tr")
    expect(rows).to_have_count(len(TYPES))
    first = rows.first.text_content()
    tab.page.locator("#intervals-kind").select_option(KINDS[1])
    expect(rows.first).not_to_have_text(first or "")


def test_the_queue_tells_places_and_reasons(dashboard: Dashboard, tab: Tab) -> None:
    tell(dashboard.store, time.time())
    tab.page.goto("/queue")
    waiting = dashboard.store.count_jobs()
    expected = sum(number for (state, _), number in waiting.items() if state == "QUEUED")
    rows = tab.page.locator("#queue-table tbody tr")
    expect(rows).to_have_count(expected)
    expect(tab.page.locator("#queue-reasons")).to_contain_text(f"{expected} BehindFairShare")
    expect(rows.first.locator("td").nth(1)).to_have_text("1")
    tab.page.locator("#queue-tier").select_option("silver")
    expect(rows.first.locator("td").first).to_have_text("silver")
    rows.first.get_by_role("button").click()
    expect(tab.page.locator("#why")).to_be_visible()


@pytest.mark.full
def test_shares_of_tiers_are_drawn_over_rounds(dashboard: Dashboard, tab: Tab) -> None:
    tell(dashboard.store, time.time(), jobs=8, rounds=12)
    tab.page.goto("/tiers")
    expect(tab.page.locator("#shares-plot canvas")).to_be_visible()
    rows = tab.page.locator("#shares-table tbody tr")
    expect(rows).to_have_count(12)
    for row in rows.all_inner_texts():
        assert sum(int(each.split()[0]) for each in row.split("\t")[1:]) <= 101


def test_a_job_s_page_shows_its_leases_and_its_story(dashboard: Dashboard, tab: Tab) -> None:
    jobs = tell(dashboard.store, time.time(), jobs=6, rounds=5)
    live = next(job for job in jobs if job.state == "LEASED")
    tab.page.goto("/")
    tab.page.locator(f"#jobs-table a[href='/jobs/{live.id}']").click()
    expect(tab.page.locator("#job-name")).to_have_text(live.spec.name)
    expect(tab.page.locator("#job-state")).to_have_text("RUNNING")
    expect(tab.page.locator("#story-list")).to_contain_text("lease.granted")
    expect(tab.page.locator("#timeline-table tbody tr").first).to_be_attached()
    expect(tab.page.locator("#facts")).to_contain_text("python -m workloads.training")


@pytest.mark.full
def test_the_job_page_shows_all_that_was_submitted(dashboard: Dashboard, tab: Tab) -> None:
    first = tell(dashboard.store, time.time(), jobs=2, rounds=1)[0]
    spec = a_spec(
        name="all-that",
        env={"SEED": "77"},
        labels={"project": "vision"},
        throughput_steps_per_s={"avx2": 12.5},
        preemptible=False,
        cpu_cores=3,
        memory_bytes=123456,
        weight=2.5,
        priority=-2,
        max_retries=4,
        workdir="/home/ann/project",
        python="/home/ann/.venv/bin/python",
        code=CodeVersion(digest="d" * 64, commit="c" * 40, is_modified=True),
        scale_factor=2,
        after=(first.id,),
        deadline_at_s=time.time() + 5000,
    )
    job = dashboard.store.submit(spec, key=None, body_hash="", now_s=time.time()).job
    tab.page.goto(f"/jobs/{job.id}")
    expect(tab.page.locator("#job-name")).to_have_text("all-that")
    expect(tab.page.locator("#job-steps")).to_contain_text("of 100 steps")
    facts = tab.page.locator("#facts")
    for text in (
        *(
            "python train.py",
            "Environment setsSEED",
            "project=vision",
            "avx2 12.5",
            "Preemptibleno",
            "3 CPU cores",
            "2.5, -2",
        ),
        *("0 of 4", "Scale factor2", first.id, "Deadline", "ann, gold", "123 kB of memory"),
        *("/home/ann/project", "/home/ann/.venv/bin/python", f"{'d' * 12} of commit {'c' * 12} with changes"),
    ):
        expect(facts).to_contain_text(text)


def test_the_job_page_shows_a_service_with_its_replicas_and_its_demand(dashboard: Dashboard, tab: Tab) -> None:
    serving = Serving(port=0, readiness=Check(path="/ready"))
    demand = DemandSpec(rates={"v100": 40.0, "k80": 9.0}, stated=50.0)
    service = ServiceSpec(replicas=2, replicas_min=1, replicas_max=4, min_available=1, serving=serving, demand=demand)
    spec = a_spec(total_steps=None, preemptible=False, service=service)
    job = dashboard.store.submit(spec, key=None, body_hash="", now_s=time.time()).job
    tab.page.goto(f"/jobs/{job.id}")
    facts = tab.page.locator("#facts")
    for text in (
        "0 of 2 ready (1 to 4)",
        f"gavel job endpoints {job.id}",
        "not known yet (stated)",
        "v100 40/s, k80 9/s",
    ):
        expect(facts).to_contain_text(text)
    tab.page.goto("/")
    row = tab.page.locator("#jobs-table tbody tr").filter(has=tab.page.locator(f'a[href="/jobs/{job.id}"]'))
    expect(row.locator("td.progress")).to_have_text("0 of 2 ready")
    expect(row.locator("td.kind")).to_contain_text("service ")


@pytest.mark.full
def test_the_job_page_shows_a_session_with_its_end_and_how_to_reach_it(dashboard: Dashboard, tab: Tab) -> None:
    spec = a_spec(total_steps=None, preemptible=False, longest_s=7200.0, idle_s=1800.0)
    job = dashboard.store.submit(spec, key=None, body_hash="", now_s=time.time()).job
    tab.page.goto(f"/jobs/{job.id}")
    facts = tab.page.locator("#facts")
    for text in ("Interactive sessionends", "after its start, or when nobody has used it for", "30"):
        expect(facts).to_contain_text(text)
    expect(facts).to_contain_text(f"gavel port-forward {job.id} PORT")
    expect(facts).to_contain_text(f"gavel job extend {job.id} 1h")
    shell = replace(spec, argv=("python", "-m", "gavel_runtime.terminal"))
    job = dashboard.store.submit(shell, key=None, body_hash="", now_s=time.time()).job
    tab.page.goto(f"/jobs/{job.id}")
    expect(facts).to_contain_text(f"gavel attach {job.id}")


@pytest.mark.full
def test_the_job_page_unfolds_how_the_code_differs_from_its_commit(dashboard: Dashboard, tab: Tab) -> None:
    store = CodeStore(dashboard.logs.parent, limit_bytes=1 << 20, kept_s=60.0)
    diff = store.put_diff(b"-rate = 1\n+rate = <b>2</b>\n", "ann")
    for stored, text in ((diff, "-rate = 1\n+rate = <b>2</b>\n"), ("e" * 64, "The differences are no longer stored.")):
        code = CodeVersion(digest="d" * 64, commit="c" * 40, is_modified=True, diff=stored)
        job = dashboard.store.submit(a_spec(code=code), key=None, body_hash="", now_s=time.time()).job
        tab.page.goto(f"/jobs/{job.id}")
        tab.page.get_by_text("How its code differs from the commit").click()
        expect(tab.page.locator("#diff-text")).to_have_text(text)
    tab.errors[:] = [text for text in tab.errors if "404" not in text]


@pytest.mark.full
def test_a_service_that_does_not_answer_is_said_and_what_is_shown_stays(dashboard: Dashboard, tab: Tab) -> None:
    tell(dashboard.store, time.time(), jobs=4, rounds=2)
    tab.page.goto("/")
    rows, trouble = tab.page.locator("#jobs-table tbody tr"), tab.page.locator("#trouble")
    expect(rows).to_have_count(4)
    tab.page.route("**/v1/**", lambda route: route.abort())
    expect(trouble).to_contain_text("The service does not answer")
    expect(tab.page.locator("#scheduler-text")).to_have_text("no answer")
    expect(rows).to_have_count(4)
    tab.page.unroute_all(behavior="wait")
    expect(trouble).to_be_hidden()
    tab.errors[:] = [text for text in tab.errors if "ERR_FAILED" not in text]  # the requests aborted above


SHADES = """async () => {
  const { shade } = await import("/static/palette.js");
  const pen = document.createElement("canvas").getContext("2d");
  const plain = (colour) => { pen.fillStyle = colour; return pen.fillStyle; };
  return Array.from({ length: 201 }, (_, i) => shade(i / 200)).map((cell) => [plain(cell.ground), plain(cell.ink)]);
}"""


@pytest.mark.small("dark")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_themes_give_text_enough_contrast(dashboard: Dashboard, tab: Tab, scheme: str) -> None:
    tab.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    tab.page.goto("/")
    for name in ("--ink", "--quiet", "--good", "--warn", "--bad", "--accent"):
        assert _contrast(_colour(tab, name), _colour(tab, "--panel")) >= 4.5, name
    for part, (ground, ink) in enumerate(tab.page.evaluate(SHADES)):
        assert _contrast(ink, ground) >= 4.5, f"a cell at {part / 200}"


def _colour(tab: Tab, name: str) -> str:
    return str(
        tab.page.evaluate("name => getComputedStyle(document.documentElement).getPropertyValue(name).trim()", name)
    )


def _contrast(one: str, other: str) -> float:
    """WCAG 2.2, 1.4.3."""
    bright, dim = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
