"""Jobs in images, with the real Podman: what a rank sees there, and that nothing of it outlives its gang."""

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gavel.backends.code_store import CodeStore
from gavel.backends.containers import SEARCH, in_container
from gavel.backends.harness import exit_of, is_in, resource, stop
from gavel.backends.input_cache import CachedInput
from gavel.backends.launch import Preparation
from gavel.backends.machine import read_json, write_json
from gavel.ports import ExtendLease
from gavel.types import GangOutcome, GangState
from tests.backends.clusters import LocalHarness, directory, eventually, script
from tests.backends.code import stored

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
PODMAN = list(Preparation().image_command)
BUSYBOX = "/bin/busybox"
PROGRAMS = ("sh", "sleep", "echo", "cat", "env", "pwd", "wc", "id", "grep", "touch")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image that has nothing but a static busybox, gone afterwards."""
    if shutil.which("podman", path=SEARCH) is None or not os.path.exists(BUSYBOX):
        pytest.skip("podman or busybox-static is missing (apt-get install podman runc busybox-static)")
    archive, name = tmp_path_factory.mktemp("image") / "image.tar", f"gavel-test-{os.getpid()}"
    with tarfile.open(archive, "w") as file:
        file.add(BUSYBOX, "bin/busybox")
        for program in PROGRAMS:
            link = tarfile.TarInfo(f"bin/{program}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            file.addfile(link)
    command = [*PODMAN, "import", str(archive), name]
    made = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if made.returncode:
        pytest.skip(f"podman cannot make an image here: {made.stderr.strip()[-200:]}")
    yield f"localhost/{name}"
    subprocess.run([*PODMAN, "rmi", "--force", name], capture_output=True, timeout=120, check=True)


def containers(job_id: str) -> list[str]:
    """The containers of a job that Podman knows, ended ones included."""
    command = [*PODMAN, "ps", "--all", "--quiet", "--filter", f"label=gavel.job=gavel-{job_id}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.split()


def in_image(harness: LocalHarness, image: str, text: str, job_id: str, **over: object) -> None:
    harness.backend.execute(script(harness, "", job_id=job_id, argv=("sh", "-c", text), image=image, **over))


def test_a_rank_runs_in_its_image_with_the_folders_of_its_job(
    harness: LocalHarness, image: str, tmp_path: Path
) -> None:
    """1 the root is the image's, 2 variables are the job's, but PATH is the image's, 3 it writes to its
    folders as the service's user, 4 its exit code is the program's."""
    harness.crash()
    harness.backend = harness.open(preparation=Preparation(secrets_of=lambda user, names: {"TOKEN": "a-long-secret"}))
    lines = (
        'test ! -e /usr && pwd && echo "$TWO" "$LD_LIBRARY_PATH" $RATE $TOKEN && echo $PATH | grep -v venv > /dev/null'
    )
    text = f'{lines} && touch made "$GAVEL_CHECKPOINT_DIR/saved" "$GAVEL_GANG_DIR/told" && exit 7'
    env = {"TWO": "one\ntwo", "LD_LIBRARY_PATH": "/nothing", "RATE": "0.1"}
    in_image(harness, image, text, "c1", env=env, workdir=str(tmp_path), secrets=("TOKEN",))
    end = exit_of(harness, "c1")
    assert (end.outcome, end.exit_code) == (GangOutcome.EXITED, 7), end
    assert end.log_tail.splitlines() == [str(tmp_path), "one", "two /nothing 0.1 ***"]
    assert (tmp_path / "made").stat().st_uid == os.getuid()
    assert (harness.folder / "checkpoints" / "c1" / "saved").exists() and (
        directory(harness, "c1") / "job" / "told"
    ).exists()
    assert containers("c1") == []


@contextmanager
def open_to_users() -> Iterator[LocalHarness]:
    """A local cluster in a folder that all users may pass, which those of pytest are not."""
    umask = os.umask(0o077)
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o711)
        harness = LocalHarness(Path(name) / "state")
        try:
            yield harness
        finally:
            harness.close()
            os.umask(umask)


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_a_rank_in_an_image_is_its_user(image: str) -> None:
    """1 it runs as the user with no rights, in folders that are its own, 2 it reads its code and an input that was
    fetched, 3 what is the service's stays closed to it, 4 nothing of its container is left."""
    uid = 2_000_001
    with open_to_users() as harness:
        harness.crash()
        harness.backend = harness.open(preparation=Preparation(uid_of=lambda user: uid))
        (harness.folder / "operator.token").write_text("secret")
        store = CodeStore(harness.folder, limit_bytes=1 << 30, kept_s=3600)
        code = stored(store, {"word.txt": b"word"})
        cached = CachedInput(str(harness.folder / "inputs"), "ann", "https://example.org/words")
        Path(cached.begin("v1"), "words").write_text("fetched")
        cached.finish("v1")
        cached.record("v1")
        (harness.folder / "inputs" / "jobs").mkdir()
        write_json(str(harness.folder / "inputs" / "jobs" / "u1"), {"words": {"ended": 1, "version": "v1"}})
        data = {"words": "https://example.org/words"}
        lines = [
            "id -u; id -g; grep -e NoNewPrivs -e CapEff -e CapPrm /proc/self/status",
            'cat word.txt "$GAVEL_DATA_WORDS"',
        ]
        made = 'touch "$HOME/home" "$GAVEL_CHECKPOINT_DIR/c" "$GAVEL_OUTPUT_DIR/o" "$GAVEL_GANG_DIR/g" here'
        refused = f'! cat {harness.folder}/operator.token && ! echo x > "$GAVEL_DATA_WORDS"'
        text = " && ".join((*lines, made, refused))
        in_image(harness, image, text, "u1", code=code, data=data)
        end = exit_of(harness, "u1")
        assert (end.outcome, end.exit_code) == (GangOutcome.EXITED, 0), end
        words = " ".join(end.log_tail.split())
        assert f"{uid} {uid} CapPrm: {'0' * 16} CapEff: {'0' * 16} NoNewPrivs: 1 word" in words and "fetched" in words
        for path in ("work/u1/home", "checkpoints/u1/c", "outputs/u1/o", "gangs/u1/1/job/g", "work/u1/code/here"):
            assert (harness.folder / path).stat().st_uid == uid, path
    assert containers("u1") == []


def test_inputs_are_in_the_container_and_can_only_be_read(harness: LocalHarness, image: str, tmp_path: Path) -> None:
    (tmp_path / "set.txt").write_text("here")
    text = 'cat "$GAVEL_DATA_TRAIN" && ! echo x > "$GAVEL_DATA_TRAIN"'
    in_image(harness, image, text, "c8", data={"train": str(tmp_path / "set.txt")})
    end = exit_of(harness, "c8")
    assert (end.outcome, end.exit_code) == (GangOutcome.EXITED, 0) and end.log_tail.startswith("here"), end
    assert (tmp_path / "set.txt").read_text() == "here"


@pytest.mark.skipif(not IS_FULL, reason="takes 20 s: in the full profile")
def test_a_lease_that_ends_stops_the_container_in_good_order(harness: LocalHarness, image: str) -> None:
    harness.crash()
    harness.backend = harness.open(lease_grace_s=30.0)  # Podman needs a while after the program's end
    text = "trap 'echo saving; exit 75' TERM; touch \"$GAVEL_GANG_DIR/go\"; while true; do sleep 0.02; done"
    in_image(harness, image, text, "c2")
    eventually((directory(harness, "c2") / "job" / "go").exists)
    harness.backend.execute(stop("c2"))
    end = exit_of(harness, "c2")
    assert (end.outcome, end.exit_code, end.log_tail) == (GangOutcome.PREEMPTED, 75, "saving")
    assert containers("c2") == []


@pytest.mark.full
def test_a_container_that_ignores_every_request_ends_with_its_lease(harness: LocalHarness, image: str) -> None:
    """1 its program and a process that it left ignore SIGTERM, 2 after the grace nothing of it is there."""
    text = "trap '' TERM; sleep 60 & touch \"$GAVEL_GANG_DIR/go\"; while true; do sleep 0.02; done"
    in_image(harness, image, text, "c3")
    eventually((directory(harness, "c3") / "job" / "go").exists)
    harness.backend.execute(stop("c3"))
    end = exit_of(harness, "c3")
    assert end.outcome is GangOutcome.PREEMPTED and "by force" in end.message
    eventually(lambda: harness.processes() == 0)
    assert containers("c3") == []


def test_a_container_does_not_outlive_a_supervisor_that_is_killed(harness: LocalHarness, image: str) -> None:
    """1 the gang is lost and its processes are gone, 2 the next gang of the job removes what Podman remembers of it."""
    in_image(harness, image, "while true; do sleep 0.02; done", "c4")
    harness.wait_until(is_in(GangState.RUNNING, "c4"))
    eventually(lambda: bool(containers("c4")))
    pid = int(read_json(str(directory(harness, "c4") / "supervisor.json"))["pid"])
    os.kill(pid, signal.SIGKILL)
    assert exit_of(harness, "c4").outcome is GangOutcome.LOST
    eventually(lambda: harness.processes() == 0)
    in_image(harness, image, "true", "c4", generation=2, resource="gavel/gang-c4-1")
    assert exit_of(harness, "c4", 2).outcome is GangOutcome.EXITED
    assert containers("c4") == []


@pytest.mark.full
def test_a_lease_is_extended_for_a_container_as_for_any_gang(harness: LocalHarness, image: str) -> None:
    in_image(harness, image, 'while [ ! -e "$GAVEL_GANG_DIR/go" ]; do sleep 0.02; done; echo done', "c5")
    until_s = harness.now_s() + 90
    harness.backend.execute([ExtendLease(job_id="c5", generation=1, expires_at_s=until_s)])
    lease = directory(harness, "c5") / "lease.json"
    eventually(lease.exists)
    (directory(harness, "c5") / "job" / "go").touch()
    assert exit_of(harness, "c5").log_tail == "done"


@pytest.mark.full
def test_warnings_of_podman_are_not_output_of_the_job(harness: LocalHarness, image: str) -> None:
    harness.crash()
    options = ("--network", "host", "--interactive", "--tty")  # without a terminal Podman warns of these
    harness.backend = harness.open(preparation=Preparation(image_options=options))
    in_image(harness, image, "echo done", "c7")
    assert exit_of(harness, "c7").log_tail.split() == ["done"]


def test_an_image_without_podman_is_refused_with_what_to_do(harness: LocalHarness) -> None:
    harness.crash()
    harness.backend = harness.open(preparation=Preparation(image_command=("no-such-podman",)))
    in_image(harness, "any", "true", "j1")
    end = exit_of(harness, "j1")
    assert end.outcome is GangOutcome.NOT_STARTED
    assert end.message == "no-such-podman is not on its node; install it there, or leave the image out"


def test_no_value_of_a_variable_is_in_a_command_line() -> None:
    image = {"name": "busybox", "command": ["podman"], "options": [], "folders": {"/work": "rw"}}
    launch = {"job_id": "j", "generation": 1, "cwd": "/work", "argv": ["sh"], "image": image}
    process = in_container(launch, "0", {"cpus": [], "env": {"TOKEN": "s3cret-value", "HOME": "/work"}})
    assert "s3cret-value" not in " ".join(process["argv"]) and process["env"]["TOKEN"] == "s3cret-value"
    assert "HOME=/work" in process["argv"] and "HOME" not in process["env"]


TRAINING = """
import pathlib, time
from gavel_runtime import job

for step in job.steps(checkpoint=lambda folder: (folder / "state").write_text(str(step)), restore=print):
    time.sleep(0.01)
"""


@pytest.mark.skipif(not IS_FULL, reason="takes 20 s: in the full profile")
def test_the_runtime_reports_and_checkpoints_from_a_container(harness: LocalHarness, image: str) -> None:
    """1 Python of this machine, mounted, imports the runtime, 2 steps are reported, 3 a stop makes a checkpoint, 4 the
    next gang restores it and trains to the end."""
    folders = [sys.base_prefix, *(each for each in ("/lib", "/lib64", "/usr/lib") if os.path.isdir(each))]
    options = ("--network", "host", *(f"--volume={each}:{each}:ro" for each in folders))
    harness.crash()
    harness.backend = harness.open(lease_grace_s=30.0, preparation=Preparation(image_options=options))
    argv = (f"{sys.base_prefix}/bin/python3", "-c", TRAINING)
    harness.backend.execute(script(harness, "", job_id="c6", argv=argv, image=image, total_steps=10**6))
    harness.wait_until(lambda seen: any(report.steps for each in seen.gangs for report in each.reports))
    harness.backend.execute(stop("c6"))
    assert exit_of(harness, "c6").exit_code == 75
    (checkpoint,) = (path.name for path in (harness.folder / "checkpoints" / "c6").iterdir())
    step = int(checkpoint.split("-")[1])
    over = {"generation": 2, "start_step": step, "total_steps": step + 3, "checkpoint": checkpoint}
    again = script(harness, "", job_id="c6", argv=argv, image=image, resource="gavel/again", **over)
    harness.backend.execute([resource(harness, "again"), *again[1:]])
    end = exit_of(harness, "c6", 2)
    assert (end.outcome, end.exit_code) == (GangOutcome.EXITED, 0) and end.log_tail.endswith(checkpoint), end
