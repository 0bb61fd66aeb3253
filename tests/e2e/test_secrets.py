"""A secret from the command line to the job of the real service: it is in nothing that anybody can read."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until

PARTS = ("", "/explanation", "/events", "/logs", "/audit")
VALUE = "s3cret-value-of-ann"
TELL = """
import os, sys, time
sys.stdout.write("it is " + os.environ["TOKEN"][:9]); sys.stdout.flush()
time.sleep(0.2)
print(os.environ["TOKEN"][9:])
raise SystemExit("failed with " + os.environ["TOKEN"])
"""


@pytest.mark.timeout(180)
def test_no_answer_file_or_log_has_the_value_of_a_secret(tmp_path: Path) -> None:
    """1 the value comes by stdin, 2 a job prints it in two parts and fails with it, 3 so does the setup of another,
    4 no answer about the jobs has it, 5 nor any file of the service: its database, its own log, a backup, a trace."""
    (tmp_path / "train.py").write_text(TELL)
    with (
        ServiceProcess(tmp_path / "state", {"GAVEL_ROUND_DURATION_S": "2", "GAVEL_LOG_REQUESTS": "all"}) as service,
        Client(service.url, service.operator_token) as operator,
    ):
        environment = {"PATH": os.environ["PATH"], "GAVEL_URL": service.url, "GAVEL_TOKEN": service.operator_token}
        outputs = []

        def gavel(*arguments: str, stdin: str = "") -> str:
            command = [sys.executable, "-m", "gavel.cli", *arguments]
            options = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "timeout": 60}
            done = subprocess.run(command, check=False, input=stdin, **options)
            assert done.returncode == 0, done.stderr
            outputs.append(done.stdout + done.stderr)
            return str(done.stdout)

        gavel("secret", "set", "TOKEN", stdin=f"{VALUE}\n")
        assert wait_until(lambda: bool(operator.cluster()["workers"]), 90)
        submit = ("job", "submit", "--no-snapshot", "--secret", "TOKEN", "--steps", "3", "--json", "train.py")
        job_id = json.loads(gavel(*submit))["id"]
        job = operator.wait(job_id, 90)
        log = "".join(operator.read_logs(job_id))
        assert job["state"] == "FAILED" and log.splitlines()[-2:] == ["it is ***", "failed with ***"], log
        shim = tmp_path / "python"
        shim.write_text(f'#!/bin/sh\nshift 3\nexec {sys.executable} -I -m venv --without-pip "$@"\n')
        shim.chmod(0o755)
        asked = {"setup": "echo $TOKEN; exit 3", "secrets": ["TOKEN"], "python": str(shim), "max_retries": 2}
        other_id = operator.submit(argv=["python", "train.py"], total_steps=3, **asked)["id"]
        other = operator.wait(other_id, 90)
        assert (other["state"], other["reason"]) == ("FAILED", "ProgramNotStarted"), other
        assert "its setup failed with exit code 3" in other["message"] and other["failures"] == 0
        assert "".join(operator.read_logs(other_id)) == "[setup] ***\n"
        gavel("export-trace", "trace.csv")
        gavel("db", "backup", "backup.db", "--database-url", f"sqlite:///{tmp_path}/state/gavel.db")
        of_jobs = [f"/v1/jobs/{each}{part}" for each in (job_id, other_id) for part in PARTS]
        paths = ("/v1/jobs", *of_jobs, "/v1/audit", "/v1/secrets", "/v1/summary", "/metrics")
        answers = [operator._http.get(path).text for path in paths]
        assert all(VALUE not in text for text in (*outputs, *answers))
        assert wait_until(lambda: not list((tmp_path / "state" / "gangs").glob("*/*/launch.json")), 30)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "gavel.db" for path in files)
    assert [path for path in files if VALUE.encode() in path.read_bytes()] == []
