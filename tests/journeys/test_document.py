"""docs/your-first-script.md, followed word by word by a new user in an empty folder, with a script of each kind."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until
from tests.journeys.journey import KINDS, MACHINE, PYTHON, ROOT, SCRIPTS, WITH_LIBRARIES

DOCUMENT = (ROOT / "docs" / "your-first-script.md").read_text()
BLOCKS = [block.splitlines() for block in re.findall(r"^```sh\n(.*?)^```", DOCUMENT, re.DOTALL | re.MULTILINE)]
OWN_SUBMIT = {"ddp": "--scale-factor 2", "keras": "KERAS_BACKEND"}
LIMIT_S = 500


def commands_for(kind: str) -> list[str]:
    """The first screen's commands; where the kind has a section with a submit of its own, that one."""
    own = [line for block in BLOCKS[1:] for line in block if OWN_SUBMIT.get(kind, "nothing") in line]
    return [*BLOCKS[0][:3], *(own or BLOCKS[0][3:])]


def test_each_kind_has_its_commands_in_the_document() -> None:
    for kind in KINDS:
        assert [line.split()[1] for line in commands_for(kind)] == ["init", "init", "run", "job"]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service with short rounds, so that the jobs are preempted."""
    with (
        ServiceProcess(tmp_path_factory.mktemp("service") / "state", {"GAVEL_ROUND_DURATION_S": "4"}) as running,
        Client(running.url, running.operator_token) as operator,
    ):
        assert wait_until(lambda: bool(operator.cluster()["workers"]), 60)
        yield running


def _events(submitted: str, service: ServiceProcess) -> list[str]:
    """What happened to the job whose submit said this."""
    with Client(service.url, service.operator_token) as operator:
        jobs = [line.split()[1] for line in submitted.splitlines() if line.startswith("submitted ")]
        return [f"{event}" for job in jobs for event in operator.events(job)]


@pytest.mark.parametrize("kind", KINDS)
@WITH_LIBRARIES
@pytest.mark.timeout(1200)
def test_a_new_user_gets_a_preemptible_job_by_the_document(kind: str, service: ServiceProcess, tmp_path: Path) -> None:
    shutil.copy(SCRIPTS / kind / "original.py", tmp_path / "train.py")
    environment = {
        **MACHINE,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "VIRTUAL_ENV": str(PYTHON.parent.parent),
        "GAVEL_URL": service.url,
        "GAVEL_TOKEN": service.operator_token,
    }
    del environment["PYTHONPATH"]
    for command in commands_for(kind):
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert ran.returncode == 0, "\n".join([command, ran.stdout, ran.stderr, *_events(ran.stderr, service)])
        if command.startswith("gavel run"):
            assert "It survives preemption" in ran.stdout
    assert "final" in ran.stdout, "the job's own last line, as it follows the log"
