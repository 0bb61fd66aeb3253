"""What a job of the local backend sees, and what it leaves: environment, folders, reports, checkpoints, logs."""

import socket
import stat
import sys
import venv
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gavel.backends import supervisor
from gavel.backends.checkpoint_copies import copied_checkpoint
from gavel.backends.harness import exit_of, find, gang, is_in, launch, resource, stop
from gavel.backends.meeting import devices_of_gang, reserve_meeting_place
from gavel.errors import InvalidRequest, InvalidResource
from gavel.ports import ExtendLease, ForgetGang, KeepCheckpoint
from gavel.types import GangOutcome, GangState, Observation, ReportKind
from tests.backends.clusters import LocalHarness, directory, eventually, script

TRAINING = """
import time
from gavel_runtime import job

def save(folder):
    (folder / "state").write_text("saved")

def restore(folder):
    assert (folder / "state").read_text() == "saved"
    print("restored", folder.name)

for step in job.steps(checkpoint=save, restore=restore):
    time.sleep(0.01)
"""

TORCH = """
import torch, torch.distributed as dist
from gavel_runtime import job
dist.init_process_group("gloo")
mine = torch.tensor([float(job.rank + 1) ** 2])
dist.all_reduce(mine)
print(f"sum {int(mine.item())} of {dist.get_world_size()}")
"""

REPORTS = r"""
mkdir -p "$GAVEL_CHECKPOINT_DIR/1-10"
cat >> "$GAVEL_GANG_DIR/reports.jsonl" <<END
{"sequence": 1, "kind": "progress", "step": 5, "steps": 4, "seconds": 0.5, "metrics": {"loss": 2.5}}
rubbish
{"sequence": 2, "kind": "checkpoint", "step": 10, "steps": 5, "seconds": 0.5, "checkpoint": "1-10"}
END
"""


def test_a_jobs_environment_is_its_own_and_nothing_of_the_services(
    harness: LocalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAVEL_DATABASE_URL", "postgresql://secret")
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    requested = {"MINE": "yes", "PATH": path, "PYTHONPATH": "/mine", "LD_LIBRARY_PATH": "/lib", "HOME": "/home/ann"}
    requested |= {"GAVEL_GENERATION": "99", "GAVEL_GANG_TIMEOUT_S": "9", "RANK": "7"}
    tell = "env -0 > env; python -c 'import workloads, sys; print(sys.executable)'; pwd"
    harness.backend.execute(script(harness, tell, env=requested, checkpoint="1-50", start_step=50, job_token="t"))
    end = exit_of(harness, "j1")
    work = harness.folder / "work" / "j1"
    assert end.log_tail.splitlines() == [sys.executable, str(work)]
    seen = dict(line.split("=", 1) for line in (work / "env").read_text().split("\0") if line)
    checkpoints = harness.folder / "checkpoints" / "j1"
    (runtime,) = (harness.folder / "runtime").iterdir()
    secret, expires = seen.pop("GAVEL_GANG_KEY"), float(seen.pop("GAVEL_LEASE_EXPIRES_BOOTTIME_S"))
    assert len(secret) == 32
    assert 0 < expires - supervisor.boottime_s() < 60
    port = seen.pop("MASTER_PORT")
    assert 0 < int(port) < 1 << 16
    assert seen.pop("JAX_COORDINATOR_ADDRESS") == f"127.0.0.1:{port}"
    assert {name: seen[name] for name in seen if name not in ("PWD", "SHLVL", "_")} == {
        "MINE": "yes",
        "PATH": path,
        "HOME": "/home/ann",
        "LD_LIBRARY_PATH": "/lib",
        "GAVEL_GANG_TIMEOUT_S": "9",
        "LANG": "C.UTF-8",
        "PYTHONPATH": f"{runtime}:/mine",
        "PYTHONUNBUFFERED": "1",
        "GAVEL_JOB_ID": "j1",
        "GAVEL_GENERATION": "1",
        "GAVEL_RANK": "0",
        "GAVEL_WORLD_SIZE": "1",
        "GAVEL_GANG_DIR": str(directory(harness, "j1") / "job"),
        "GAVEL_CHECKPOINT_DIR": str(checkpoints),
        "GAVEL_CHECKPOINT": str(checkpoints / "1-50"),
        "GAVEL_PREVIOUS_CHECKPOINT": "",
        "GAVEL_OUTPUT_DIR": str(harness.folder / "outputs" / "j1"),
        "GAVEL_START_STEP": "50",
        "GAVEL_TOTAL_STEPS": "100",
        "GAVEL_ACCELERATOR_TYPE": "a",
        "GAVEL_WORKER": "a-0",
        "GAVEL_NODE": "here",
        "GAVEL_JOB_TOKEN": "t",
        "MASTER_ADDR": "127.0.0.1",
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "NODE_RANK": "0",
        "JAX_NUM_PROCESSES": "1",
        "JAX_PROCESS_ID": "0",
    }


def test_ranks_meet_at_a_port_that_is_their_gangs_alone(harness: LocalHarness) -> None:
    """1 a gang of two, and one beside it, 2 the two meet as torch.distributed does, 3 the ports differ."""
    go, env = harness.folder.parent / "go", {"PROGRAM": f"{Path(__file__).parent}/ray/programs.py"}
    meet = f"{sys.executable} $PROGRAM all-reduce"
    wait = f"echo $MASTER_PORT >> port-$RANK; until [ -e {go} ]; do sleep 0.01; done; "
    harness.backend.execute(script(harness, wait + meet, "a-0", "a-1", job_id="pair", env=env))
    harness.backend.execute(script(harness, wait + meet, "b-0", job_id="one", env=env))
    ports = [harness.folder / "work" / job / f"port-{rank}" for job, rank in (("pair", 0), ("pair", 1), ("one", 0))]
    eventually(lambda: all(port.exists() and port.read_text().endswith("\n") for port in ports))
    first, second, other = (port.read_text() for port in ports)
    assert first == second != other
    go.touch()
    lines = [f"[{rank}] sum 5 on node rank 0 local rank {rank}" for rank in range(2)]
    assert sorted(exit_of(harness, "pair").log_tail.splitlines()) == lines
    assert exit_of(harness, "one").log_tail == "sum 1 on node rank 0 local rank 0"


def test_a_reserved_port_can_be_taken_by_rank_0_and_nobody_else() -> None:
    launch: dict[str, Any] = {"ranks": [{"env": {}}, {"env": {}}], "reserve_port": True}
    reserved = reserve_meeting_place(launch)
    assert reserved is not None
    with reserved:
        port = int(launch["ranks"][1]["env"]["MASTER_PORT"])
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("", port))
        with socket.create_server(("127.0.0.1", port)) as server:
            assert server.getsockname()[1] == port
    assert reserve_meeting_place({"ranks": [{"env": {}}]}) is None


def test_every_rank_of_a_gang_sees_all_its_devices_in_the_order_of_local_rank() -> None:
    assert devices_of_gang([{"CUDA_VISIBLE_DEVICES": "GPU-b"}, {"CUDA_VISIBLE_DEVICES": "GPU-a"}]) == {
        "CUDA_VISIBLE_DEVICES": "GPU-b,GPU-a"
    }
    assert devices_of_gang([{"ATEN_CPU_CAPABILITY": "avx2"}]) == {}


def test_the_runtime_alone_is_on_the_path_of_a_job(harness: LocalHarness, tmp_path: Path) -> None:
    """1 an interpreter of the user's own without packages, 2 it imports the runtime, 3 and nothing else of ours."""
    venv.create(tmp_path / "own", with_pip=False, symlinks=True)
    tries = "for m in 'gavel_runtime', 'gavel', 'api', 'workloads', 'numpy': print(m, find_spec(m) is not None)"
    tell = f'{tmp_path}/own/bin/python -c "from importlib.util import find_spec\n{tries}"'
    harness.backend.execute(script(harness, tell))
    lines = ["gavel_runtime True", "gavel False", "api False", "workloads False", "numpy False"]
    assert exit_of(harness, "j1").log_tail.splitlines() == lines
    (folder,) = (harness.folder / "runtime").iterdir()
    assert [path.name for path in folder.iterdir()] == ["gavel_runtime"]


@pytest.mark.full
def test_a_job_that_brings_no_interpreter_sees_the_runtime_and_no_package(harness: LocalHarness) -> None:
    """1 `python` of its program and of what that starts has the standard library, 2 no program of the service is on its
    path, 3 a setup is built on the same, 4 a program of the catalogue has the service's packages."""
    names = ("gavel_runtime", "json", "gavel", "api", "workloads", "numpy", "pip", "yaml")
    tell = f"from importlib.util import find_spec; print([m for m in {names} if find_spec(m)])"
    for job_id, argv in (("j1", ("python", "-c", tell)), ("j2", ("sh", "-c", f'python3 -c "{tell}"'))):
        harness.backend.execute(script(harness, "", "a-0", job_id=job_id, argv=argv))
        assert exit_of(harness, job_id).log_tail == "['gavel_runtime', 'json']"
    harness.backend.execute(script(harness, "command -v gavel uvicorn || echo none", job_id="j3"))
    assert exit_of(harness, "j3").log_tail == "none"
    line_of_setup = 'python -c "import sys; print(sys.prefix != sys.base_prefix, sys.path)" > paths'
    harness.backend.execute(script(harness, "cat paths", job_id="j4", setup=line_of_setup))
    line = exit_of(harness, "j4").log_tail
    assert line.startswith("True") and str(Path(sys.executable).parents[1]) not in line
    harness.backend.execute(script(harness, "", job_id="j5", argv=("python", "-m", "workloads.training.mlp", "--help")))
    assert "--batch-size" in log_of(harness, "j5")


def log_of(harness: LocalHarness, job_id: str) -> str:
    assert exit_of(harness, job_id).exit_code == 0
    return harness.backend.read_log(job_id)[0].decode()


def test_a_gang_runs_in_its_folder_with_its_interpreter(harness: LocalHarness, tmp_path: Path) -> None:
    """1 `python` is the job's interpreter, also for what its program starts, 2 in the folder that was named."""
    venv.create(tmp_path / "own", with_pip=False, symlinks=True)
    own = str(tmp_path / "own" / "bin" / "python")
    show = "import os, subprocess, sys; print(sys.executable, os.getcwd()); sys.stdout.flush()"
    show += "; subprocess.run(['python', '-c', 'import sys; print(sys.prefix)'])"
    harness.backend.execute(script(harness, "", argv=("python", "-c", show), python=own, workdir=str(tmp_path)))
    assert exit_of(harness, "j1").log_tail.splitlines() == [f"{own} {tmp_path}", str(tmp_path / "own")]


def test_an_interpreter_that_is_not_on_the_node_is_named(harness: LocalHarness) -> None:
    harness.backend.execute(script(harness, "", argv=("python", "train.py"), python="/gone/bin/python"))
    end = exit_of(harness, "j1")
    assert end.outcome is GangOutcome.NOT_STARTED
    assert "the interpreter /gone/bin/python is not on node here, or the service's user may not run it" in end.message


def test_folders_of_a_job_are_this_users_only(harness: LocalHarness) -> None:
    harness.backend.execute(gang(harness, "j1"))
    harness.wait_until(is_in(GangState.RUNNING, "j1"))
    for path in (directory(harness, "j1"), harness.folder / "work/j1", harness.folder / "checkpoints/j1"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE(harness.folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("job_id", ["", "..", "a/b", "A", "-a", "x" * 64, "a\n"])
def test_a_job_id_that_is_no_plain_name_is_refused(harness: LocalHarness, job_id: str) -> None:
    with pytest.raises((InvalidRequest, InvalidResource)):
        harness.backend.execute([launch(harness, job_id, needs="any")])
    with pytest.raises(InvalidRequest, match="job_id"):
        harness.backend.read_log(job_id)


def test_reports_arrive_once_and_again_when_the_gang_has_ended(harness: LocalHarness) -> None:
    wait = 'while [ ! -e "$GAVEL_GANG_DIR/go" ]; do sleep 0.01; done'
    harness.backend.execute(script(harness, REPORTS + wait))
    seen = find(harness.wait_until(lambda view: any(each.reports for each in view.gangs)), "j1")
    assert seen is not None
    assert [(report.kind, report.step) for report in seen.reports] == [
        (ReportKind.PROGRESS, 5),
        (ReportKind.CHECKPOINT, 10),
    ]
    assert seen.reports[1].checkpoint == "1-10"
    again = find(harness.backend.observe(), "j1")
    assert again is not None
    assert again.reports == ()
    (directory(harness, "j1") / "job" / "go").touch()
    assert "1 malformed" in exit_of(harness, "j1").message
    at_end = find(harness.backend.observe(), "j1")
    assert at_end is not None
    assert at_end.reports == seen.reports
    harness.crash()
    harness.recover()
    after = find(harness.backend.observe(), "j1")
    assert after is not None
    assert [report.step for report in after.reports] == [5, 10]


def test_a_report_counts_only_if_the_neighbour_on_its_core_was_busy(harness: LocalHarness) -> None:
    """a-0 and a-1 share a core, b-0 is alone on its own (or, on one core, shares it with both)."""
    tell = REPORTS + "exec sleep 60"
    harness.backend.execute(script(harness, tell, "a-0", job_id="alone"))
    seen = find(harness.wait_until(lambda view: any(each.reports for each in view.gangs)), "alone")
    assert seen is not None
    assert not any(report.is_representative for report in seen.reports)
    harness.backend.execute(stop("alone"))
    exit_of(harness, "alone")
    harness.backend.execute(script(harness, tell, "a-0", "a-1", job_id="pair"))

    def pair_reports() -> bool:
        pair = find(harness.backend.observe(), "pair")
        assert pair is not None
        assert all(report.is_representative for report in pair.reports)
        return bool(pair.reports)

    eventually(pair_reports)


def test_older_checkpoints_go_and_the_one_before_stays(harness: LocalHarness) -> None:
    folder = harness.folder / "checkpoints" / "j1"
    for name in ("1-10", "2-5", "2-30", "3-1", "notes"):
        (folder / name).mkdir(parents=True)
        (folder / name / "weights").write_text("w")
    harness.backend.execute([KeepCheckpoint(job_id="j1", checkpoint="2-30")])
    assert sorted(path.name for path in folder.iterdir()) == ["2-30", "2-5", "3-1", "notes"]
    with pytest.raises(InvalidRequest, match="GENERATION-STEP"):
        harness.backend.execute([KeepCheckpoint(job_id="j1", checkpoint="../..")])


def test_a_log_goes_on_over_gangs_and_stays_when_they_are_forgotten(harness: LocalHarness) -> None:
    for generation in (1, 2):
        instructions = script(harness, f"echo gang {generation}", generation=generation, resource="gavel/gang-j1-1")
        harness.backend.execute(instructions)
        exit_of(harness, "j1", generation)
        harness.backend.execute([ForgetGang(job_id="j1", generation=generation)])
    assert not directory(harness, "j1").exists()
    assert harness.backend.read_log("j1") == (b"gang 1\ngang 2\n", 14)
    assert harness.backend.read_log("j1", 5, 3) == (b"1\ng", 8)
    assert harness.backend.read_log("nobody") == (b"", 0)
    with pytest.raises(InvalidRequest, match="offset"):
        harness.backend.read_log("j1", -1)


def has_reported(view: Observation) -> bool:
    gang = find(view, "j1")
    return gang is not None and bool(gang.reports)


def is_kept_until_it_reports(harness: LocalHarness, view: Observation) -> bool:
    """Return whether the gang has reported. Extend its lease if not: a busy machine may take long to start Python."""
    if has_reported(view):
        return True
    harness.backend.execute([ExtendLease(job_id="j1", generation=1, expires_at_s=harness.now_s() + 3)])
    return False


def test_the_runtime_trains_through_a_lease_and_resumes(harness: LocalHarness) -> None:
    """1 a gang of two trains until its lease ends and leaves a checkpoint, 2 the next gang goes on from there."""
    train = {"argv": ("python", "-c", TRAINING), "total_steps": 100_000}
    harness.backend.execute(script(harness, "", "a-0", "a-1", lease_expires_at_s=harness.now_s() + 3, **train))
    harness.wait_until(lambda view: is_kept_until_it_reports(harness, view))
    end = exit_of(harness, "j1")
    assert (end.outcome, end.exit_code) == (GangOutcome.PREEMPTED, 75), end
    seen = find(harness.backend.observe(), "j1")
    assert seen is not None
    last = seen.reports[-1]
    assert last.checkpoint == f"1-{last.step}"
    rest = {"generation": 2, "start_step": last.step, "checkpoint": last.checkpoint, "total_steps": last.step + 5}
    harness.backend.execute(script(harness, "", "a-0", "a-1", **{**train, **rest}))
    end = exit_of(harness, "j1", 2)
    assert (end.outcome, end.exit_code) == (GangOutcome.EXITED, 0), end
    assert f"restored {last.checkpoint}" in end.log_tail
    seen = find(harness.backend.observe(), "j1", 2)
    assert seen is not None
    assert (seen.reports[-1].kind, seen.reports[-1].step) == (ReportKind.FINISHED, last.step + 5)


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed (extra [torch])")
def test_two_ranks_reduce_with_torch_gloo(harness: LocalHarness) -> None:
    harness.backend.execute(script(harness, "", "a-0", "a-1", argv=("python", "-c", TORCH), python=sys.executable))
    end = exit_of(harness, "j1")
    assert (end.outcome, end.exit_code) == (GangOutcome.EXITED, 0), end
    assert sorted(harness.backend.read_log("j1")[0].decode().splitlines()) == ["[0] sum 5 of 2", "[1] sum 5 of 2"]


OUTPUTS = """
from gavel_runtime import job
with (job.output_dir / "log").open("a") as file:
    file.write(job.output_dir.name + " ")
"""


def test_the_output_folder_stays_from_one_gang_to_the_next(harness: LocalHarness) -> None:
    for generation in (1, 2):
        argv = ("python", "-c", OUTPUTS)
        resource, _ = gang(harness, "j1", generation=generation)
        harness.backend.execute([resource, script(harness, "", argv=argv, generation=generation)[1]])
        assert exit_of(harness, "j1", generation).outcome is GangOutcome.EXITED
    assert (harness.folder / "outputs" / "j1" / "log").read_text() == "j1 j1 "


def test_a_job_that_keeps_too_much_is_ended_with_the_figures(harness: LocalHarness) -> None:
    harness.crash()
    harness.backend = harness.open(output_bytes_per_job=1_000_000)
    kept = harness.folder / "outputs" / "j1"
    kept.mkdir(parents=True)
    (kept / "f").write_bytes(b"x" * 3_000_000)
    harness.backend.execute(script(harness, "sleep 600"))
    end = exit_of(harness, "j1")
    assert end.outcome is GangOutcome.EXITED and end.exit_code != 0
    assert "holds 3.0 MB, more than the 1.0 MB that a job may keep" in end.message


def test_a_job_begins_with_a_copy_of_another_s_checkpoint_until_it_has_one(harness: LocalHarness) -> None:
    copy = copied_checkpoint(harness.folder / "checkpoints", "old/3-40")
    copy.mkdir(parents=True)
    (copy / "weights").write_text("trained")
    for generation, checkpoint, shown in ((1, None, "trained"), (2, "1-50", "its own")):
        own = harness.folder / "checkpoints" / "j1" / "1-50"
        own.mkdir(parents=True, exist_ok=True)
        (own / "weights").write_text("its own")
        over = {"generation": generation, "resource": "gavel/any", "checkpoint": checkpoint, "start_step": 40}
        instruction = script(harness, 'cat "$GAVEL_CHECKPOINT/weights"', from_checkpoint="old/3-40", **over)[1]
        harness.backend.execute([resource(harness, "any"), instruction])
        assert exit_of(harness, "j1", generation).log_tail.endswith(shown)
