"""What a supervisor makes of the ends of its processes: whole verdicts, and whom it ends when.

Its methods are called one by one, since a whole supervisor reaps and kills every child of its process: those are tested
in processes of their own (test_supervisor.py).
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gavel.backends import supervisor as module
from gavel.backends.control_groups import ControlGroup
from gavel.backends.processes import Process
from gavel.backends.supervisor import Supervisor
from tests.backends.boottimes import Boottime

GRACE_S = 0.5
NOBODY = (1 << 22) + 1  # above every pid
Verdict = tuple[str, int, str]


class Gang:
    """A supervisor with a lease until 160 over ranks that sleep, and may ignore that they are asked to end."""

    def __init__(self, folder: Path, ranks: int = 1, *, ignores_term: bool = False, **launch: Any) -> None:
        self.folder = folder
        given = {
            "argv": ["sleep", "60"],
            "cwd": str(folder),
            "ranks": [{"cpus": [], "env": {}} for _ in range(ranks)],
            "lease_expires_boottime_s": 160.0,
            "lease_grace_s": GRACE_S,
            "log_path": str(folder / "log"),
            "log_bytes": 1 << 16,
        }
        (folder / "launch.json").write_text(json.dumps(given | launch))
        self.supervisor = Supervisor(str(folder))
        self.children = [_sleeper(ignores_term) for _ in range(ranks)]
        for rank, child in enumerate(self.children):
            self.supervisor._ranks.append(Process(f"rank {rank}", rank, child.pid, -1, b""))

    def end(self, rank: int, code: int) -> None:
        """Let a rank end like this, and the supervisor hear of it."""
        child = self.children[rank]
        child.kill()
        child.wait()
        self.supervisor._take_end(child.pid, -code if code < 0 else code << 8)

    def stop(self) -> None:
        self.supervisor._lease.stop()

    @property
    def verdict(self) -> Verdict:
        return self.supervisor._verdict()

    @property
    def ending(self) -> tuple[str, float]:
        """Why it is being ended, and when what is left of it is killed."""
        return self.supervisor._ending, self.supervisor._kill_at_boottime_s

    def signals(self) -> list[int | None]:
        """The signal that ended each rank; None: it sleeps."""
        return [None if (code := _code_soon(child)) is None else -code for child in self.children]


def _sleeper(ignores_term: bool) -> "subprocess.Popen[bytes]":
    """A process that sleeps, and that ignores SIGTERM already, if it is to."""
    if not ignores_term:
        return subprocess.Popen(["sleep", "60"])
    child = subprocess.Popen(["sh", "-c", "trap '' TERM; echo; exec sleep 60"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child.stdout as output:
        output.readline()
    return child


def _code_soon(child: "subprocess.Popen[bytes]") -> int | None:
    try:
        return child.wait(0.1)
    except subprocess.TimeoutExpired:
        return None


class Gangs:
    """Makes gangs; none is left afterwards."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.made: list[Gang] = []
        self.strays: list[subprocess.Popen[bytes]] = []  # what ranks have started, and left

    def __call__(self, ranks: int = 1, **launch: Any) -> Gang:
        folder = self._folder / f"gang-{len(self.made)}"
        folder.mkdir()
        self.made.append(Gang(folder, ranks, **launch))
        return self.made[-1]


@pytest.fixture
def gangs(tmp_path: Path, boottime: Boottime, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gangs]:
    """Makes gangs whose supervisors kill only their own ranks, and no other child of the tests' process."""
    made = Gangs(tmp_path)
    below = lambda pid: {os.getpid(): [*(child.pid for child in made.strays), NOBODY]}[pid]  # noqa: E731
    monkeypatch.setattr(module, "descendants", below)
    yield made
    for child in (*made.strays, *(child for gang in made.made for child in gang.children)):
        child.kill()
        child.wait()


# --- verdicts ---


def test_a_gang_whose_ranks_all_end_well_has_exited(gangs: Gangs) -> None:
    gang = gangs(2)
    gang.end(1, 0)
    gang.end(0, 0)
    assert (gang.verdict, gang.ending) == (("exited", 0, ""), ("", float("inf")))


@pytest.mark.parametrize(
    ("code", "how"), [(3, "exit code 3"), (75, "exit code 75"), (-9, "signal SIGKILL"), (-15, "signal SIGTERM")]
)
def test_a_rank_that_fails_in_mid_lease_is_the_programs_own_fault(gangs: Gangs, code: int, how: str) -> None:
    gang = gangs(2)
    gang.end(1, code)
    gang.end(0, -15)
    assert gang.verdict == ("exited", code, f"rank 1 ended with {how}")


@pytest.mark.parametrize(
    ("is_stopped", "is_killed", "message"),
    [
        (False, False, "stopped at the end of its lease"),
        (True, False, "stopped on request"),
        (False, True, "stopped at the end of its lease, by force after 0.5 s"),
        (True, True, "stopped on request, by force after 0.5 s"),
    ],
)
def test_a_gang_that_had_to_end_is_preempted(
    gangs: Gangs, boottime: Boottime, is_stopped: bool, is_killed: bool, message: str
) -> None:
    gang = gangs()
    if is_stopped:
        gang.stop()
    else:
        boottime.now_s = 160.0
    gang.supervisor._enforce()
    boottime.now_s += GRACE_S if is_killed else 0.1
    gang.supervisor._enforce()
    gang.end(0, 3)
    assert gang.verdict == ("preempted", 3, message)


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (75, ("preempted", 75, "stopped at the end of its lease")),
        (-15, ("preempted", -15, "stopped at the end of its lease")),
        (3, ("exited", 3, "rank 0 ended with exit code 3")),
        (0, ("exited", 0, "")),
    ],
)
def test_a_rank_that_ends_after_its_lease_before_it_was_asked_to(
    gangs: Gangs, boottime: Boottime, code: int, verdict: Verdict
) -> None:
    gang = gangs()
    boottime.now_s = 160.0
    gang.end(0, code)
    assert (gang.verdict, gang.ending) == (verdict, ("", float("inf")))


def test_a_gang_without_ranks_came_too_late_was_lost_or_could_not_start(gangs: Gangs) -> None:
    gang, late = gangs(0), gangs(0)
    assert late.verdict == ("preempted", 0, "its lease was over before it started")
    gang.supervisor._readiness.not_started = "no such data"
    assert gang.verdict == ("not_started", 127, "no such data")
    gang.supervisor._not_started = "no such program"
    assert gang.verdict == ("not_started", 127, "no such program")
    gang.supervisor._readiness.lost = "the disk is full"
    assert gang.verdict == ("lost", 0, "the disk is full")
    gang.supervisor._lost = "no sandbox"
    assert gang.verdict == ("lost", 0, "no sandbox")


def test_a_rank_that_was_ended_since_another_could_not_start_has_not_failed(gangs: Gangs) -> None:
    gang = gangs(2)
    gang.supervisor._not_started = "no such program"
    gang.end(1, 127)
    assert (gang.verdict, gang.ending) == (("not_started", 127, "no such program"), ("", float("inf")))


def test_a_gang_beyond_its_outputs_or_not_live_is_at_fault_however_its_ranks_end(gangs: Gangs) -> None:
    for code, expected in ((0, 1), (-15, -15)):
        full, dead = gangs(), gangs()
        full.supervisor._over_quota, dead.supervisor._not_live = "Its folder is full", "It does not answer"
        for gang, message in ((full, "Its folder is full"), (dead, "It does not answer")):
            gang.supervisor._begin_ending("outputs")
            gang.end(0, code)
            assert gang.verdict == ("exited", expected, message)


def test_a_gang_above_its_memory_was_killed(gangs: Gangs) -> None:
    gang, ended = gangs(2), gangs()
    for each in (gang, ended):
        each.supervisor._over_memory = "it had 9 GB"
    gang.end(1, -15)
    assert gang.verdict == ("exited", -15, "rank 1 was killed: it had 9 GB")
    assert ended.verdict == ("exited", -9, "rank 0 was killed: it had 9 GB")


@pytest.mark.parametrize(
    ("code", "kills", "message"),
    [
        (-9, 5, "rank 0 ended with signal SIGKILL, killed by the kernel, which was out of memory"),
        (-9, 4, "rank 0 ended with signal SIGKILL"),
        (-15, 5, "rank 0 ended with signal SIGTERM"),
    ],
)
def test_a_rank_that_the_kernel_killed_for_memory_is_told_apart(
    gangs: Gangs, monkeypatch: pytest.MonkeyPatch, code: int, kills: int, message: str
) -> None:
    monkeypatch.setattr(module, "kills_for_memory", lambda: 4)
    gang = gangs()
    monkeypatch.setattr(module, "kills_for_memory", lambda: kills)
    gang.end(0, code)
    assert gang.verdict == ("exited", code, message)


@pytest.mark.parametrize(("code", "is_told"), [(-9, True), (-15, False)])
def test_a_rank_that_was_killed_at_the_limit_of_its_gang_is_told_that(gangs: Gangs, code: int, is_told: bool) -> None:
    gang = gangs()
    gang.supervisor._group = ControlGroup("gang-j1", 3_210_000_000, 0, {})
    gang.supervisor._group_kills = 1
    gang.end(0, code)
    why = ", at the limit of 3.21 GB of memory that the job asked for on this node (memory_bytes)"
    how = "SIGKILL" if code == -9 else "SIGTERM"
    assert gang.verdict == ("exited", code, f"rank 0 ended with signal {how}{why if is_told else ''}")


# --- whom it ends, and when ---


def test_the_first_rank_that_fails_ends_the_others_which_may_take_the_grace(gangs: Gangs, boottime: Boottime) -> None:
    gang = gangs(3)
    gang.end(2, 4)
    assert gang.ending == ("failure", 100.0 + GRACE_S)
    assert gang.signals() == [15, 15, 9]
    boottime.now_s = 100.2
    gang.end(0, 5)
    assert (gang.ending, gang.verdict) == (("failure", 100.0 + GRACE_S), ("exited", 4, "rank 2 ended with exit code 4"))


def test_nothing_is_ended_while_the_lease_lasts(gangs: Gangs, boottime: Boottime) -> None:
    gang = gangs()
    boottime.now_s = 159.9
    gang.supervisor._enforce()
    assert (gang.ending, gang.signals()) == (("", float("inf")), [None])


def test_at_the_end_of_the_lease_ranks_are_asked_and_after_the_grace_they_are_killed(
    gangs: Gangs, boottime: Boottime
) -> None:
    gang = gangs(ignores_term=True)
    for now_s, signals in ((160.0, [None]), (160.4, [None]), (160.5, [9])):
        boottime.now_s = now_s
        gang.supervisor._enforce()
        assert (gang.ending, gang.signals()) == (("lease", 160.0 + GRACE_S), signals)
    assert gang.supervisor._was_killed


def test_what_outlives_the_ranks_is_killed_at_once_and_that_is_no_force(gangs: Gangs) -> None:
    """But not what the kernel has given the pid of a rank that was reaped."""
    gang, other, stray = gangs(), gangs(), _sleeper(ignores_term=False)
    gangs.strays.append(stray)
    gang.end(0, 0)
    gang.supervisor._ranks[0].pid = other.children[0].pid
    gang.supervisor._enforce()
    assert (_code_soon(stray), other.signals(), gang.supervisor._was_killed) == (-9, [None], False)


def test_a_gang_that_fills_its_output_folder_is_asked_to_end(gangs: Gangs, tmp_path: Path) -> None:
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs" / "file").write_bytes(bytes(3_000_000))
    gang = gangs(outputs=str(tmp_path / "outputs"), output_bytes=1_000_000)
    gang.supervisor._enforce()
    assert (gang.ending, gang.signals()) == (("outputs", 100.0 + GRACE_S), [15])
    gang.end(0, 0)
    outcome, code, message = gang.verdict
    assert (outcome, code) == ("exited", 1)
    assert message.startswith("Its output folder holds 3.0 MB, more than the 1.0 MB")


def test_the_reason_that_came_first_is_the_one_that_counts(gangs: Gangs, boottime: Boottime, tmp_path: Path) -> None:
    """1 the lease is over and the folder too full: it is the lease, 2 a stop that comes later changes nothing."""
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs" / "file").write_bytes(bytes(3_000_000))
    gang = gangs(outputs=str(tmp_path / "outputs"), output_bytes=1_000_000)
    boottime.now_s = 160.0
    gang.supervisor._enforce()
    gang.stop()
    boottime.now_s = 160.2
    gang.supervisor._enforce()
    assert gang.ending == ("lease", 160.0 + GRACE_S)
    gang.end(0, 75)
    assert gang.verdict == ("preempted", 75, "stopped at the end of its lease")


def test_a_gang_above_its_memory_is_killed_at_once(gangs: Gangs, monkeypatch: pytest.MonkeyPatch) -> None:
    gang = gangs()
    monkeypatch.setattr(gang.supervisor._memory, "problem", lambda: "it had 9 GB")
    gang.supervisor._enforce()
    assert (gang.ending, gang.signals()) == (("memory", 0.0), [9])
    gang.end(0, -9)
    assert gang.verdict == ("exited", -9, "rank 0 was killed: it had 9 GB")


class Watch:
    """The checks of a replica: what a look finds, and how often it looked."""

    def __init__(self, problem: str = "", *, is_full: bool = False) -> None:
        self.problem, self.is_full, self.looks = problem, is_full, 0

    def look(self) -> None:
        self.looks += 1
        if self.is_full:
            raise OSError("no space left on device")


def test_a_replica_that_is_not_live_is_asked_to_end_and_then_not_looked_at(gangs: Gangs) -> None:
    gang, watch = gangs(), Watch("It does not answer")
    gang.supervisor._health = watch  # type: ignore[assignment]
    gang.supervisor._enforce()
    gang.supervisor._enforce()
    assert (gang.ending, gang.signals(), watch.looks) == (("liveness", 100.0 + GRACE_S), [15], 1)
    gang.end(0, 0)
    assert gang.verdict == ("exited", 1, "It does not answer")


def test_a_replica_whose_answer_cannot_be_written_goes_on(gangs: Gangs) -> None:
    gang, watch = gangs(), Watch(is_full=True)
    gang.supervisor._health = watch  # type: ignore[assignment]
    gang.supervisor._enforce()
    assert (gang.ending, watch.looks) == (("", float("inf")), 1)


# --- tasks ---


def a_task(gang: Gang, name: str, *argv: str) -> None:
    with (gang.folder / "starts.jsonl").open("a") as file:
        file.write(json.dumps({"task": name, "argv": argv, "cwd": str(gang.folder), "cpus": [], "env": {}}) + "\n")


def reap_tasks(gang: Gang) -> None:
    for task in [*gang.supervisor._tasks]:
        gang.supervisor._take_end(*os.waitpid(task.pid, 0))


def read_all(gang: Gang) -> None:
    """Read what the processes print, to its end."""
    while gang.supervisor._selector.get_map():
        for key, _ in gang.supervisor._selector.select(10.0):
            gang.supervisor._read(key)


def test_tasks_are_started_once_and_their_ends_are_told(gangs: Gangs) -> None:
    """However a task ends, its gang goes on: the process that launched it judges that."""
    gang = gangs(secrets={"T": "hush-hush-hush"})
    a_task(gang, "t1", "/bin/sh", "-c", "echo I say hush-hush-hush; exit 3")
    a_task(gang, "t2", "/no/hush-hush-hush/program")
    gang.supervisor._start_tasks()
    assert [task.name for task in gang.supervisor._tasks] == ["t1", "t2"]
    read_all(gang)
    reap_tasks(gang)
    gang.supervisor._start_tasks()
    assert "[t1] I say" in (text := (gang.folder / "log").read_text()) and "hush" not in text
    ends = [json.loads(line) for line in (gang.folder / "ends.jsonl").read_text().splitlines()]
    assert ends[0] == {"task": "t1", "exit_code": 3, "message": ""}
    assert (ends[1]["task"], ends[1]["exit_code"]) == ("t2", 127)
    assert "/no/" in ends[1]["message"] and "hush-hush-hush" not in ends[1]["message"]
    assert (gang.supervisor._tasks, gang.ending, gang.verdict) == ([], ("", float("inf")), ("exited", 0, ""))


def test_tasks_are_asked_to_end_with_their_gang(gangs: Gangs) -> None:
    gang = gangs()
    a_task(gang, "t1", "/bin/sleep", "60")
    gang.supervisor._start_tasks()
    gang.stop()
    gang.supervisor._enforce()
    reap_tasks(gang)
    assert json.loads((gang.folder / "ends.jsonl").read_text()) == {"task": "t1", "exit_code": -15, "message": ""}
