"""A sandbox of a job: what a hostile program tries from inside, and what an ordinary one still can."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gavel.backends import machine, nameable_folders, sandbox
from gavel.backends.harness import exit_of, is_in, stop
from gavel.backends.sandbox import bubblewrap
from gavel.config import Settings
from gavel.types import GangOutcome, GangState
from tests.backends.clusters import LocalHarness, bare_python, directory, eventually, script
from tests.backends.sandboxes import a_launch, needs_bubblewrap, ran, reopen, sleepers

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
def test_a_cluster_that_signals_every_process_does_not_break_the_sandbox(sandboxed: LocalHarness) -> None:
    """SIGTERM for all of a gang, as Slurm sends it, reaches bubblewrap too: the program is to save all the same."""
    text = "trap 'echo heard; sleep 0.2; exit 75' TERM; touch $GAVEL_GANG_DIR/ready; while :; do sleep 0.05; done"
    reopen(sandboxed, lease_grace_s=30.0, isolation="sandbox")  # it ends by itself, however busy the machine is
    sandboxed.backend.execute(script(sandboxed, text))
    eventually((directory(sandboxed, "j1") / "job" / "ready").exists)
    supervisor = machine.read_json(str(directory(sandboxed, "j1") / "supervisor.json"))["pid"]
    for pid in reversed([supervisor, *machine.descendants(supervisor, machine.children_of_all())]):
        os.kill(pid, signal.SIGTERM)
    end = exit_of(sandboxed, "j1")
    assert (end.outcome, end.exit_code, end.log_tail.split()[-1]) == (GangOutcome.PREEMPTED, 75, "heard")


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


@pytest.mark.usefixtures("without_bubblewrap")
@pytest.mark.parametrize(("isolation", "is_bounded"), [("auto", False), ("sandbox", True), ("none", False)])
def test_launch_and_submission_agree_on_whether_there_is_a_sandbox(
    harness: LocalHarness, isolation: str, is_bounded: bool
) -> None:
    """Where jobs must have one and none can be made, a gang that is launched all the same does not run without."""
    reopen(harness, isolation=isolation)
    end = ran(harness, "true")
    assert (end.outcome is GangOutcome.LOST) == is_bounded
    assert nameable_folders.is_bounded(Settings(isolation=isolation)) == is_bounded  # type: ignore[arg-type]


def test_without_isolation_there_is_no_sandbox(harness: LocalHarness) -> None:
    reopen(harness, isolation="none")
    ran(harness, "true")
    assert machine.read_json(str(directory(harness, "j1") / "launch.json"))["sandbox"] is None


NOBODY = 65534
SYSTEM_PYTHON = "/usr/bin/python3"


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
