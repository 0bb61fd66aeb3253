"""A secret from the command line to the job of the real service: it is in nothing that anybody can read."""

import json
import os
import re
import string
import subprocess
import sys
from itertools import product
from pathlib import Path
from random import Random

import pytest

from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
RANDOM = Random(os.environ.get("GAVEL_TEST_SECRETS_SEED", "1"))
LETTERS = string.ascii_letters + string.digits + "-_"
VALUE = "".join(RANDOM.choices(LETTERS, k=19))
KEY = "\n".join("".join(RANDOM.choices(LETTERS + "\"'\\é %{}", k=24)) for _ in range(3))
ENDLESS = ("/v1/watch",)
TELL = """
import os, sys, time
from gavel_runtime import job
for step in job.steps(total=1):
    job.report(**{os.environ["TOKEN"]: 1.0, os.environ["KEY"].splitlines()[0]: 2.0})
for start in range(0, len(os.environ["KEY"]), 5):
    sys.stdout.write(os.environ["KEY"][start : start + 5]); sys.stdout.flush()
print()
sys.stdout.write("it is " + os.environ["TOKEN"][:9]); sys.stdout.flush()
time.sleep(0.2)
print(os.environ["TOKEN"][9:])
raise SystemExit("failed with " + os.environ["TOKEN"])
"""


def forms(value: str) -> set[bytes]:
    """Return the value, and its lines, as texts, answers in JSON and messages of Python may have them."""
    lines = {value, *value.splitlines()}
    texts = {form for each in lines for form in (each, json.dumps(each)[1:-1], repr(each)[1:-1])}
    return {text.encode() for text in texts} | {json.dumps(each, ensure_ascii=False)[1:-1].encode() for each in lines}


HIDDEN = forms(VALUE) | forms(KEY)


def leaks(content: bytes) -> bool:
    return any(form in content for form in HIDDEN)


def get_routes(client: Client, job_ids: list[str], rounds: int) -> list[str]:
    """Return the address of every GET route, for each of these jobs and rounds."""
    addresses = set()
    for path, methods in client._http.get("/openapi.json").json()["paths"].items():
        if "get" in methods and path not in ENDLESS:
            for job_id, index in product(job_ids, range(rounds)):
                values = {"job_id": job_id, "index": str(index), "name": "default"}
                addresses.add(re.sub(r"\{(\w+)\}", lambda name, values=values: values.get(name[1], "1-1"), path))
    return sorted(addresses)


@pytest.mark.timeout(180)
@pytest.mark.skipif(not IS_FULL, reason="takes 20 s: in the full profile")
def test_no_answer_file_or_log_has_the_value_of_a_secret(tmp_path: Path) -> None:
    """1 the value comes by stdin, 2 a job prints it in two parts and fails with it, 3 so does the setup of another,
    4 no answer of any GET route has it, 5 nor any file of the service: its database with the WAL, its own log, a
    backup, a trace. A second secret has several lines and what JSON escapes."""
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
        operator.put_secret("KEY", KEY)
        assert wait_until(lambda: bool(operator.cluster()["workers"]), 90)
        submit = (
            "job",
            "submit",
            "--no-snapshot",
            "--secret",
            "TOKEN",
            "--secret",
            "KEY",
            "--steps",
            "1",
            "--json",
            "train.py",
        )
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
        assert "Its setup failed with exit code 3" in other["message"] and other["failures"] == 0
        assert "".join(operator.read_logs(other_id)) == "[setup] ***\n"
        again_id = json.loads(gavel("job", "resubmit", job_id, "--json"))["id"]
        assert operator.wait(again_id, 90)["state"] == "FAILED"
        again = "".join(operator.read_logs(again_id)).splitlines()
        assert again[-3:] == log.splitlines()[-3:], "it has the secrets, too"  # a new lease may begin it once more
        gavel("job", "spec", again_id)
        gavel("export-trace", "trace.csv")
        gavel("db", "backup", "backup.db", "--database-url", f"sqlite:///{tmp_path}/state/gavel.db")
        for address in get_routes(operator, [job_id, other_id, again_id], 5):
            answer = operator._http.get(address)
            assert answer.status_code < 500 and not leaks(answer.content), address
        assert not [text for text in outputs if leaks(text.encode())]
        assert wait_until(lambda: not list((tmp_path / "state" / "gangs").glob("*/*/launch.json")), 30)
        written = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
        assert any(path.name == "gavel.db-wal" for path in written)
        assert [path for path in written if leaks(path.read_bytes())] == []
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "gavel.db" for path in files)
    assert [path for path in files if leaks(path.read_bytes())] == []
