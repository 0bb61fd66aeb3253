import os,time,pytest
from pathlib import Path
from tests.dashboard.scene import tell
OUT=Path("/tmp/shots"); OUT.mkdir(exist_ok=True)
def test_shots(dashboard, tab):
    jobs = tell(dashboard.store, time.time())
    live = next(j for j in jobs if j.state == "LEASED")
    (dashboard.logs/live.id).write_text("".join(f"step {i} loss {1/(i+1):.4f}\n" for i in range(200))+"<script>alert(1)</script>\n")
    for scheme in ("dark","light"):
        tab.page.emulate_media(color_scheme=scheme)
        tab.page.goto("/"); tab.page.wait_for_selector("#jobs-table tbody tr"); tab.page.wait_for_selector("#tiers-table tbody tr"); tab.page.wait_for_timeout(700)
        tab.page.screenshot(path=OUT/f"{scheme}.png", full_page=True)
        tab.page.goto(f"/jobs/{live.id}"); tab.page.wait_for_selector("#story-list li"); tab.page.wait_for_timeout(700)
        tab.page.screenshot(path=OUT/f"{scheme}-job.png", full_page=True)

def test_more(dashboard, tab):
    tab.page.goto("/"); tab.page.wait_for_selector("#jobs-empty:not([hidden])"); tab.page.wait_for_timeout(600)
    tab.page.screenshot(path=OUT/"empty.png", full_page=True)
    tab.page.context.clear_cookies(); 
    tab.page.goto("/"); tab.page.screenshot(path=OUT/"login.png"); tab.errors.clear()
