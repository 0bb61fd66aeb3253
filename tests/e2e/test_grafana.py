"""The Grafana dashboard and the alert rules against a real Prometheus that scrapes a real service with jobs."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.conftest import wait_until
from tests.architecture.test_floors import ROOT
from tests.e2e.processes import Member
from tests.nginx import free_port

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "gavel.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if not panel["title"].startswith("Regions:")]  # there are none here
EXPRESSIONS = [(panel["title"], each["expr"]) for panel in PANELS for each in panel.get("targets", [])]
RULES = ROOT / "deploy" / "prometheus" / "gavel-alerts.yml"
LIMIT_S = 180.0


@contextmanager
def prometheus(folder: Path, target: str, token: str) -> Iterator[httpx.Client]:
    """A Prometheus that scrapes the target each second; yields a client of it."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("needs prometheus (Debian: apt install prometheus)")
    (folder / "token").write_text(token)
    scrape = {"job_name": "gavel", "static_configs": [{"targets": [target]}]}
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{**scrape, "authorization": {"credentials_file": str(folder / "token")}}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    url = f"127.0.0.1:{free_port()}"
    options = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([program, *options, f"--web.listen-address={url}"], stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://{url}/api/v1", timeout=30) as client:
            wait_until(lambda: process.poll() is not None or _is_ready(client))
            assert process.poll() is None, (folder / "prometheus.log").read_text()
            yield client
    finally:
        process.terminate()
        process.wait(LIMIT_S)


def _is_ready(client: httpx.Client) -> bool:
    with suppress(httpx.TransportError):
        return client.get("/targets").is_success
    return False


def results(client: httpx.Client, expression: str) -> list[Any]:
    answer = client.get("/query", params={"query": expression}).json()
    assert answer["status"] == "success", (expression, answer)
    return list(answer["data"]["result"])


@pytest.mark.skipif(not IS_FULL, reason="a service, jobs and a Prometheus: only with GAVEL_TEST_PROFILE=full")
@pytest.mark.timeout(600)
def test_every_panel_shows_something_and_every_rule_is_evaluated(tmp_path: Path) -> None:
    """1. Jobs of two tiers train, and more wait. 2. Each expression has a value in the end. 3. No rule fails."""
    settings = {"GAVEL_CPU_WORKERS": "2", "GAVEL_ROUND_DURATION_S": "2"}
    with Member(tmp_path / "state", settings) as member, member.client() as client:
        client.put_tier("gold", weight=2.0)
        client.put_user("operator", ["default", "gold"])
        client.put_user("prometheus", ["default"])
        token = client.create_token("prometheus", "viewer")
        done = client.submit(kind="mlp-b256", total_steps=50)["id"]
        others = [
            client.submit(kind="mlp-b256", total_steps=10**6, tier=tier)["id"] for tier in ("default", "gold") * 3
        ]
        with prometheus(tmp_path, member.url.removeprefix("http://"), token) as asked:
            assert client.wait(done, timeout_s=LIMIT_S)["state"] == "COMPLETED"
            empty = list(EXPRESSIONS)

            def all_have_values() -> bool:
                empty[:] = [each for each in empty if not results(asked, each[1])]
                return not empty

            with suppress(AssertionError):
                wait_until(all_have_values, LIMIT_S)
            assert empty == []
            groups = asked.get("/rules").json()["data"]["groups"]
            rules = [rule for group in groups for rule in group["rules"]]
            assert rules and [rule["name"] for rule in rules if rule["health"] != "ok"] == []
            assert [rule["name"] for rule in rules if rule["name"] == "GavelDown" and rule["state"] == "firing"] == []
        client.cancel_many(others)
        assert all(client.wait(each, timeout_s=LIMIT_S)["state"] == "CANCELLED" for each in others)
