"""A user's path: `gavel init` prints the patch of each script, and the patched one passes the test of `gavel run`."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.journeys.journey import KINDS, LIMIT_S, MACHINE, PYTHON, SCRIPTS, WITH_LIBRARIES


def gavel(*argv: str, folder: Path, text: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**MACHINE, "HOME": str(folder), "VIRTUAL_ENV": str(PYTHON.parent.parent)}
    command = [sys.executable, "-m", "gavel.cli", *argv]
    return subprocess.run(
        command, cwd=folder, env=environment, input=text, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


@pytest.mark.parametrize("kind", KINDS)
@WITH_LIBRARIES
@pytest.mark.timeout(900)
def test_a_script_with_the_printed_patch_survives_preemption(kind: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text((SCRIPTS / kind / "original.py").read_text())
    printed = gavel("init", "train.py", folder=tmp_path)
    subprocess.run(["patch", "-p1"], cwd=tmp_path, input=printed.stdout, text=True, timeout=60, check=True)
    ran = gavel("run", "--kills", "2", "train.py", folder=tmp_path)
    assert ran.returncode == 0, ran
    assert "It survives preemption" in ran.stdout
