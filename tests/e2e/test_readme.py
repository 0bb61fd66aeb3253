"""The README's commands, run as printed, and its job script, compared with the file that it shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def test_the_job_script_is_the_one_in_examples() -> None:
    assert blocks("python")[0] == (ROOT / "examples" / "train.py").read_text()


def test_every_link_leads_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert links and [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.full
@pytest.mark.timeout(180)
def test_every_command_works_as_printed(tmp_path: Path) -> None:
    """1. The service is started as `gavel serve` does. 2. All other shell lines run, stopping at the first error."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    settings = {"GAVEL_ROUND_DURATION_S": "3"}
    with (
        ServiceProcess(tmp_path / ".gavel", settings) as service,
        Client(service.url, service.operator_token) as operator,
    ):
        assert wait_until(lambda: bool(operator.cluster()["workers"]), 90)
        script = "\n".join(block for block in blocks("sh") if "make serve" not in block)
        script = script.replace("http://127.0.0.1:8080", service.url)
        environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        names = {job["name"] for job in operator.jobs()}
        assert {"first", "second"} <= names
        assert {tier["name"] for tier in operator.tiers()} == {"default", "gold"}
        done = ("COMPLETED", "FAILED", "CANCELLED")
        assert wait_until(lambda: all(job["state"] in done for job in operator.jobs()), 90)
        assert {job["state"] for job in operator.jobs()} == {"COMPLETED"}
