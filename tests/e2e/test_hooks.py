"""A program that cannot be changed is paused and goes on, by two commands that were given at its submit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until

pytestmark = pytest.mark.full
LIMIT_S = 90
SETTINGS = {"GAVEL_ROUND_DURATION_S": "3", "GAVEL_LEASE_GRACE_S": "2"}
COUNTER = """#!/bin/sh
number=$(cat count 2>/dev/null || echo 0)
echo "goes on after $number"
while [ ! -e "$1" ]; do number=$((number + 1)); echo $number > count.tmp; mv count.tmp count; sleep 0.1; done
echo "ended after $number"
"""
DUMP = 'cp count "$GAVEL_SNAPSHOT_DIR/"'
RESTORE = 'cp "$GAVEL_SNAPSHOT_DIR/count" .'


@pytest.mark.timeout(240)
def test_a_program_that_was_paused_goes_on_from_what_its_dump_saved(tmp_path: Path) -> None:
    """1 it is submitted from the command line, 2 paused, 3 all it wrote is removed, 4 it goes on, and is complete."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "counter").write_text(COUNTER)
    (project / "counter").chmod(0o755)
    the_end = project / "the-end"
    with (
        ServiceProcess(tmp_path / "state", SETTINGS) as service,
        Client(service.url, service.operator_token) as operator,
    ):
        assert wait_until(lambda: bool(operator.cluster()["workers"]), LIMIT_S)
        environment = {"PATH": os.environ["PATH"], "GAVEL_URL": service.url, "GAVEL_TOKEN": service.operator_token}
        gavel = [sys.executable, "-m", "gavel.cli", "submit", "--no-snapshot", "--name", "counter"]
        subprocess.run(
            [*gavel, "--dump", DUMP, "--restore", RESTORE, "./counter", str(the_end)],
            cwd=project, env=environment, check=True, timeout=LIMIT_S,
        )  # fmt: skip
        (job,) = operator.jobs()
        count = project / "count"
        assert wait_until(lambda: count.exists() and int(count.read_text() or 0) > 20, LIMIT_S), operator.job(job["id"])
        operator.pause(job["id"])
        assert wait_until(lambda: operator.job(job["id"])["state"] == "PAUSED", LIMIT_S), operator.job(job["id"])
        paused = operator.job(job["id"])
        assert paused["steps_done"] > 0 and paused["checkpoint_s"] is not None, paused
        count.unlink()
        operator.resume(job["id"])
        assert wait_until(lambda: operator.job(job["id"])["state"] == "RUNNING" and count.exists(), LIMIT_S)
        the_end.touch()
        ended = operator.wait(job["id"], LIMIT_S)
        log = "".join(operator.read_logs(job["id"]))
        assert ended["state"] == "COMPLETED", log
        starts = [int(line.split()[-1]) for line in log.splitlines() if line.startswith("goes on after")]
        assert starts[0] == 0 and starts[-1] > 20 and starts == sorted(starts), log
