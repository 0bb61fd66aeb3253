"""Programs that are started before their lease: nothing of them runs early, and none is run twice or left behind."""

import json
import os
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.backends import machine
from gavel.backends.harness import exit_of, gang, stop
from gavel.ports import Instruction, LaunchGang, PrepareGang
from gavel.types import GangOutcome, GangState
from tests.backends.clusters import LocalHarness, directory, eventually, pid_of, processes_of

PROGRAM = """
'''A script with a slow library.'''
import slow_library
from gavel_runtime import job

print("runs", slow_library.LOADED_BY, flush=True)
print("argv", __import__("sys").argv[1:], __name__, __file__, flush=True)
for step in job.steps(checkpoint=lambda path: None, restore=lambda path: print("restores", path.name, flush=True)):
    print("step", step, flush=True)
    __import__("time").sleep(0.05)
"""
SERVICE = """
import sys
from pathlib import Path
from gavel.backends.gang_records import launch_from
from gavel.ports import PrepareGang
from tests.backends.clusters import LocalHarness

harness = LocalHarness(Path(sys.argv[1]))
launch = launch_from({instruction!r})
harness.backend.execute([PrepareGang(gang=launch, until_s=harness.now_s() + 60)])
sys.stdin.read()
"""
ROOT = Path(__file__).parents[2]
SHOWS_GENERATION = """
import json, os, time
print("runs", os.environ["GAVEL_GENERATION"], flush=True)
time.sleep(60)
"""
LIBRARY = """
import os
STARTED = open("/proc/self/stat").read().rpartition(")")[2].split()[19]  # namespaces that are gone lend their numbers
LOADED_BY = f"{os.stat('/proc/self/ns/pid').st_ino}:{os.getpid()}:{STARTED}"
with open(os.environ["LOADED"], "a") as file:
    file.write(f"{LOADED_BY} {os.environ.get('GAVEL_WARM', '')}\\n")
"""


def whole_lines(text: str) -> list[str]:
    """Return the lines of ``text`` that have their end: the process may be in the middle of the last one."""
    return text[: text.rfind("\n") + 1].splitlines()


class Cluster(LocalHarness):
    """A real local cluster with a script, and an installed library that notes who loads it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "state")
        self.loaded, self.script = folder / "loaded", folder / "train.py"
        self.script.write_text(PROGRAM)
        venv.create(folder / "venv", symlinks=True)
        self.interpreter = str(folder / "venv" / "bin" / "python")
        installed = next((folder / "venv" / "lib").glob("python*/site-packages"))
        (installed / "slow_library.py").write_text(LIBRARY)

    def launches(self, *workers: str, generation: int = 1, **over: Any) -> tuple[Instruction, LaunchGang]:
        """Return the resource and the launch of a gang that runs the script."""
        set_resource, start = gang(self, "j1", *workers, generation=generation)
        assert isinstance(start, LaunchGang)
        fields = {name: getattr(start, name) for name in LaunchGang.__dataclass_fields__}
        program = {"argv": (self.interpreter, str(self.script), "--lr", "0.1"), "total_steps": 1000}
        environment = {"env": {"LOADED": str(self.loaded)}}
        return set_resource, LaunchGang(**{**fields, **program, **environment, **over})

    def prepare(self, launch: LaunchGang, lasts_s: float = 60.0) -> None:
        """Give the hint, and wait until every rank has loaded the library."""
        before = len(self.loads())
        self.backend.execute([PrepareGang(gang=launch, until_s=self.now_s() + lasts_s)])
        eventually(lambda: len(self.loads()) == before + len(launch.worker_ids))

    def loads(self) -> list[str]:
        """Return a line for each process that loaded the library."""
        return whole_lines(self.loaded.read_text()) if self.loaded.exists() else []

    def log(self) -> list[str]:
        """Return the lines of the job's log."""
        return whole_lines(self.backend.read_log("j1")[0].decode())

    def is_empty(self) -> bool:
        """Return whether no process is left, and no folder of one that waited."""
        self.backend.observe()
        return self.processes() == 0 and not list((self.folder / "warm").glob("*/*"))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


def test_a_prepared_gang_is_not_there_and_runs_nothing_of_its_script(cluster: Cluster) -> None:
    _, start = cluster.launches()
    cluster.prepare(start)
    seen = cluster.backend.observe()
    assert (seen.gangs, seen.held) == ((), {})
    assert cluster.loads()[0].endswith(" 1")
    assert cluster.log() == []
    assert not (directory(cluster, "j1") / "gang.json").exists()


def test_a_prepared_gang_goes_on_in_the_process_that_loaded_its_libraries(cluster: Cluster) -> None:
    """1 prepare with an old checkpoint, 2 launch with a newer one, 3 the script sees the newer one only."""
    set_resource, start = cluster.launches()
    cluster.prepare(replace(start, checkpoint="0-1", start_step=1))
    loader = cluster.loads()[0].split()[0]
    (cluster.folder / "checkpoints" / "j1" / "0-7").mkdir(parents=True)
    cluster.backend.execute([set_resource, replace(start, checkpoint="0-7", start_step=7)])
    eventually(lambda: any(line.startswith("step") for line in cluster.log()))
    assert cluster.log()[:4] == [
        f"runs {loader}",
        f"argv ['--lr', '0.1'] __main__ {cluster.script}",
        "restores 0-7",
        "step 7",
    ]
    assert len(cluster.loads()) == 1
    first = json.loads((directory(cluster, "j1") / "job" / "reports.jsonl").read_text().splitlines()[0])
    began_s = machine.read_json(str(directory(cluster, "j1") / "started.json"))["boottime_s"]
    assert first["startup_s"] < machine.boottime_s() - began_s < machine.boottime_s() - began_at_s(pid_of(loader))
    cluster.backend.execute(stop("j1"))
    assert exit_of(cluster, "j1").outcome is GangOutcome.PREEMPTED
    eventually(cluster.is_empty)


def test_what_only_the_launch_says_is_no_other_program(cluster: Cluster) -> None:
    """As the driver has it: a hint knows neither the token of the job nor how often gangs are lost."""
    set_resource, start = cluster.launches()
    cluster.prepare(start)
    loader = cluster.loads()[0].split()[0]
    cluster.backend.execute([set_resource, replace(start, job_token="t", time_to_loss_s=3_600_011.5, total_steps=9)])
    eventually(lambda: any("step 0" in line for line in cluster.log()))
    assert [line.split()[0] for line in cluster.loads()] == [loader]


def test_every_rank_of_a_gang_waits_and_they_meet(cluster: Cluster) -> None:
    set_resource, start = cluster.launches("a-0", "a-1")
    cluster.prepare(start)
    cluster.backend.execute([set_resource, start])
    eventually(lambda: sum("step 0" in line for line in cluster.log()) == 2)
    assert len(cluster.loads()) == 2


@pytest.mark.parametrize("change", [{"argv": ("true",)}, {"env": {"OTHER": "x"}}, {"worker_ids": ("a-1",)}])
def test_a_gang_with_another_program_starts_anew(cluster: Cluster, change: dict[str, Any]) -> None:
    set_resource, start = cluster.launches()
    cluster.prepare(start)
    changed = replace(start, **change)
    cluster.backend.execute([set_resource, changed])
    cluster.wait_until(lambda seen: bool(seen.gangs) and seen.gangs[0].state is not GangState.WAITING)
    eventually(lambda: not pid_of(cluster.loads()[0].split()[0]))


def test_a_gang_that_is_never_launched_leaves_nothing(cluster: Cluster) -> None:
    _, start = cluster.launches("a-0", "a-1")
    cluster.prepare(start, lasts_s=1.0)
    assert cluster.processes() >= 2
    eventually(cluster.is_empty)
    assert (cluster.backend.observe().gangs, cluster.log()) == ((), [])


def test_a_plan_that_changes_ends_the_older_preparation(cluster: Cluster) -> None:
    _, first = cluster.launches()
    cluster.prepare(first)
    _, second = cluster.launches("b-0", generation=2)
    cluster.prepare(second)
    older, newer = (line.split()[0] for line in cluster.loads())
    eventually(lambda: not pid_of(older))
    assert pid_of(newer) in processes_of(cluster.folder)


def test_a_service_that_ends_takes_what_it_prepared_with_it_and_a_new_one_starts_anew(cluster: Cluster) -> None:
    set_resource, start = cluster.launches()
    cluster.prepare(start)
    cluster.crash()
    cluster.recover()
    cluster.backend.execute([set_resource, start])
    eventually(lambda: any(line.startswith("step") for line in cluster.log()))
    assert len(cluster.loads()) == 2 and cluster.log()[0] == f"runs {cluster.loads()[1].split()[0]}"
    assert sum(line.startswith("runs") for line in cluster.log()) == 1


def test_a_killed_service_takes_what_it_prepared_with_it(cluster: Cluster) -> None:
    """1 a service in its own process prepares, 2 kill -9, 3 nothing is left."""
    _, start = cluster.launches()
    cluster.backend.close()
    code = SERVICE.format(instruction=asdict(start))
    with subprocess.Popen(
        [sys.executable, "-c", code, str(cluster.folder)], cwd=ROOT, stdin=subprocess.PIPE
    ) as service:
        eventually(lambda: len(cluster.loads()) == 1)
        service.kill()
    cluster.recover()
    eventually(cluster.is_empty)
    assert cluster.backend.observe().gangs == ()


def test_a_gang_whose_program_died_while_it_waited_starts_anew(cluster: Cluster) -> None:
    set_resource, start = cluster.launches()
    cluster.prepare(start)
    os.kill(pid_of(cluster.loads()[0].split()[0]), signal.SIGKILL)
    eventually(cluster.is_empty)
    cluster.backend.execute([set_resource, start])
    eventually(lambda: any(line.startswith("step") for line in cluster.log()))


def test_nothing_is_prepared_without_memory_or_for_what_is_no_script(cluster: Cluster) -> None:
    _, start = cluster.launches()
    others = [("sleep", "60"), (cluster.interpreter, "-c", "pass"), (cluster.interpreter,)]
    hints = [PrepareGang(gang=replace(start, argv=argv), until_s=cluster.now_s() + 60) for argv in others]
    cluster.backend.execute([*hints, PrepareGang(gang=replace(start, image="some/image"), until_s=hints[0].until_s)])
    cluster.crash()
    cluster.backend = cluster.open(warm_memory_bytes=1 << 60)
    cluster.backend.execute([PrepareGang(gang=start, until_s=hints[0].until_s)])
    assert cluster.processes() == 0 and cluster.loads() == []


def test_a_gang_that_runs_already_is_not_prepared(cluster: Cluster) -> None:
    set_resource, start = cluster.launches()
    cluster.backend.execute([set_resource, start])
    eventually(lambda: len(cluster.loads()) == 1)
    cluster.backend.execute([PrepareGang(gang=start, until_s=cluster.now_s() + 60)])
    assert not list((cluster.folder / "warm").glob("*"))


@settings(max_examples=4)
@given(acts=st.lists(st.sampled_from(["prepare", "launch", "stop", "restart"]), min_size=3, max_size=7))
def test_each_gang_runs_once_if_it_is_launched_and_never_if_not(
    acts: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Hints, launches, stops and restarts of the service in any order; a stop begins the next generation."""
    cluster = Cluster(tmp_path_factory.mktemp("acts"))
    cluster.script.write_text(SHOWS_GENERATION)
    generation, launched = 1, set[int]()
    try:
        for act in acts:
            set_resource, start = cluster.launches(generation=generation)
            if act == "prepare":
                cluster.backend.execute([PrepareGang(gang=start, until_s=cluster.now_s() + 60)])
            elif act == "launch":
                cluster.backend.execute([set_resource, start])
                launched.add(generation)
                eventually(lambda: f"runs {generation}" in cluster.log())  # noqa: B023  called at once
            elif act == "stop":
                cluster.backend.execute(stop("j1", generation=generation))
                cluster.wait_until(lambda seen: all(gang.state is GangState.ENDED for gang in seen.gangs))
                generation += 1
            else:
                cluster.crash()
                cluster.recover()
        assert sorted(cluster.log()) == sorted(f"runs {each}" for each in launched)
        seen = {gang.generation for gang in cluster.backend.observe().gangs}
        assert seen == launched, "no gang but those that were launched"
    finally:
        cluster.close()


def began_at_s(pid: int) -> float:
    """Return the boottime at which the process began."""
    return (machine.start_time(pid) or 0) / os.sysconf("SC_CLK_TCK")
