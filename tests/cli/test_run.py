"""`gavel run`: a preemption test for users' scripts."""

import subprocess
import sys
from pathlib import Path

import pytest

from gavel.cli.run import compared_ends

EXAMPLE = Path(__file__).parents[2] / "examples" / "train.py"
FORGETFUL = """
from gavel_runtime import job

velocity = [0.0]
for step in job.steps(checkpoint=lambda path: None, restore=lambda path: None, total=20):
    velocity[0] = 0.5 * velocity[0] + step
    job.report(velocity=velocity[0])
"""
UNSAVED = "from gavel_runtime import job\nfor step in job.steps(total=20):\n    pass\n"


def run_it(*argv: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gavel.cli", "run", *argv]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110, check=False)


def test_a_script_that_saves_everything_survives_preemption(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(EXAMPLE.read_text().replace("3000", "60"))
    ran = run_it("--kills", "2", str(script), folder=tmp_path)
    assert ran.returncode == 0, ran
    assert "It survives preemption" in ran.stdout
    assert "of 60." in ran.stdout


@pytest.mark.parametrize(
    ("text", "code", "sentence"),
    [
        (FORGETFUL, 1, "It does not continue as it should: after step"),
        (FORGETFUL.replace("job.report(velocity=", "print("), 1, "its last line is '"),
        (UNSAVED, 2, "it was stopped and wrote no checkpoint"),
        ("print(1)\n", 2, "it takes no steps from gavel_runtime"),
        ("raise SystemExit(3)\n", 2, "it ended with exit code 3 before it was stopped at all"),
    ],
)
def test_a_script_that_does_not_is_told_why(text: str, code: int, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(text)
    ran = run_it("--kills", "1", "train.py", folder=tmp_path)
    assert ran.returncode == code, ran
    assert sentence in ran.stdout + ran.stderr


def test_the_last_lines_are_compared_where_nothing_is_reported() -> None:
    assert compared_ends("a 1.0\nloss 0.5 after 7\n", "x\nloss 0.5000000001 after 7", 1e-6)[1]
    assert not compared_ends("loss 0.5\n", "loss 0.51\n", 1e-6)[1]
    assert not compared_ends("loss 0.5\n", "", 1e-6)[1]
    assert "there is nothing to compare" in compared_ends("done", "done", 1e-6)[0]


def test_a_rank_finds_its_gang_as_under_the_service(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, socket\nfrom gavel_runtime import job\n"
        "assert [os.environ[name] for name in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK')] == ['0', '1', '0']\n"
        "meeting = socket.socket()\nmeeting.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
        "meeting.bind((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])))\nmeeting.listen()\n"
        "for step in job.steps(total=3, checkpoint=lambda path: None, restore=lambda path: None):\n    print(step)\n"
    )
    ran = run_it("--kills", "1", "train.py", folder=tmp_path)
    assert ran.returncode == 0, ran
    assert "its last line is the same in one piece and in parts: 2" in ran.stdout
