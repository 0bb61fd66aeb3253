"""Nothing of a gang is left after its end, whatever its program does: by its control group, by its sandbox, by both."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gavel.backends import machine
from gavel.backends.control_groups import ControlGroup, Hierarchy, hierarchies, prefix_of, problem_of_groups
from gavel.backends.harness import exit_of, is_in
from gavel.backends.sandbox import bubblewrap
from gavel.types import GangOutcome, GangState
from tests.backends.clusters import LocalHarness, directory, eventually, processes_of, script

needs_groups = pytest.mark.skipif(
    bool(problem_of_groups(hierarchies())), reason=problem_of_groups(hierarchies()) or "there are control groups"
)

SLEEP = 'os.execve("/bin/sleep", ["sleep", sys.argv[1]], {})'
AWAY = f"""
import os, sys
def away():  # a session of its own, an empty environment, and a parent that has ended
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            {SLEEP}
        os._exit(0)
    os.wait()
"""

IS_THERE = """
import glob, time
def is_there():
    word = b"sleep\\0" + sys.argv[1].encode()
    paths = filter(os.path.exists, glob.glob("/proc/[0-9]*/cmdline"))
    return any(open(path, "rb").read().startswith(word) for path in paths)
while not is_there():
    time.sleep(0.01)
"""

KILLS_ITS_SUPERVISOR = "import signal; os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)"
FORGES_ITS_END = """
import json
home = os.path.dirname(os.environ["GAVEL_GANG_DIR"])
with open(home + "/exit.json", "w") as file:
    json.dump({"outcome": "exited", "exit_code": 0, "message": "", "log_tail": "", "boottime_s": 1}, file)
"""

PROGRAMS = {
    "a daemon that is left": f"{AWAY}away(){IS_THERE}",
    "a daemon whose program kills its supervisor": f"{AWAY}away(){IS_THERE}{KILLS_ITS_SUPERVISOR}",
    "and forges its end before": f"{AWAY}away(){IS_THERE}{FORGES_ITS_END}{KILLS_ITS_SUPERVISOR}",
    "nohup and setsid from a shell": (
        "import os, sys, subprocess\n"
        'subprocess.Popen(["sh", "-c", f"nohup setsid env -i sleep {sys.argv[1]} >&- 2>&- & exit 0"]).wait()'
        f"{IS_THERE}"
    ),
}


def sleepers(seconds: str) -> list[int]:
    """The processes of this machine that sleep so long."""
    command, pids = b"sleep\0" + seconds.encode(), []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            pids += [int(path.parent.name)] if path.read_bytes().startswith(command) else []
        except OSError:
            continue
    return pids


@pytest.fixture
def seconds() -> Iterator[str]:
    """How long the processes of this test sleep, as none of another's do; none of them is left after it."""
    made = f"8639{os.getpid() % 10}.{time.monotonic_ns() % 10**9}"
    yield made
    for pid in sleepers(made):
        os.kill(pid, signal.SIGKILL)


@needs_groups
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_a_program_leaves_dies_with_its_control_group(harness: LocalHarness, program: str, seconds: str) -> None:
    """Without a sandbox: once the service sees the end of the gang, nothing of it runs, and its group is gone."""
    ended = after(harness, program, seconds, isolation="none")
    assert ended.state is GangState.ENDED and sleepers(seconds) == [], program
    assert groups_of(harness) == []


@needs_groups
@pytest.mark.skipif(bool(bubblewrap().problem), reason=bubblewrap().problem or "there are sandboxes")
def test_what_a_program_leaves_dies_with_its_sandbox(harness: LocalHarness, seconds: str) -> None:
    after(harness, "a daemon that is left", seconds, isolation="sandbox")
    assert sleepers(seconds) == [] and groups_of(harness) == []


@needs_groups
def test_a_restarted_service_ends_what_was_left_meanwhile(harness: LocalHarness, seconds: str) -> None:
    """1 the service ends, 2 the program kills its supervisor and leaves a daemon, 3 the next service ends it."""
    text = f"{AWAY}away(){IS_THERE}while not os.path.exists('go'): time.sleep(0.01)\n{KILLS_ITS_SUPERVISOR}"
    reopen(harness, isolation="none")
    harness.backend.execute(script(harness, "", argv=(sys.executable, "-c", text, seconds)))
    harness.wait_until(is_in(GangState.RUNNING, "j1"))
    eventually(lambda: len(sleepers(seconds)) == 1)
    harness.crash()
    (harness.folder / "work" / "j1" / "go").touch()
    supervisor = int((directory(harness, "j1") / "supervisor.json").read_text().split('"pid": ')[1].split(",")[0])
    eventually(lambda: not Path(f"/proc/{supervisor}/exe").exists())
    (directory(harness, "j1") / "gang.json").write_text("{")  # nothing but the kernel names the gang any more
    harness.recover()
    eventually(lambda: sleepers(seconds) == [])


@needs_groups
def test_a_restarted_service_removes_the_empty_group_of_a_supervisor_that_was_killed(harness: LocalHarness) -> None:
    """1 the supervisor is killed, and its rank ends, 2 nothing else names it, 3 the group of one that runs stays."""
    reopen(harness, isolation="none")
    harness.backend.execute(script(harness, "exec sleep 60"))
    harness.backend.execute(script(harness, "exec sleep 60", "b-0", job_id="j2"))
    harness.wait_until(is_in(GangState.RUNNING, "j1", "j2"))
    harness.crash()
    supervisor = machine.read_json(str(directory(harness, "j1") / "supervisor.json"))["pid"]
    os.kill(supervisor, signal.SIGKILL)
    os.waitpid(supervisor, 0)
    eventually(lambda: not processes_of(harness.folder, str(directory(harness, "j1"))))
    (directory(harness, "j1") / "gang.json").write_text("{")
    assert groups_of(harness) != []
    harness.recover()
    assert groups_of(harness) == [] and groups_of(harness, "j2") != []


def after(harness: LocalHarness, program: str, seconds: str, isolation: str) -> Any:
    """The gang of the program, once it has ended."""
    reopen(harness, isolation=isolation)
    harness.backend.execute(script(harness, "", argv=(sys.executable, "-c", PROGRAMS[program], seconds)))
    ended = exit_of(harness, "j1")
    assert ended.outcome in (GangOutcome.EXITED, GangOutcome.LOST)
    return next(each for each in harness.backend.observe().gangs if each.job_id == "j1")


def reopen(harness: LocalHarness, isolation: str) -> None:
    harness.crash()
    harness.backend = harness.open(preparation=harness.preparation(isolation=isolation))


def groups_of(harness: LocalHarness, job_id: str = "j1") -> list[Path]:
    """The control groups of gangs of this state folder that are there."""
    start = prefix_of(str(harness.folder / "gangs" / job_id / "1"))
    return [path for each in hierarchies().values() for path in Path(each.parent).glob(f"{start}*")]


# --- the group alone, of each version that this kernel has ---------------------------------------------------------

HYDRA = """
import os, sys, time
for _ in range(8):  # each lives a moment only, and its child goes on: a list of pids is out of date at once
    if os.fork() == 0:
        os.setsid()
        while True:
            time.sleep(0.001)
            if os.fork():
                os._exit(0)
print("there", flush=True)
"""


def of_version(version: int) -> dict[str, Hierarchy]:
    """The place for groups of this version on this machine, if it has one."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    wanted = (
        (lambda fields: fields[2] == "cgroup2")
        if version == 2
        else (lambda fields: fields[2] == "cgroup" and "pids" in fields[3].split(","))
    )
    own = Path("/tmp") / f"gavel-mounts-{os.getpid()}-{version}"
    own.write_text("".join(" ".join(fields) + "\n" for fields in mounts if wanted(fields)))
    try:
        return hierarchies(mounts=str(own))
    finally:
        own.unlink()


@pytest.mark.parametrize("version", [1, 2])
def test_a_group_kills_what_forks_faster_than_it_can_be_listed(version: int) -> None:
    offered = of_version(version)
    if "processes" not in offered:
        pytest.skip(f"no control group of version {version} can be made here")
    assert offered["processes"].version == version
    group = ControlGroup(f"gavel-test-{os.getpid()}", 0, 0, offered)
    folder = Path(offered["processes"].parent) / f"gavel-test-{os.getpid()}"
    try:
        with group.entered():
            hydra = subprocess.Popen([sys.executable, "-I", "-S", "-c", HYDRA], stdout=subprocess.PIPE)
        assert hydra.stdout is not None and hydra.stdout.readline() == b"there\n"
        eventually(lambda: not group.kill())
        hydra.stdout.close()
        hydra.wait()
        assert (folder / "cgroup.procs").read_text() == ""
    finally:
        while group.kill():
            pass
        group.remove()
    assert not folder.exists()
