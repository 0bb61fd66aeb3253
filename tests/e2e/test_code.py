"""A user's own code, from the command line to the running job of the real service."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until
from tests.client.test_worktree import git

TRAIN = """
import sys
from pathlib import Path
from gavel_runtime import job
from lib import WORD
import importlib.util

Path("made").write_text("by the job")
for step in job.steps():
    pass
hidden = [name for name in ("gavel", "workloads", "numpy") if importlib.util.find_spec(name)]
print(WORD, sys.argv[1:], sys.prefix, hidden)
"""


@pytest.mark.full
@pytest.mark.timeout(180)
def test_a_job_runs_the_code_and_interpreter_of_its_submission(tmp_path: Path) -> None:
    """1 a repository with an environment of its own, 2 two jobs are submitted there, 3 between them a file is changed,
    4 each runs what was there, 5 and says which; the folder has nothing new."""
    project = tmp_path / "project"
    venv.create(project / ".venv", with_pip=False, symlinks=True)
    (project / "train.py").write_text(TRAIN)
    (project / "lib.py").write_text("WORD = 'before'\n")
    (project / ".gitignore").write_text(".venv\n")
    git(tmp_path, "init", "-q", "project")
    git(project, "add", ".")
    git(project, "commit", "-qm", "first")
    with (
        ServiceProcess(tmp_path / "state", {"GAVEL_ROUND_DURATION_S": "2"}) as service,
        Client(service.url, service.operator_token) as operator,
    ):
        assert wait_until(lambda: bool(operator.cluster()["workers"]), 90)
        environment = {"PATH": os.environ["PATH"], "GAVEL_URL": service.url, "GAVEL_TOKEN": service.operator_token}
        gavel = [sys.executable, "-m", "gavel.cli", "job"]
        options = {"cwd": project, "env": environment, "capture_output": True, "text": True, "timeout": 60}

        def ran(*arguments: str) -> str:
            done = subprocess.run([*gavel, *arguments], check=False, **options)
            assert done.returncode == 0, done.stderr
            return str(done.stdout)

        def submitted() -> str:
            return str(json.loads(ran("submit", "--steps", "3", "--json", "train.py", "--lr", "1"))["id"])

        first = submitted()
        (project / "lib.py").write_text("WORD = 'after'\n")
        second = submitted()
        ended = [operator.wait(job_id, 90) for job_id in (first, second)]
        logs = ["".join(operator.read_logs(job["id"])) for job in ended]
        assert [job["state"] for job in ended] == ["COMPLETED", "COMPLETED"], logs
        assert logs == [f"{word} ['--lr', '1'] {project}/.venv []\n" for word in ("before", "after")]
        commit = git(project, "rev-parse", "HEAD")
        codes = [job["code"] for job in ended]
        assert [(code["commit"], code["is_modified"]) for code in codes if code] == [(commit, False), (commit, True)]
        assert not (project / "made").exists()
        assert f"commit {commit[:12]} with changes (gavel job diff {second})" in ran("show", second)
        assert (ran("diff", first), "-WORD = 'before'\n+WORD = 'after'\n" in ran("diff", second)) == ("", True)
