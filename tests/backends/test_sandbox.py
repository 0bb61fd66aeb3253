"""A sandbox of a job: what a hostile program tries from inside, and what an ordinary one still can."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.backends import launch, machine, pci, sandbox, sandbox_mounts
from gavel.backends.harness import exit_of, find, gang, is_in, stop
from gavel.backends.launch import Preparation
from gavel.backends.sandbox import bubblewrap
from gavel.backends.sandbox_view import arguments, view_of
from gavel.types import GangExit, GangOutcome, GangState
from tests.backends.clusters import LocalHarness, bare_python, directory, eventually, script

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"

needs_bubblewrap = pytest.mark.skipif(
    bool(bubblewrap().problem), reason=bubblewrap().problem or "bubblewrap makes sandboxes here"
)

ATTEMPTS = """
import json, os, socket, sys
state, service, other = sys.argv[1], int(sys.argv[2]), sys.argv[3]

def outcome(attempt):
    try:
        return repr(attempt())
    except OSError as problem:
        return "refused: " + type(problem).__name__

def write(path):
    with open(path, "w") as file:
        return file.write("x")

def text(path):
    with open(path) as file:
        return file.read() or os.stat("/empty, as a hidden file is")

own = os.environ["GAVEL_GANG_DIR"]
print(json.dumps({
    "database": outcome(lambda: text(state + "/gavel.db")),
    "operator": outcome(lambda: text(state + "/operator.token")),
    "secrets": outcome(lambda: text(state + "/secrets.key")),
    "configuration": outcome(lambda: text(os.path.dirname(state) + "/gavel.toml")),
    "work": outcome(lambda: text(state + "/work/other/notes")),
    "checkpoints": outcome(lambda: os.listdir(state + "/checkpoints/other")),
    "jobs": outcome(lambda: os.stat(state + "/gangs/other")),
    "lease": outcome(lambda: text(state + "/gangs/other/1/lease.json")),
    "elsewhere": outcome(lambda: text(other)),
    "environment": outcome(lambda: text(f"/proc/{service}/environ")),
    "signal": outcome(lambda: os.kill(service, 0)),
    "shadow": outcome(lambda: text("/etc/shadow")),
    "own lease": outcome(lambda: write(own + "/../lease.json")),
    "own exit": outcome(lambda: write(own + "/../exit.json")),
    "own lease by its link": outcome(lambda: write(own + "/lease.json")),
    "forget": outcome(lambda: os.rename(own, own + ".old")),
    "disk": outcome(lambda: os.open("/dev/mem", os.O_RDONLY)),
    "system": outcome(lambda: write("/usr/bin/gavel-was-here")),
    "configuration of the system": outcome(lambda: write("/etc/gavel-was-here")),
    "kernel": outcome(lambda: open("/proc/sys/kernel/hostname", "r+")),
    "groups": outcome(lambda: os.mkdir("/sys/fs/cgroup/gavel-was-here")),
    "root": outcome(lambda: write("/gavel-was-here")),
    "mount": outcome(lambda: os.mknod(own + "/disk", 0o60600, os.makedev(8, 0))),
}))
"""

DAEMON = """
import os, sys, time
if os.fork():
    time.sleep(0.2)
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
os.execve("/bin/sleep", ["sleep", "86399.5"], {})
"""


@pytest.fixture
def sandboxed(harness: LocalHarness) -> Iterator[LocalHarness]:
    """The harness, with what a service keeps beside its jobs, and without a folder that all jobs see."""
    reopen(harness, isolation="sandbox", hidden_paths=(str(harness.folder.parent / "gavel.toml"),))
    for name in ("gavel.db", "operator.token", "secrets.key", "work/other/notes", "gangs/other/1/lease.json"):
        (harness.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (harness.folder / name).write_text("secret")
    (harness.folder / "checkpoints" / "other").mkdir(parents=True)
    (harness.folder.parent / "gavel.toml").write_text("secret")
    yield harness


def reopen(harness: LocalHarness, **over: Any) -> None:
    """Open the backend again with another preparation."""
    harness.backend.close()
    harness.backend = harness.open(preparation=Preparation(**over))


def ran(harness: LocalHarness, text: str, *workers: str, **over: object) -> GangExit:
    """How a gang of this shell script ended."""
    harness.backend.execute(script(harness, text, *workers, **over))
    return exit_of(harness, "j1")


@needs_bubblewrap
def test_nothing_of_the_service_other_jobs_or_the_system_is_in_reach(sandboxed: LocalHarness, tmp_path: Path) -> None:
    """1 the job tries each, with a folder around the state in its sandbox, 2 none of it worked."""
    outside = tmp_path / "elsewhere" / "notes"
    outside.parent.mkdir()
    outside.write_text("secret")
    project = tmp_path / "project"
    project.mkdir()
    (project / "attempts.py").write_text(ATTEMPTS)
    words = (sys.executable, "attempts.py", str(sandboxed.folder), str(os.getpid()), "../elsewhere/notes")
    sandboxed.backend.execute(script(sandboxed, "", argv=words, workdir=str(project)))
    end = exit_of(sandboxed, "j1")
    assert end.outcome is GangOutcome.EXITED and end.exit_code == 0, end
    outcomes = json.loads(end.log_tail)
    assert {name: text for name, text in outcomes.items() if not text.startswith("refused")} == {}
    assert not (directory(sandboxed, "j1") / "job.old").exists()


@needs_bubblewrap
def test_the_state_stays_hidden_in_a_folder_that_a_job_sees(harness: LocalHarness, tmp_path: Path) -> None:
    reopen(harness, isolation="sandbox", hidden_paths=(str(tmp_path / "gavel.toml"),))
    (harness.folder / "operator.token").write_text("secret")
    (tmp_path / "gavel.toml").write_text("secret")
    text = f"cat gavel.toml; cat {harness.folder}/operator.token; echo written > here; ls -A {harness.folder}"
    end = ran(harness, text, workdir=str(tmp_path))
    assert "secret" not in end.log_tail and "operator.token: No such file" in end.log_tail
    shown = ["checkpoints", "gangs", "interpreters", "outputs", "runtime", "work"]
    assert end.log_tail.split()[-6:] == shown
    assert (tmp_path / "here").read_text() == "written\n"


@needs_bubblewrap
def test_a_daemon_ends_with_its_gang(sandboxed: LocalHarness) -> None:
    """setsid, two forks and an empty environment: nothing names the gang, and yet nothing is left of it."""
    end = ran(sandboxed, "", argv=(sys.executable, "-I", "-S", "-c", DAEMON))
    assert end.outcome is GangOutcome.EXITED, end
    assert not sleepers("86399.5")


@needs_bubblewrap
def test_nothing_outlives_a_supervisor_that_is_killed(sandboxed: LocalHarness) -> None:
    daemon = "setsid env -i sleep 86398.5 & echo there; wait"
    sandboxed.backend.execute(script(sandboxed, daemon))
    sandboxed.wait_until(is_in(GangState.RUNNING, "j1"))
    eventually(lambda: len(sleepers("86398.5")) == 1)
    record = machine.read_json(str(directory(sandboxed, "j1") / "supervisor.json"))
    os.kill(record["pid"], signal.SIGKILL)
    eventually(lambda: not sleepers("86398.5"))
    assert exit_of(sandboxed, "j1").outcome is GangOutcome.LOST


def sleepers(seconds: str) -> list[str]:
    """The processes of this machine that sleep so long, as the daemon of one of these tests."""
    command = b"sleep\0" + seconds.encode()
    return [path.parent.name for path in Path("/proc").glob("[0-9]*/cmdline") if read(path).startswith(command)]


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@needs_bubblewrap
@pytest.mark.parametrize(
    ("text", "exit_code", "message"),
    [
        ("exit 3", 3, "rank 0 ended with exit code 3"),
        ("exit 137", 137, "rank 0 ended with exit code 137"),
        ("kill -9 $$", -9, "rank 0 ended with signal SIGKILL"),
        ("no-such-program", 127, "rank 0 ended with exit code 127"),
    ],
)
def test_an_end_is_told_exactly(sandboxed: LocalHarness, text: str, exit_code: int, message: str) -> None:
    end = ran(sandboxed, text)
    assert (end.exit_code, end.message) == (exit_code, message)


@needs_bubblewrap
def test_a_program_hears_the_request_to_stop(sandboxed: LocalHarness) -> None:
    text = "trap 'echo heard; exit 75' TERM; touch $GAVEL_GANG_DIR/ready; while :; do sleep 0.05; done"
    sandboxed.backend.execute(script(sandboxed, text))
    eventually((directory(sandboxed, "j1") / "job" / "ready").exists)
    sandboxed.backend.execute(stop("j1"))
    end = exit_of(sandboxed, "j1")
    assert (end.outcome, end.exit_code, end.log_tail) == (GangOutcome.PREEMPTED, 75, "heard")


@needs_bubblewrap
def test_the_ranks_of_a_gang_share_memory_and_files(sandboxed: LocalHarness) -> None:
    text = """
    if [ $RANK = 0 ]; then echo $$ > /dev/shm/first; echo two > /tmp/second; fi
    until [ -e /dev/shm/first ] && [ -e /tmp/second ]; do sleep 0.02; done
    kill -0 $(cat /dev/shm/first) && cat /tmp/second; touch /tmp/done-$RANK
    until [ -e /tmp/done-0 ] && [ -e /tmp/done-1 ]; do sleep 0.02; done
    """
    end = ran(sandboxed, text, "a-0", "a-1")
    assert sorted(end.log_tail.splitlines()) == ["[0] two", "[1] two"], end


@needs_bubblewrap
def test_the_folders_of_a_job_are_there_and_can_be_written(sandboxed: LocalHarness, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "words.txt").write_text("input")
    text = 'touch here "$HOME/home" "$GAVEL_CHECKPOINT_DIR/c" "$GAVEL_OUTPUT_DIR/o" /tmp/t; cat "$GAVEL_DATA_WORDS"'
    over = {"workdir": str(tmp_path / "project"), "data": {"words": str(tmp_path / "words.txt")}}
    end = ran(sandboxed, f'{text}; echo > "$GAVEL_DATA_WORDS"; exit 0', **over)
    assert end.log_tail.startswith("input") and "Read-only file system" in end.log_tail
    made = ("work/j1/home", "checkpoints/j1/c", "outputs/j1/o", "gangs/j1/1/tmp/t")
    assert all((sandboxed.folder / path).exists() for path in made) and (tmp_path / "project" / "here").exists()


@needs_bubblewrap
def test_a_link_in_the_working_directory_leads_where_it_did(sandboxed: LocalHarness, tmp_path: Path) -> None:
    for name in ("project", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "data" / "words").write_text("linked")
    (tmp_path / "project" / "data").symlink_to("../data")
    assert ran(sandboxed, "cat data/words", workdir=str(tmp_path / "project")).log_tail == "linked"


@needs_bubblewrap
def test_a_setup_is_in_the_sandbox_too(sandboxed: LocalHarness, tmp_path: Path) -> None:
    """1 the setup writes what may be read and cannot read the token, 2 the rank has what it made."""
    line = f"echo made > $VIRTUAL_ENV/made; cat {sandboxed.folder}/operator.token >> $VIRTUAL_ENV/made || true"
    over = {"python": bare_python(tmp_path), "setup": line}
    end = ran(sandboxed, "cat $VIRTUAL_ENV/made; touch $VIRTUAL_ENV/own", **over)
    assert (end.outcome, end.exit_code) == (GangOutcome.EXITED, 0), end
    assert end.log_tail.splitlines()[-1] == "made"


@needs_bubblewrap
@pytest.mark.parametrize("named", ["workdir", "data", "python"])
def test_a_job_cannot_name_what_the_service_keeps(sandboxed: LocalHarness, named: str) -> None:
    path = str(sandboxed.folder / "operator.token") if named != "workdir" else str(sandboxed.folder / "work" / "other")
    os.chmod(sandboxed.folder / "operator.token", 0o755)
    end = ran(sandboxed, "true", **{named: {"x": path} if named == "data" else path})
    assert end.outcome is GangOutcome.NOT_STARTED
    assert end.message == f"{path} is in a folder of the service itself; name another folder"


@needs_bubblewrap
def test_a_link_leads_no_job_into_what_the_service_keeps(sandboxed: LocalHarness, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(sandboxed.folder / "work")
    end = ran(sandboxed, "true", workdir=str(tmp_path / "link" / "other"))
    assert "is in a folder of the service itself" in end.message


@needs_bubblewrap
@pytest.mark.parametrize("path", ["/", "/etc", "/usr/lib", "/home"])
def test_a_folder_of_the_system_is_nobodys_working_directory(sandboxed: LocalHarness, path: str) -> None:
    end = ran(sandboxed, "true", workdir=path)
    assert (end.outcome, end.message) == (
        GangOutcome.NOT_STARTED,
        f"{path} is a folder of the system; name one of your own",
    )


@needs_bubblewrap
def test_an_environment_outside_the_folders_of_a_user_is_refused_by_its_name(
    harness: LocalHarness, tmp_path: Path
) -> None:
    """Its program is a link to the system's Python, which every job may name; its packages are elsewhere."""
    (tmp_path / "bob" / "bin").mkdir(parents=True)
    (tmp_path / "bob" / "bin" / "python").symlink_to("/usr/bin/env")
    reopen(harness, job_folders=lambda user: ())
    refused = ran(harness, "true", python=str(tmp_path / "bob" / "bin" / "python"))
    assert refused.outcome is GangOutcome.NOT_STARTED
    assert refused.message == (
        f"{tmp_path}/bob is outside the folders that jobs may name here: none but their own (job_folders)"
    )


@needs_bubblewrap
def test_jobs_name_folders_where_the_operator_allows_it(harness: LocalHarness, tmp_path: Path) -> None:
    for user in ("ann", "bob"):
        (tmp_path / "home" / user).mkdir(parents=True)
    reopen(harness, job_folders=lambda user: (f"{tmp_path}/home/{user}",))
    refused = ran(harness, "true", workdir=str(tmp_path / "home" / "bob"))
    assert refused.message == (
        f"{tmp_path}/home/bob is outside the folders that jobs may name here: {tmp_path}/home/ann"
    )
    harness.backend.execute(script(harness, "pwd", job_id="j2", workdir=str(tmp_path / "home" / "ann")))
    assert exit_of(harness, "j2").log_tail == f"{tmp_path}/home/ann"


@pytest.fixture
def without_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sandbox, "SEARCH", "/nowhere")
    bubblewrap.cache_clear()
    yield
    bubblewrap.cache_clear()


@pytest.mark.usefixtures("without_bubblewrap")
def test_a_node_without_bubblewrap_runs_jobs_without_or_is_not_used(harness: LocalHarness) -> None:
    reopen(harness, isolation="auto")
    assert ran(harness, "true").outcome is GangOutcome.EXITED
    reopen(harness, isolation="sandbox")
    (node,) = harness.backend.observe().cluster.nodes
    assert harness.backend.observe().cluster.workers == ()
    assert node.problem.startswith("jobs must run in a sandbox here (isolation = sandbox), but bubblewrap is not here")


def test_without_isolation_there_is_no_sandbox(harness: LocalHarness) -> None:
    reopen(harness, isolation="none")
    ran(harness, "true")
    assert machine.read_json(str(directory(harness, "j1") / "launch.json"))["sandbox"] is None


NOBODY = 65534
SYSTEM_PYTHON = "/usr/bin/python3"
HEARS = "id -u; (setsid env -i sleep 86397.5 &); trap 'echo heard; exit 75' TERM; while :; do sleep 0.05; done"


@needs_bubblewrap
@pytest.mark.skipif(
    os.geteuid() != 0 or not Path(SYSTEM_PYTHON).exists(), reason="needs root, to be another user, and Debian's Python"
)
def test_a_user_without_privileges_has_sandboxes_too(open_folder: Path) -> None:
    """1 a supervisor of nobody's runs a gang past its lease, 2 it heard of the end, 3 its daemon is gone."""
    package = open_folder / "src" / "gavel"
    shutil.copytree(Path(sandbox.__file__).parent, package / "backends")
    for name in ("__init__", "child_processes", "code_tree"):
        shutil.copy(Path(sandbox.__file__).parents[1] / f"{name}.py", package)
    folder = open_folder / "gangs" / "j1" / "1"
    (folder / "job").mkdir(parents=True)
    (folder / "tmp").mkdir()
    (folder / "launch.json").write_text(json.dumps(a_launch(open_folder, folder)))
    for each in (open_folder, *open_folder.rglob("*")):
        os.chown(each, NOBODY, NOBODY)
    argv = [SYSTEM_PYTHON, "-I", "-S", "-X", "utf8", str(package / "backends" / "supervisor.py"), str(folder)]
    subprocess.run(argv, user=NOBODY, group=NOBODY, extra_groups=[], env={}, check=True, timeout=60)
    end = machine.read_json(str(folder / "exit.json"))
    assert (end["outcome"], end["exit_code"], end["log_tail"]) == ("preempted", 75, f"{NOBODY}\nheard"), end
    assert not sleepers("86397.5")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter, which those of pytest are not."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def a_launch(root: Path, folder: Path) -> dict[str, Any]:
    """The launch of a gang whose lease ends soon, as far as its supervisor needs it."""
    shown = sandbox_mounts.common_folders() | {str(root / "src"): "ro"}
    return {
        **{"job_id": "j1", "generation": 1, "user": "ann", "argv": ["bash", "-c", HEARS], "cwd": str(folder / "job")},
        "ranks": [{"cpus": [], "env": {"PATH": "/usr/bin:/bin", "GAVEL_NODE": "here"}}],
        **{"lease_expires_boottime_s": machine.boottime_s() + 3, "lease_grace_s": 20},
        **{"log_path": str(root / "j1.log"), "log_bytes": 1 << 16},
        **{"named": {}, "job_folders": ["/"], "hidden": [], "own": {str(folder): "ro", str(folder / "job"): "rw"}},
        "sandbox": {
            **{"command": bubblewrap().path, "tmp": str(folder / "tmp"), "mentioned": [], "devices": []},
            "shown": {path: access for path, access in shown.items() if not path.startswith("/root")},
        },
    }


# --- folders that are swapped ---------------------------------------------------------------------------------------

SWAPS = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
libc.prctl(1, 9)  # PR_SET_PDEATHSIG: it ends with the test, however that ends
one, other = (os.fsencode(path) for path in sys.argv[1:])
print("there", flush=True)
while True:
    libc.renameat2(-100, one, -100, other, 2)  # RENAME_EXCHANGE: at each moment there is one of the two
"""


@pytest.fixture
def swapped(open_folder: Path) -> tuple[dict[str, Any], Path, Path]:
    """A launch whose job names the folder of its user; and that folder, and a link to another user's."""
    folder, mine, link = (
        open_folder / "gangs" / "j1" / "1",
        open_folder / "ann" / "project",
        open_folder / "ann" / "link",
    )
    for each in (folder / "job", folder / "tmp", mine, open_folder / "bob"):
        each.mkdir(parents=True)
    (mine / "word").write_text("mine")
    (open_folder / "bob" / "word").write_text("secret")
    link.symlink_to(open_folder / "bob")
    launch = a_launch(open_folder, folder)
    launch["sandbox"]["shown"] = sandbox_mounts.common_folders()
    return launch | {"job_folders": [str(open_folder / "ann")], "named": {str(mine): "rw"}}, mine, link


def word_in(launch: dict[str, Any], folder: Path) -> str:
    """What a program reads in its folder; "" if it does not start."""
    spec = {"cpus": [], "env": {"PATH": "/usr/bin:/bin"}}
    try:
        made = sandbox.Sandbox(launch)
    except OSError:
        return ""
    try:
        _, output, status = made.begin(["cat", str(folder / "word")], "/", spec)
        os.close(status)
        with open(output, "rb") as file:
            os.set_blocking(output, True)
            return file.read().decode()
    except OSError as problem:
        assert "its sandbox did not start: " in str(problem)
        return ""
    finally:
        os.kill(made.pid, signal.SIGKILL)
        os.waitpid(made.pid, 0)
        made.close()


@needs_bubblewrap
def test_a_folder_that_is_swapped_before_it_is_mounted_is_not_seen(
    swapped: tuple[dict[str, Any], Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 as it is the job reads its own, 2 swapped for a link after the check, 3 for another folder of another user."""
    launch, mine, link = swapped
    assert word_in(launch, mine) == "mine"
    spawn = os.posix_spawn

    def swap_and_spawn(*given: Any, **over: Any) -> int:
        mine.rename(mine.with_name("moved"))
        link.rename(mine)
        return spawn(*given, **over)

    monkeypatch.setattr(os, "posix_spawn", swap_and_spawn)
    assert word_in(launch, mine) == ""
    mine.unlink()
    mine.with_name("moved").rename(mine)
    link.mkdir()
    (link / "word").write_text("secret")
    assert word_in(launch, mine) == ""


@needs_bubblewrap
def test_a_user_who_swaps_a_folder_all_the_time_reads_no_other(swapped: tuple[dict[str, Any], Path, Path]) -> None:
    """The swapper is faster than any mount; each sandbox has the folder that was checked, or none."""
    launch, mine, link = swapped
    with subprocess.Popen([sys.executable, "-c", SWAPS, str(mine), str(link)], stdout=subprocess.PIPE) as swapper:
        assert swapper.stdout is not None and swapper.stdout.readline() == b"there\n"
        try:
            words = [word_in(launch, mine) for _ in range(200 if IS_FULL else 20)]
        finally:
            swapper.kill()
    assert {*words} <= {"", "mine"}, words


@needs_bubblewrap
@pytest.mark.parametrize("own", ["work", "outputs", "checkpoints"])
def test_a_job_s_own_folder_that_has_become_a_link_is_no_way_out(
    sandboxed: LocalHarness, own: str, tmp_path: Path
) -> None:
    """1 the job ran without a sandbox and replaced its folder, 2 in one it does not start, and reads nothing."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "word").write_text("secret")
    (sandboxed.folder / own).mkdir(exist_ok=True)
    (sandboxed.folder / own / "j1").symlink_to(tmp_path / "other")
    end = ran(sandboxed, f"cat {sandboxed.folder}/{own}/j1/word")
    assert end.outcome is GangOutcome.LOST and "secret" not in end.log_tail
    assert end.message.endswith(f"{sandboxed.folder}/{own}/j1 has been replaced by a link")


# --- what is mounted ----------------------------------------------------------------------------------------------

FLAGS = {"--bind": "rw", "--ro-bind": "ro", "--tmpfs": ""}
FOLDERS = ["a", "a/b", "a/b/c", "a/d", "e", "e/f", "e/f/g"]


def kinds_of(folders: list[str]) -> st.SearchStrategy[dict[str, str]]:
    return st.dictionaries(st.sampled_from(folders), st.sampled_from(["ro", "rw"]))


@settings(max_examples=60)
@given(
    shown=kinds_of(FOLDERS),
    own=kinds_of(["a/b", "a/b/c", "a/d", "e/f/g"]),
    hidden=st.sets(st.sampled_from(["a", "e/f"])),
)
def test_each_folder_is_mounted_as_the_nearest_that_names_it(
    shown: dict[str, str], own: dict[str, str], hidden: set[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The last mount of a folder, or of one around it, is what a job sees there; none comes before one around it."""
    root = tmp_path_factory.getbasetemp() / "mounted"
    for each in FOLDERS:
        (root / each).mkdir(parents=True, exist_ok=True)
    given_launch = {
        "sandbox": {"tmp": str(root), "devices": [], "mentioned": [], "shown": placed(root, shown)},
        "named": {},
        "cwd": "/nowhere",
        "job_folders": ["/"],
        "own": placed(root, own),
        "hidden": [str(root / each) for each in hidden],
    }
    words = [*arguments(given_launch, view_of(given_launch, {}))]
    mounts = {path: flag for flag, path in pairwise(words) if path.startswith(f"{root}/") and flag in FLAGS}
    order = [*mounts]
    assert order == sorted(order, key=lambda path: path.split("/"))
    for each in FOLDERS:
        assert seen(each, mounts, root) == wanted(each, shown, own, hidden), (each, shown, own, hidden)


def placed(root: Path, kinds: dict[str, str]) -> dict[str, str]:
    return {str(root / path): kind for path, kind in kinds.items()}


def around(path: str) -> list[str]:
    """The path and the folders that it is in, the nearest first."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]


def seen(path: str, mounts: dict[str, str], root: Path) -> str:
    return next((FLAGS[mounts[at]] for each in around(path) if (at := str(root / each)) in mounts), "")


def wanted(path: str, shown: dict[str, str], own: dict[str, str], hidden: set[str]) -> str:
    """Own folders count before hidden ones, and these before those that are shown; a shown one in a hidden is not."""
    for each in around(path):
        is_private = bool({*around(each)} & hidden) and not {*around(each)} & {*own}
        if each in own or each in hidden:
            return own.get(each, "")
        if each in shown and not is_private:
            return shown[each]
    return ""


# --- devices and files of the node --------------------------------------------------------------------------------


def test_only_the_gpus_of_the_job_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        (tmp_path / f"0000:0{number}:00.0").mkdir()
        text = f"Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-{number}\nDevice Minor: \t {number}\n"
        (tmp_path / f"0000:0{number}:00.0" / "information").write_text(text)
    monkeypatch.setattr(sandbox_mounts, "NVIDIA_GPUS", tmp_path)
    monkeypatch.setattr(os.path, "exists", lambda path: True)
    nodes = sandbox_mounts.device_nodes({"CUDA_VISIBLE_DEVICES": "GPU-2,GPU-0"})
    assert [path for path in nodes if path[-1].isdigit()] == ["/dev/nvidia0", "/dev/nvidia2"]
    assert "/dev/nvidiactl" in nodes
    assert sandbox_mounts.device_nodes({"CUDA_VISIBLE_DEVICES": "-1"}) == []
    assert sandbox_mounts.device_nodes({}) == []


def test_of_amd_s_gpus_only_those_that_are_leased_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pci, "PCI_DEVICES", tmp_path)
    for number, unique_id in enumerate(("de8287300da37c72", "1f9de0957d137942")):
        folder = tmp_path / f"0000:8{number}:00.0"
        (folder / "drm" / f"renderD{128 + number}").mkdir(parents=True)
        (folder / "unique_id").write_text(f"{unique_id}\n")
    present = {"/dev/kfd", "/dev/dri/renderD128", "/dev/dri/renderD129"}
    monkeypatch.setattr(os.path, "exists", present.__contains__)
    shown = sandbox_mounts.device_nodes({"ROCR_VISIBLE_DEVICES": "GPU-1F9DE0957D137942"})
    assert shown == ["/dev/dri/renderD129", "/dev/kfd"]


def test_private_files_of_the_system_are_those_that_not_everybody_may_read(tmp_path: Path) -> None:
    (tmp_path / "open").write_text("")
    (tmp_path / "closed").write_text("")
    (tmp_path / "closed").chmod(0o600)
    (tmp_path / "folder").mkdir(mode=0o700)
    (tmp_path / "folder" / "in").write_text("")
    (tmp_path / "link").symlink_to("closed")
    assert sorted(sandbox_mounts.private_files(str(tmp_path))) == [str(tmp_path / "closed"), str(tmp_path / "folder")]


def test_what_a_job_names_in_words_and_variables_is_shown_to_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "data").mkdir()
    words = ["python", str(tmp_path / "train.py"), f"--data={tmp_path}/data", "--out", str(tmp_path / "missing"), "/"]
    assert sandbox_mounts.named_paths(words, {}) == {str(tmp_path), str(tmp_path / "data")}
    variables = {"PYTHONPATH": f"{tmp_path}/data:/home", "NAME": "a/b", "PATH": "/usr/bin"}
    assert sandbox_mounts.named_paths((), variables) == {str(tmp_path / "data"), "/usr/bin"}


def test_each_link_to_an_interpreter_shows_the_installation_it_leads_to(tmp_path: Path) -> None:
    for name in ("venv", "versions/3.11", "real"):
        (tmp_path / name / "bin").mkdir(parents=True)
    (tmp_path / "real" / "bin" / "python").write_text("")
    (tmp_path / "versions" / "3.11" / "bin" / "python").symlink_to(tmp_path / "real" / "bin" / "python")
    (tmp_path / "venv" / "bin" / "python").symlink_to("../../versions/3.11/bin/python")
    shown = {*sandbox_mounts.interpreter_folders(str(tmp_path / "venv" / "bin" / "python"))}
    assert shown == {str(tmp_path / "venv"), str(tmp_path / "versions" / "3.11"), str(tmp_path / "real")}


def test_a_launch_says_what_the_gang_sees(harness: LocalHarness) -> None:
    """Its own folders can be written, but not that of service and supervisor."""
    places = harness.backend._folder.places("j1", 1)
    (_, launched) = gang(harness, "j1")
    made = launch._own_folders(launched, places)  # type: ignore[arg-type]
    assert made[str(places.gang)] == "ro" and made[f"{places.gang}/job"] == made[str(places.work)] == "rw"
    assert find(harness.backend.observe(), "j1") is None
