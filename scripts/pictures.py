"""Takes the pictures of the documentation: runs the demo's jobs on a real service and photographs the dashboard.

usage: .venv/bin/python -m scripts.pictures          (needs Chromium: apt-get install chromium)
"""

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

from playwright.sync_api import Page, sync_playwright

from gavel.client import Client
from gavel.demo import LIMIT_S, TIERS, USERS
from gavel.demo.service import ServiceProcess, wait_until
from gavel.demo.workload import jobs

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync", "--no-first-run"]
PHOTOGRAPH_AFTER_S = 34.0


def main() -> int:
    chromium = shutil.which("chromium")
    if chromium is None:
        print("no chromium on the PATH: apt-get install chromium")
        return 1
    PICTURES.mkdir(parents=True, exist_ok=True)
    settings = {"GAVEL_ROUND_DURATION_S": "4"}
    with (
        tempfile.TemporaryDirectory() as folder,
        ServiceProcess(Path(folder) / "state", settings) as service,
        Client(service.url, service.operator_token) as operator,
        sync_playwright() as playwright,
    ):
        names = submit_all(operator)
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for picture, (theme, path) in pages(names).items():
            page = browser.new_page(color_scheme=theme, viewport={"width": 1360, "height": 1000}, device_scale_factor=1)
            page.goto(f"{service.url}/login#token={service.operator_token}")
            page.wait_for_url(f"{service.url}/")
            page.goto(f"{service.url}{path}")
            photograph(page, PICTURES / picture)
        browser.close()
    return 0


def pages(names: dict[str, str]) -> dict[str, tuple[Literal["dark", "light"], str]]:
    """Theme and path of each picture."""
    return {
        "dashboard.png": ("dark", "/"),
        "dashboard-light.png": ("light", "/"),
        "job.png": ("light", f"/jobs/{names['speech']}"),
        "queue.png": ("light", "/queue"),
        "submit.png": ("light", "/submit"),
        "tiers.png": ("dark", "/tiers"),
    }


def submit_all(operator: Client) -> dict[str, str]:
    """The demo's jobs, submitted as they arrive; their ids by name, once the run is well under way."""
    wait_until(lambda: bool(operator.cluster()["workers"]), LIMIT_S)
    tokens = {}
    for tier, (objective, weight) in TIERS.items():
        operator.put_tier(tier, objective=objective, weight=weight)
        operator.put_user(USERS[tier], [tier])
        tokens[tier] = operator.create_token(USERS[tier])
    began_s, ids = time.monotonic(), {}
    for job in jobs():
        time.sleep(max(0.0, job.arrives_s - (time.monotonic() - began_s)))
        with Client(operator.url, tokens[job.tier]) as client:
            wanted = {"kind": job.kind, "total_steps": job.total_steps(1.5), "scale_factor": job.scale_factor}
            ids[job.name] = client.submit(name=job.name, tier=job.tier, **wanted)["id"]
    time.sleep(max(0.0, PHOTOGRAPH_AFTER_S - (time.monotonic() - began_s)))
    return ids


def photograph(page: Page, path: Path) -> None:
    page.wait_for_selector("body[data-ready]")
    page.wait_for_timeout(2500)
    page.screenshot(path=path, full_page=False)
    print(path.name)


if __name__ == "__main__":
    sys.exit(main())
