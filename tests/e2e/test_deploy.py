"""What is shipped for operators is what the programs that read it accept."""

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"


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
