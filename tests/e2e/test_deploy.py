"""What is shipped for operators is what the programs that read it accept."""

import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gavel.backends.control_groups import LEAF
from tests.e2e.processes import Member

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
PROBE = (
    'echo "gavel wrote" > "$GAVEL_OUTPUT_DIR/file"; cat "$GAVEL_OUTPUT_DIR/file"; mktemp >/dev/null || exit 1;'
    ' touch /etc/gavel-was-here 2>/dev/null || echo "elsewhere was refused";'
    f" {sys.executable} -c \"import ctypes; print('ptrace:', ctypes.CDLL(None).ptrace(0, 0, 0, 0))\""
)
ROOT = Path(__file__).parents[2]
UNITS = ROOT / "deploy" / "systemd"


@pytest.mark.parametrize("name", ["gavel", "gavel-api"])
def test_systemd_accepts_the_units(name: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze (Debian: apt install systemd)")
    text = (UNITS / f"{name}@.service").read_text()
    installed = text.replace("/opt/gavel/.venv/bin/gavel", str(Path(sys.executable).with_name("gavel")))
    unit = tmp_path / f"{name}@8080.service"
    unit.write_text(installed)
    ran = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0 and unit.name not in ran.stderr, ran.stderr


def test_no_stop_of_the_service_ends_its_gangs() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment]
    unit.read_string((UNITS / "gavel@.service").read_text())
    assert unit["Service"]["KillMode"] == "process" and unit["Service"]["OOMPolicy"] == "continue"


def test_an_api_alone_may_see_processes() -> None:
    """Else it takes the service that leads for dead, and finds nobody behind the ports of jobs."""
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.read_string((UNITS / "gavel-api@.service").read_text())
    assert not {"privateusers", "protectproc", "procsubset"} & set(unit["Service"])


def test_a_service_that_is_given_control_groups_by_the_page_s_drop_in_may_write_them() -> None:
    """The unit has them read-only, which `Delegate=` alone does not undo."""
    page = (ROOT / "docs" / "operating.md").read_text()
    (drop_in,) = (text for text in re.findall(r"^```ini\n(.*?)^```", page, re.S | re.M) if "Delegate=" in text)
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment]
    unit.read_string((UNITS / "gavel@.service").read_text() + drop_in)
    assert unit["Service"]["ProtectControlGroups"] == "no" and unit["Service"]["DelegateSubgroup"] == LEAF


@pytest.mark.parametrize("name", ["gavel", "gavel-api"])
def test_the_units_are_hardened(name: str, tmp_path: Path) -> None:
    """By the measure of systemd itself: from 0, safe, to 10; what is not restricted raises it."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze (Debian: apt install systemd)")
    unit = tmp_path / f"{name}@8080.service"
    unit.write_text((UNITS / f"{name}@.service").read_text())
    asked = ["systemd-analyze", "security", "--offline=true", "--threshold=29", str(unit)]
    ran = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stdout


@pytest.mark.skipif(not IS_FULL, reason="whole services: only with GAVEL_TEST_PROFILE=full")
def test_jobs_run_and_the_api_answers_under_the_restrictions_of_the_units(tmp_path: Path) -> None:
    """1. A gang of two is prepared and saves. 2. What a unit refuses is refused. 3. The API alone, and a what-if."""
    for program in ("bwrap", "systemd-analyze"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program} (Debian: apt install bubblewrap systemd)")
    state, settings = tmp_path / "state", {"GAVEL_CPU_WORKERS": "2", "GAVEL_ROUND_DURATION_S": "2"}
    state.mkdir()
    with Member(state, settings, wrapped_in=under("gavel", state)) as member, member.client() as client:
        job = client.submit(argv=["sh", "-c", PROBE], total_steps=1, scale_factor=2, setup="echo prepared")
        assert client.wait(job["id"], timeout_s=120)["state"] == "COMPLETED", client.read_logs(job["id"])
        text = "".join(client.read_logs(job["id"]))
        assert "gavel wrote" in text and "elsewhere was refused" in text and "ptrace: -1" in text
        with Member(state, settings, "--api-only", wrapped_in=under("gavel-api", state)) as api, api.client() as asked:
            assert asked.job(job["id"])["state"] == "COMPLETED"
            assert asked.what_if(policy="fifo")


def under(unit: str, state: Path) -> list[str]:
    return [sys.executable, "-m", "tests.restricted", str(UNITS / f"{unit}@.service"), str(state.parent), "--"]
