"""`gavel profile` on the real machine, with a script that only counts."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import time
from gavel_runtime import job
for step in job.steps():
    time.sleep(0.02)
"""


def profile(folder: Path, text: str) -> "subprocess.CompletedProcess[str]":
    (folder / "script.py").write_text(text)
    command = [sys.executable, "-m", "gavel.cli", "profile", "--seconds", "2", "script.py"]
    environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(folder), "HOME": str(folder)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def test_a_script_is_measured_on_every_type_and_nothing_is_left(folder: Path) -> None:
    done = profile(folder, SCRIPT)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[1:-1]]
    assert all(row[2].startswith("±") for row in rows)
    assert len(rows) >= 2 and all(12.5 < float(row[1]) < 52.5 for row in rows)
    assert "--throughput" in done.stdout.splitlines()[-1]
    assert [path.name for path in folder.iterdir()] == ["script.py"]


def test_a_script_that_fails_is_quoted(folder: Path) -> None:
    done = profile(folder, "raise SystemExit('no data set here')")
    assert done.returncode == 2 and "no data set here" in done.stderr
    assert [path.name for path in folder.iterdir()] == ["script.py"]


@pytest.mark.full
def test_a_script_that_ends_before_it_is_measured_is_told_what_to_loop_over(folder: Path) -> None:
    done = profile(folder, "print('hello')")
    assert done.returncode == 2 and "job.steps()" in done.stderr and "hello" in done.stderr
