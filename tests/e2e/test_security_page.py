"""docs/security.md as a new operator walks it: its commands run as printed, and the tests that it names are there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
SHOWN_BY = re.compile(r'\]\(\.\./(tests/[^ )]+) "(\w+)"\)')
STATEMENTS = 60  # at least so many name their test


def test_every_test_that_is_named_is_there() -> None:
    named = SHOWN_BY.findall(PAGE)
    assert len(named) >= STATEMENTS
    assert [(path, name) for path, name in named if f"def {name}(" not in (ROOT / path).read_text()] == []


def test_every_link_names_a_test_or_leads_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", PAGE) if "://" not in link]
    places = [link.partition(" ")[0].partition("#")[0] for link in links]
    assert [place for place in places if not (ROOT / "docs" / place).exists()] == []
    assert [link for link in links if "../tests/" in link and '"' not in link] == []


@pytest.mark.full
@pytest.mark.timeout(400)
def test_every_command_works_as_printed(tmp_path: Path) -> None:
    """One shell runs them in order, as an operator types them, and stops at the first that fails."""
    commands = "\n".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))
    with (
        ServiceProcess(tmp_path / ".gavel", {"GAVEL_ROUND_DURATION_S": "3"}) as service,
        Client(service.url, service.operator_token) as operator,
    ):
        assert wait_until(lambda: bool(operator.cluster()["workers"]), 90)
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=tmp_path,
            env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        for user, scope in (("ann", "user"), ("prometheus", "viewer"), ("health", "node")):
            assert [each["scope"] for each in operator.tokens(user)] == [scope]
        looked = next(iter(operator.jobs(match="look")))
        assert (looked["user"], looked["state"]) == ("ann", "COMPLETED")
        with Client(service.url, (tmp_path / "prometheus.token").read_text().strip()) as viewer:
            assert viewer.cluster()["workers"]
