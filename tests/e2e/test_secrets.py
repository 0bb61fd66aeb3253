"""A secret from the command line to the job of the real service: it is in nothing that anybody can read."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until

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
    """1 the value comes by stdin, 2 a job prints it in two parts and fails with it, 3 no answer about the job has it,
    4 nor any file of the service, its database, its own log, a backup and an exported trace among them."""
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
        assert "TOKEN" in gavel("secret", "list")
        assert wait_until(lambda: bool(operator.cluster()["workers"]), 90)
        submit = ("job", "submit", "--no-snapshot", "--secret", "TOKEN", "--steps", "3", "--json", "train.py")
        job_id = json.loads(gavel(*submit))["id"]
        job = operator.wait(job_id, 90)
        log = "".join(operator.read_logs(job_id))
        assert job["state"] == "FAILED" and log.splitlines()[-2:] == ["it is ***", "failed with ***"], log
        for command in ("show", "explain", "spec", "events", "logs"):
            gavel("job", command, job_id)
        gavel("export-trace", "trace.csv")
        gavel("db", "backup", "backup.db", "--database-url", f"sqlite:///{tmp_path}/state/gavel.db")
        paths = ("/v1/jobs", f"/v1/jobs/{job_id}", f"/v1/jobs/{job_id}/audit", "/v1/audit", "/v1/secrets", "/metrics")
        answers = [operator._http.get(path).text for path in paths]
        assert all(VALUE not in text for text in (*outputs, *answers))
        assert wait_until(lambda: not list((tmp_path / "state" / "gangs").glob("*/*/launch.json")), 30)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "gavel.db" for path in files)
    assert [path for path in files if VALUE.encode() in path.read_bytes()] == []
