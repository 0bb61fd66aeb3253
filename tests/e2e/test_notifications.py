"""Notifications of the real service: from `--notify` to a real receiver, over a kill."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until
from tests.notifications.receivers import webhook

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"


@pytest.mark.skipif(not IS_FULL, reason="tests/notifications has the parts: whole with GAVEL_TEST_PROFILE=full")
@pytest.mark.timeout(240)
def test_what_a_receiver_did_not_take_before_a_kill_it_gets_after_the_restart(tmp_path: Path) -> None:
    """1 a job fails while its receiver answers 500, 2 the service is killed, 3 it starts again and delivers, 4 the
    operator's test says that the settings work."""
    with webhook() as receiver:
        receiver.status = 500
        settings = {"GAVEL_NOTIFICATION_WEBHOOK_URL": receiver.url, "GAVEL_NOTIFICATION_WEBHOOK_SECRET": "a secret key"}
        with ServiceProcess(tmp_path / "state", {"GAVEL_ROUND_DURATION_S": "2", **settings}) as service:
            with Client(service.url, service.operator_token) as operator:
                assert wait_until(lambda: bool(operator.cluster()["workers"]), 90)
                job = operator.submit(argv=["python", "-c", "raise SystemExit(3)"], total_steps=5, notify=["failure"])
                assert operator.wait(job["id"], 90)["state"] == "FAILED"
                assert wait_until(lambda: len(receiver.requests) > 0, 60)
            service.kill()
            receiver.status = 200
            before = len(receiver.requests)
            service.start()
            assert wait_until(lambda: len(receiver.requests) > before, 60)
            assert set(receiver.types()) == {"job.failure"} and set(receiver.jobs()) == {job["id"]}
            with Client(service.url, service.operator_token) as operator:
                assert wait_until(lambda: operator.notifications()[0]["state"] == "delivered", 60)
            environment = {"PATH": os.environ["PATH"], "GAVEL_URL": service.url, "GAVEL_TOKEN": service.operator_token}
            command = [sys.executable, "-m", "gavel.cli", "notification", "test"]
            tried = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
            assert tried.returncode == 0 and "delivered" in tried.stdout, tried.stderr + tried.stdout
            assert "a secret key" not in "".join(
                path.read_text(errors="replace") for path in service.state_dir.glob("*.log")
            )
