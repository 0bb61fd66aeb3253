"""The rules that ship for Prometheus raise an alert when they should, and at no other time, by promtool."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.architecture.test_floors import ROOT

RULES = ROOT / "deploy" / "prometheus" / "gavel-alerts.yml"
CASES = Path(__file__).with_name("alerts.test.yml")


def test_alerts_are_raised_when_they_should_be(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool (Debian: apt install prometheus)")
    for path in (RULES, CASES):
        shutil.copy(path, tmp_path)
    for command in (("check", "rules", RULES.name), ("test", "rules", CASES.name)):
        argv = [promtool, *command]
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_rule_is_tried() -> None:
    alerts = [line.split(": ")[1] for line in RULES.read_text().splitlines() if "- alert: " in line]
    assert alerts and [each for each in alerts if f"alertname: {each}" not in CASES.read_text()] == []
