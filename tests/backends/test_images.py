"""Images that a node lacks: pulled once and before the ranks start, by a stand-in for Podman that can be held up."""

from pathlib import Path

import pytest

from gavel.backends.harness import exit_of, is_in
from gavel.backends.launch import Preparation
from gavel.ports import Instruction
from gavel.types import GangOutcome, GangState
from tests.backends.clusters import LocalHarness, directory, eventually, script

IMAGE = "registry.example/train:1"
PODMAN = """#!/bin/sh
cd FOLDER
case "$1 $2" in
"image exists") test -e here;;
"pull --quiet")
    echo "$REGISTRY_AUTH_FILE" >> pulls
    while [ ! -e go ]; do sleep 0.02; done
    if [ -e fails ]; then echo "Error: initializing source" >&2; echo "manifest unknown" >&2; exit 125; fi
    touch here;;
"run "*) while [ "$1" != IMAGE ]; do shift; done; shift; exec "$@";;
esac
"""


@pytest.fixture
def node(tmp_path: Path, harness: LocalHarness) -> Path:
    """What the stand-in keeps: `go` lets pulls end, `fails` makes them fail, `pulls` has a line for each."""
    folder = tmp_path / "podman"
    folder.mkdir()
    program = folder / "podman"
    program.write_text(PODMAN.replace("FOLDER", str(folder)).replace("IMAGE", IMAGE))
    program.chmod(0o700)
    harness.crash()
    harness.backend = harness.open(preparation=Preparation(image_command=(str(program),)))
    return folder


def in_image(harness: LocalHarness, job_id: str, *workers: str, **over: object) -> list[Instruction]:
    return script(harness, "", *workers, job_id=job_id, argv=("echo", "trains"), image=IMAGE, **over)


def begun(node: Path) -> bool:
    return (node / "pulls").exists()


def test_jobs_of_one_image_wait_for_one_pull(harness: LocalHarness, node: Path) -> None:
    """No rank has started meanwhile, so the time counts for no progress; each log says how long it took."""
    credentials = {"REGISTRY_AUTH_FILE": "/home/ann/auth.json"}
    harness.backend.execute(in_image(harness, "j1", "a-0", env=credentials))
    eventually(lambda: begun(node))
    harness.backend.execute(in_image(harness, "j2", "a-1"))
    eventually((harness.folder / "images/jobs/j2").exists)
    assert not any((directory(harness, job_id) / "started.json").exists() for job_id in ("j1", "j2"))
    (node / "go").touch()
    for job_id in ("j1", "j2"):
        assert exit_of(harness, job_id).exit_code == 0
        lines = harness.backend.read_log(job_id)[0].decode().splitlines()
        assert lines[-1] == "trains" and lines[-2].startswith(f"[image] {IMAGE} is there after ")
    assert (node / "pulls").read_text() == "/home/ann/auth.json\n"


def test_a_pull_that_fails_ends_the_job_and_a_later_job_pulls_again(harness: LocalHarness, node: Path) -> None:
    (node / "go").touch()
    (node / "fails").touch()
    harness.backend.execute(in_image(harness, "j1"))
    end = exit_of(harness, "j1")
    assert end.outcome is GangOutcome.NOT_STARTED
    assert end.message.startswith(f"its image {IMAGE} could not be pulled on node ")
    assert end.message.endswith(": manifest unknown")
    (node / "fails").unlink()
    harness.backend.execute(in_image(harness, "j2"))
    assert exit_of(harness, "j2").exit_code == 0


def test_a_pull_goes_on_when_the_lease_ends(harness: LocalHarness, node: Path) -> None:
    harness.backend.execute(in_image(harness, "j1", lease_expires_at_s=harness.now_s() + 0.5))
    harness.wait_until(is_in(GangState.ENDED, "j1"))
    end = exit_of(harness, "j1")
    assert (end.outcome, end.message) == (
        GangOutcome.PREEMPTED,
        "its lease ended while its image was pulled, which goes on",
    )
    (node / "go").touch()
    eventually((node / "here").exists)
    harness.backend.execute(in_image(harness, "j1", generation=2, resource="gavel/gang-j1-1"))
    assert exit_of(harness, "j1", 2).exit_code == 0
    assert len((node / "pulls").read_text().splitlines()) == 1
