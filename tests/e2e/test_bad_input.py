"""What a user reads after a mistake: each sentence names the field and what to do."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until

pytestmark = pytest.mark.skipif(
    os.environ.get("GAVEL_TEST_PROFILE") != "full", reason="the full profile: a service, and a job for each mistake"
)
Gavel = Callable[..., str]
NEVER_REPORTS = "import time\nwhile True: time.sleep(1)\n"
OLD_LIBRARY = """
from gavel_runtime._versions import warn_if_untested
warn_if_untested("torch", "1.4.0")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("user") / "project"
    folder.mkdir()
    (folder / "fine.py").write_text("print('fine')\n")
    (folder / "never_reports.py").write_text(NEVER_REPORTS)
    (folder / "old_library.py").write_text(OLD_LIBRARY)
    (folder / "job.yaml").write_text("argv: [fine.py]\ntotal_stpes: 5\n")
    large = folder.parent / "large"
    (large / "sets").mkdir(parents=True)
    (large / "sets" / "images").write_bytes(bytes(3_000_000))
    (large / "train.py").write_text("pass\n")
    return folder


@pytest.fixture(scope="module")
def gavel(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gavel]:
    """Runs a command of a user beside a service; returns all that it printed."""
    state = tmp_path_factory.mktemp("service") / "state"
    given = {"GAVEL_ROUND_DURATION_S": "1", "GAVEL_START_LIMIT_S": "1", "GAVEL_CODE_BYTES": "2000000"}
    with ServiceProcess(state, given) as service, Client(service.url, service.operator_token) as operator:
        assert wait_until(lambda: bool(operator.cluster()["workers"]), 90)
        environment = {"PATH": os.environ["PATH"], "GAVEL_URL": service.url, "GAVEL_TOKEN": service.operator_token}

        def run(*arguments: str) -> str:
            command = [sys.executable, "-m", "gavel.cli", *arguments]
            options = {"cwd": folder, "env": environment, "capture_output": True, "text": True, "timeout": 120}
            done = subprocess.run(command, check=False, **options)
            assert "Traceback" not in done.stderr, done.stderr
            return " ".join((done.stdout + done.stderr).split())

        yield run


REFUSED = [
    (("--data", "train=gone", "fine.py"), "--data train: there is no {folder}/gone on the service's machine"),
    (("--data", "train=s4://there/x", "fine.py"), "--data train: s4://there/x is neither an absolute path nor a URL"),
    (("--data", "train=s3://there/x", "fine.py"), "--data train: s3:// needs the package s3fs"),
    (("--secret", "TOKEN", "fine.py"), "--secret: there is no secret TOKEN; store it with gavel secret set TOKEN"),
    (("--workdir", "../large", "../large/train.py"), "largest are sets/ (3.0 MB)"),
    (("--file", "job.yaml"), "job.yaml:2:1: there is no field total_stpes; did you mean total_steps?"),
    (("--env", "RANK=1", "fine.py"), "--env RANK: it differs from rank to rank; Gavel sets it"),
]


@pytest.mark.parametrize(("options", "sentence"), REFUSED)
def test_what_is_refused_at_the_submit(gavel: Gavel, folder: Path, options: tuple[str, ...], sentence: str) -> None:
    printed = gavel("job", "submit", "--steps", "5", *options)
    assert sentence.format(folder=folder) in printed


FAILS = [
    (("--python", "/no/python", "fine.py"), ("The interpreter /no/python is not on node", "(--python)")),
    (
        ("--setup", "echo no such package; exit 3", "fine.py"),
        ("setup failed with exit code 3", "no such package", "--setup"),
    ),
    (("--data", "x=http://127.0.0.1:9/x", "fine.py"), ("Its input x could not be fetched: 127.0.0.1:9", "--data")),
    (
        ("never_reports.py",),
        ("no progress The program reported no step in 2 leases", "if it does not use `job.steps` yet"),
    ),
    (("old_library.py",), ("torch 2.13", "install torch==2.13.*")),
]


@pytest.mark.parametrize(("options", "sentences"), FAILS)
def test_what_fails_on_the_node(gavel: Gavel, options: tuple[str, ...], sentences: tuple[str, ...]) -> None:
    """The page of the job in the command line, with the last lines of its log, says it."""
    name = f"bad-{FAILS.index((options, sentences))}"
    gavel("job", "submit", "--no-snapshot", "--steps", "5", "--name", name, *options)
    shown = ""

    def is_shown() -> bool:
        nonlocal shown
        shown = gavel("job", "show", name) + gavel("job", "logs", name)
        return all(each in shown for each in sentences)

    assert wait_until(is_shown, 60), shown
    gavel("job", "cancel", name)
