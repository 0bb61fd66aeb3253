"""`gavel run`: a preemption test for users' scripts."""

import subprocess
import sys
from pathlib import Path

import pytest

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
