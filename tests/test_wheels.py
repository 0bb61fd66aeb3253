"""What is installed: gavel's wheel has the runtime of jobs in it, which is also a package of its own without others."""

import os
import subprocess
import sys
import zipfile
from email import message_from_bytes
from email.message import Message
from importlib.metadata import version as gavel_version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OWN = {"PATH": os.environ["PATH"], "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def built(folder: Path, into: Path) -> zipfile.ZipFile:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(into)]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stderr
    return zipfile.ZipFile(next(into.glob("*.whl")))


def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return message_from_bytes(wheel.read(name))


def modules(wheel: zipfile.ZipFile) -> dict[str, bytes]:
    return {name: wheel.read(name) for name in wheel.namelist() if name.startswith("gavel_runtime/")}


def test_the_runtime_is_in_both_wheels_and_its_own_has_no_dependencies(tmp_path: Path) -> None:
    service, runtime = built(ROOT, tmp_path / "service"), built(ROOT / "runtime", tmp_path / "runtime")
    assert modules(service) == modules(runtime) != {}
    assert {name.split("/")[0] for name in runtime.namelist() if "dist-info" not in name} == {"gavel_runtime"}
    assert metadata(service)["Version"] == metadata(runtime)["Version"]
    assert metadata(runtime).get_all("Requires-Dist") is None


BY_HAND = """
from importlib.metadata import version
from importlib.util import find_spec

from gavel_runtime import job

assert find_spec("gavel") is None
done = [step for step in job.steps(total=3, checkpoint=lambda folder: None, restore=lambda folder: None)]
print(version("gavel-runtime"), done)
"""


@pytest.mark.full
def test_the_installed_runtime_runs_a_script_by_hand_without_gavel(tmp_path: Path) -> None:
    """1 an empty environment, 2 pip install of the wheel, without an index, 3 the script with its interpreter."""
    built(ROOT / "runtime", tmp_path).close()
    (wheel,) = tmp_path.glob("*.whl")
    (tmp_path / "train.py").write_text(BY_HAND)
    python = tmp_path / "empty" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", str(python), "install", "--no-index", "--quiet", str(wheel))
    for command in ((sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "empty")), pip):
        subprocess.run(command, env=OWN, capture_output=True, text=True, timeout=100, check=True)
    ran = subprocess.run(
        (python, "train.py"), cwd=tmp_path, env=OWN, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.stdout, ran.stderr) == (f"{gavel_version('gavel')} [0, 1, 2]\n", "")
