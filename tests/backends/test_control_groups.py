"""Limits of a gang by control groups: the kernel's own where this machine has them, and the files of version 2."""

from pathlib import Path

import pytest

from gavel.backends import gang
from gavel.backends.control_groups import (
    ControlGroup,
    group_of,
    hierarchies,
    prefix_of_all,
    problem_of_groups,
    problem_of_limits,
)
from gavel.backends.harness import exit_of
from gavel.types import GangOutcome
from tests.architecture.test_floors import ROOT
from tests.backends.clusters import LocalHarness, script

TAKES = "python -c 'bytearray(400_000_000)'"
LIMIT_BYTES = 150_000_000

needs_groups = pytest.mark.skipif(
    bool(problem_of_limits(hierarchies())), reason=problem_of_limits(hierarchies()) or "there are control groups"
)


def left(harness: LocalHarness) -> list[Path]:
    start = prefix_of_all(str(harness.folder / "gangs"))
    return [path for each in hierarchies().values() for path in Path(each.parent).glob(f"{start}*")]


@pytest.mark.small("auto")
@needs_groups
@pytest.mark.parametrize("isolation", ["auto", "none"])
def test_a_gang_ends_at_the_memory_that_it_asked_for(harness: LocalHarness, isolation: str) -> None:
    """1 one that takes more is killed, and told so, 2 one that takes less completes, 3 no group is left."""
    harness.crash()
    harness.backend = harness.open(preparation=harness.preparation(isolation=isolation))
    harness.backend.execute(script(harness, TAKES, memory_bytes=LIMIT_BYTES, cpu_cores=2))
    killed = exit_of(harness, "j1")
    assert (killed.outcome, killed.exit_code) == (GangOutcome.EXITED, -9)
    assert killed.message == (
        "rank 0 ended with signal SIGKILL, at the limit of 0.15 GB of memory that the job asked for on this node "
        "(memory_bytes)"
    )
    harness.backend.execute(script(harness, TAKES, job_id="j2", memory_bytes=4 * LIMIT_BYTES))
    assert exit_of(harness, "j2").exit_code == 0
    assert left(harness) == []


GROWS = "python -c 'import time; held = [bytearray(10_000_000) for _ in range(40)]; time.sleep(600)'"
FORKS = """python -c 'import os, time
held = b"1" * 100_000_000
for _ in range(4):
    if not os.fork():
        time.sleep(2); os._exit(0)
for _ in range(4): os.wait()'"""


WITHOUT_GROUPS = (
    *gang.SUPERVISE[:-1],
    "-c",
    f"""import sys; sys.path.append({str(ROOT)!r})
from gavel.backends import control_groups, supervisor
control_groups.hierarchies.__defaults__ = ("/dev/null", "/dev/null")
supervisor.supervise(*sys.argv[1:])""",
)


@pytest.mark.small("none")
@pytest.mark.parametrize("isolation", ["auto", "none"])
def test_without_control_groups_the_supervisor_ends_what_outgrows_its_memory(
    harness: LocalHarness, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the process. What several processes share counts once, so the second gang is within its limit."""
    monkeypatch.setattr(gang, "SUPERVISE", WITHOUT_GROUPS)
    harness.crash()
    harness.backend = harness.open(preparation=harness.preparation(isolation=isolation))
    harness.backend.execute(script(harness, GROWS, memory_bytes=LIMIT_BYTES))
    ended = exit_of(harness, "j1")
    assert (ended.outcome, ended.exit_code) == (GangOutcome.EXITED, -9)
    assert "above the limit of 0.15 GB that the job asked for on this node" in ended.message
    assert "python" in ended.message.rpartition("most of it in ")[2]
    harness.backend.execute(script(harness, FORKS, job_id="j2", memory_bytes=LIMIT_BYTES))
    assert exit_of(harness, "j2").exit_code == 0


def version_2(root: Path, group: str, controllers: str = "cpu memory") -> tuple[str, str]:
    """The two files of a machine with control groups of version 2, whose folder is a plain one."""
    (root / "tree" / group).mkdir(parents=True)
    for folder in (root / "tree", (root / "tree" / group).parent, root / "tree" / group):
        (folder / "cgroup.controllers").write_text(f"{controllers}\n")
        (folder / "cgroup.subtree_control").write_text("")
    (root / "own").write_text(f"0::/{group}\n")
    (root / "mounts").write_text(f"cgroup2 {root}/tree cgroup2 rw,nosuid 0 0\n")
    return str(root / "own"), str(root / "mounts")


def test_version_2_is_limited_by_its_own_files(tmp_path: Path) -> None:
    """The group is beside that of the service: one with processes in it can have no limited groups below it."""
    offered = hierarchies(*version_2(tmp_path, "gavel.slice/service"))
    assert {each.parent for each in offered.values()} == {f"{tmp_path}/tree/gavel.slice"}
    made = ControlGroup("gavel-j1-1", 1000, 2, offered)
    group = tmp_path / "tree" / "gavel.slice" / "gavel-j1-1"
    assert (group / "memory.max").read_text() == "1000"
    assert (group / "cpu.max").read_text() == "200000 100000"
    assert (group.parent / "cgroup.subtree_control").read_text() == "+memory +cpu"
    (group / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    assert made.kills_for_memory() == 2
    with made.entered():
        assert (group / "cgroup.procs").read_text() == "0"
    assert (group.parent / "service" / "cgroup.procs").read_text() == "0"


def test_a_controller_that_is_not_offered_is_no_limit(tmp_path: Path) -> None:
    offered = hierarchies(*version_2(tmp_path, "gavel", controllers="cpu"))
    assert list(offered) == ["cpu", "processes"]
    assert problem_of_limits(offered) == "the kernel offers no control group for memory here"
    ControlGroup("gavel-j1-1", 1000, 1, offered)
    assert not (tmp_path / "tree" / "gavel" / "gavel-j1-1" / "memory.max").exists()


def test_version_1_has_a_tree_for_each_controller(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("4:memory:/a\n1:cpu,cpuacct:/b\n0::/\n")
    (tmp_path / "mounts").write_text("cgroup /m cgroup rw,memory 0 0\ncgroup /c cgroup rw,cpu,cpuacct 0 0\n")
    offered = hierarchies(str(tmp_path / "own"), str(tmp_path / "mounts"))
    assert {name: (each.version, each.parent) for name, each in offered.items()} == {
        "memory": (1, "/m/a"),
        "cpu": (1, "/c/b"),
    }


def test_without_a_place_for_groups_there_is_none(tmp_path: Path) -> None:
    assert hierarchies(str(tmp_path / "own"), str(tmp_path / "mounts")) == {}
    assert problem_of_groups({}) == "the kernel offers no control groups here"
    assert group_of({"limits": None, "ranks": [], "image": {"name": "an image"}}, "/gangs/j1/1") is None
