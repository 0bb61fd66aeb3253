"""What is installed: gavel's wheel has the runtime of jobs in it, which is also a package of its own without others."""

import subprocess
import sys
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

ROOT = Path(__file__).parents[1]


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


def test_the_runtime_runs_by_hand_from_its_own_wheel(tmp_path: Path) -> None:
    with built(ROOT / "runtime", tmp_path) as wheel:
        wheel.extractall(tmp_path / "site")
    program = "from gavel_runtime import job\nprint([*job.steps(total=3)])"
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r})\n{program}",
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "[0, 1, 2]\n"
