"""The local backend beyond conformance: this machine's processes, files and accidents."""

import json
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gavel.backends import gang as gang_module
from gavel.backends import supervisor
from gavel.backends.harness import Behaviour, exit_of, find, gang, is_in, launch, resource, state_of, stop
from gavel.errors import BackendUnavailable, InvalidRequest, InvalidResource
from gavel.ports import ForgetGang, Instruction, KeepCheckpoint, LaunchGang
from gavel.types import GangOutcome, GangState, ReportKind
from tests.backends.clusters import LocalHarness, accelerators, eventually, processes_of

SERVICE = """
import sys
from pathlib import Path
from gavel.backends.harness import gang
from tests.backends.clusters import LocalHarness

harness = LocalHarness(Path(sys.argv[1]))
for job_id, workers in {"pair": ("a-0", "a-1"), "waits": ("a-0",), "b": ("b-0",)}.items():
    harness.backend.execute(gang(harness, job_id, *workers))
print("launched", flush=True)
sys.stdin.read()
"""


def script(harness: LocalHarness, text: str, *workers: str, job_id: str = "j1", **over: object) -> list[Instruction]:
    """A gang that runs this shell script."""
    set_resource, start = gang(harness, job_id, *workers)
    assert isinstance(start, LaunchGang)
    fields = {name: getattr(start, name) for name in LaunchGang.__dataclass_fields__}
    launched = LaunchGang(**{**fields, "argv": ("bash", "-c", text), "total_steps": 100, **over})
    return [set_resource, launched]


def directory(harness: LocalHarness, job_id: str, token: int = 1) -> Path:
    return harness.folder / "gangs" / job_id / str(token)


def supervisor_pid(harness: LocalHarness, job_id: str) -> int:
    said = supervisor.read_json(str(directory(harness, job_id) / "supervisor.json"))
    return int(said["pid"])


# --- accidents --------------------------------------------------------------------------------------------------


def test_gangs_outlive_a_killed_service_and_are_adopted_not_doubled(harness: LocalHarness) -> None:
    """1 a service in its own process launches gangs, 2 kill -9, 3 a new service finds them, and the one that waits."""
    harness.backend.close()
    root = Path(__file__).parents[2]
    service = subprocess.Popen(
        [sys.executable, "-c", SERVICE, str(harness.folder)], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with service:
        assert service.stdout is not None
        assert service.stdout.readline() == b"launched\n"
        eventually((directory(harness, "pair") / "started.json").exists)
        service.kill()
    harness.recover()
    seen = harness.wait_until(is_in(GangState.RUNNING, "pair", "b"))
    assert is_in(GangState.WAITING, "waits")(seen)
    assert harness.processes() == 3
    harness.backend.execute(stop("pair"))
    harness.wait_until(is_in(GangState.RUNNING, "waits"))


def test_a_killed_supervisor_takes_its_ranks_and_what_they_started(harness: LocalHarness) -> None:
    harness.backend.execute(script(harness, "setsid sleep 60 & setsid sleep 60 & exec sleep 60", "a-0", "a-1"))
    harness.wait_until(is_in(GangState.RUNNING, "j1"))
    eventually(lambda: harness.processes() >= 6)
    os.kill(supervisor_pid(harness, "j1"), signal.SIGKILL)
    end = exit_of(harness, "j1")
    assert (end.outcome, end.message) == (GangOutcome.LOST, "its supervisor died")
    eventually(lambda: harness.processes() == 0)
    harness.backend.execute(gang(harness, "j2", "a-0", "a-1"))
    harness.wait_until(is_in(GangState.RUNNING, "j2"))


def test_a_supervisor_that_crashes_leaves_its_last_words(harness: LocalHarness) -> None:
    harness.backend.execute(gang(harness, "j1"))
    harness.wait_until(is_in(GangState.RUNNING, "j1"))
    (directory(harness, "j1") / "lease.json").write_text("no lease")
    assert "JSONDecodeError" in exit_of(harness, "j1").message


def test_gangs_from_before_a_reboot_are_lost(harness: LocalHarness) -> None:
    harness.backend.execute(gang(harness, "j1", behaviour=Behaviour.FINISHES))
    exit_of(harness, "j1")
    (directory(harness, "j1") / "exit.json").unlink()
    path = directory(harness, "j1") / "gang.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"boot_id": "another"}))
    harness.crash()
    harness.recover()
    assert exit_of(harness, "j1").message == "the machine was restarted"


def test_an_end_from_before_a_reboot_is_not_lost(harness: LocalHarness) -> None:
    harness.backend.execute(gang(harness, "j1", behaviour=Behaviour.FINISHES))
    exit_of(harness, "j1")
    path = directory(harness, "j1") / "gang.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"boot_id": "another"}))
    harness.crash()
    harness.recover()
    assert exit_of(harness, "j1").outcome is GangOutcome.EXITED


def test_a_gang_that_was_stopped_while_it_waited_stays_ended_after_a_restart(harness: LocalHarness) -> None:
    set_resource, start = gang(harness, "j1")
    harness.backend.execute([start, *stop("j1")])
    harness.crash()
    harness.recover()
    harness.backend.execute([set_resource])
    assert exit_of(harness, "j1").outcome is GangOutcome.PREEMPTED
    assert harness.processes() == 0


def test_a_supervisor_that_never_came_is_lost_and_may_not_come_later(
    harness: LocalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service died between launch.json and the spawn."""
    harness.backend.execute(gang(harness, "j1"))
    harness.wait_until(is_in(GangState.RUNNING, "j1"))
    launch_json = (directory(harness, "j1") / "launch.json").read_text()
    harness.backend.execute(stop("j1"))
    exit_of(harness, "j1")
    for path in directory(harness, "j1").iterdir():
        if path.name != "gang.json":
            path.unlink()
    (directory(harness, "j1") / "launch.json").write_text(launch_json)
    harness.crash()
    monkeypatch.setattr(gang_module, "START_LIMIT_S", 0.2)
    harness.recover()
    assert state_of(harness, "j1") is GangState.RUNNING
    assert exit_of(harness, "j1").outcome is GangOutcome.LOST
    late = [sys.executable, "-I", "-S", supervisor.__file__, str(directory(harness, "j1"))]
    subprocess.run(late, check=True, timeout=30)
    assert not (directory(harness, "j1") / "started.json").exists()


def test_a_launch_that_was_never_whole_may_be_told_again(harness: LocalHarness) -> None:
    directory(harness, "j1").mkdir(parents=True)
    (directory(harness, "j1") / "gang.json.tmp").write_text('{"boot')
    harness.crash()
    harness.recover()
    harness.backend.execute(gang(harness, "j1"))
    harness.wait_until(is_in(GangState.RUNNING, "j1"))


def test_ended_supervisors_are_reaped(harness: LocalHarness) -> None:
    harness.backend.execute(gang(harness, "j1", behaviour=Behaviour.FINISHES))
    exit_of(harness, "j1")
    with pytest.raises(ChildProcessError):
        os.waitpid(supervisor_pid(harness, "j1"), os.WNOHANG)


def test_an_adopted_gang_holds_its_worker_though_its_resource_has_expired(harness: LocalHarness) -> None:
    lasting = resource(harness, "gang-j1-1", lasts_s=harness.short_s)
    harness.backend.execute([lasting, launch(harness, "j1")])
    harness.wait_until(is_in(GangState.RUNNING, "j1"))
    harness.wait_until(lambda seen: not seen.resources)
    harness.crash()
    harness.recover()
    harness.backend.execute(gang(harness, "j2"))
    seen = find(harness.backend.observe(), "j2")
    assert seen is not None
    assert "held by job j1" in seen.waiting_for
    harness.backend.execute(stop("j1"))
    harness.wait_until(is_in(GangState.RUNNING, "j2"))


def test_an_adopted_gang_on_workers_that_are_no_longer_there_runs_on(harness: LocalHarness) -> None:
    harness.backend.execute(gang(harness, "j1", "b-0"))
    harness.wait_until(is_in(GangState.RUNNING, "j1"))
    harness.crash()
    harness.backend = harness.open(accelerators=accelerators()[:2])
    assert state_of(harness, "j1") is GangState.RUNNING
    harness.backend.execute(stop("j1"))
    assert exit_of(harness, "j1").outcome is GangOutcome.PREEMPTED


def test_a_machine_that_cannot_start_a_gang_loses_it_and_keeps_the_worker(harness: LocalHarness) -> None:
    (harness.folder / "work").write_text("a file where a folder belongs")
    harness.backend.execute(gang(harness, "j1"))
    end = exit_of(harness, "j1")
    assert end.outcome is GangOutcome.LOST  # not the job's fault: it starts again
    assert "cannot start its supervisor" in end.message
    (harness.folder / "work").unlink()
    harness.backend.execute(gang(harness, "j1", token=2))
    harness.wait_until(is_in(GangState.RUNNING, "j1", token=2))


def test_two_services_cannot_share_a_state_directory(harness: LocalHarness) -> None:
    with pytest.raises(BackendUnavailable, match="another service uses"):
        harness.open()
    harness.backend.close()
    harness.open().close()


def test_a_full_or_broken_disk_is_an_answer(harness: LocalHarness) -> None:
    (harness.folder / "gangs").write_text("a file where a folder belongs")
    with pytest.raises(BackendUnavailable, match="cannot execute"):
        harness.backend.execute(gang(harness, "j1"))
    (harness.folder / "gangs").unlink()
    harness.backend.execute(gang(harness, "j1"))  # the same words again
    harness.wait_until(is_in(GangState.RUNNING, "j1"))


def test_on_change_is_called_when_a_gang_ends(tmp_path: Path) -> None:
    changed = threading.Event()
    harness = LocalHarness(tmp_path / "state")
    harness.backend.close()
    harness.backend = harness.open(on_change=changed.set)
    try:
        harness.backend.execute(gang(harness, "j1", behaviour=Behaviour.FINISHES))
        assert changed.wait(30)
        assert exit_of(harness, "j1").exit_code == 0
    finally:
        harness.close()


# --- what a job sees --------------------------------------------------------------------------------------------


def test_a_jobs_environment_is_scrubbed_and_reserved_names_win(
    harness: LocalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAVEL_DATABASE_URL", "postgresql://secret")
    wishes = {"MINE": "yes", "GAVEL_TOKEN": "99", "LD_PRELOAD": "/tmp/x.so", "PATH": "/tmp", "HOME": "/root"}
    tell = "env -0 > env; python -c 'import workloads, sys; print(sys.executable)'; pwd"
    harness.backend.execute(script(harness, tell, env=wishes, checkpoint="1-50", start_step=50, job_token="t"))
    end = exit_of(harness, "j1")
    work = harness.folder / "work" / "j1"
    assert end.log_tail.splitlines() == [sys.executable, str(work)]
    seen = dict(line.split("=", 1) for line in (work / "env").read_text().split("\0") if line)
    checkpoints = harness.folder / "checkpoints" / "j1"
    secret, expires = seen.pop("GAVEL_GANG_KEY"), float(seen.pop("GAVEL_LEASE_EXPIRES_BOOTTIME_S"))
    assert len(secret) == 32
    assert 0 < expires - supervisor.boottime_s() < 60
    assert {name: seen[name] for name in seen if name not in ("PWD", "SHLVL", "_")} == {
        "MINE": "yes",
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(work),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "PYTHONUNBUFFERED": "1",
        "GAVEL_JOB_ID": "j1",
        "GAVEL_TOKEN": "1",
        "GAVEL_RANK": "0",
        "GAVEL_WORLD_SIZE": "1",
        "GAVEL_GANG_DIR": str(directory(harness, "j1")),
        "GAVEL_CHECKPOINT_DIR": str(checkpoints),
        "GAVEL_CHECKPOINT": str(checkpoints / "1-50"),
        "GAVEL_START_STEP": "50",
        "GAVEL_TOTAL_STEPS": "100",
        "GAVEL_ACCELERATOR_TYPE": "a",
        "GAVEL_WORKER": "a-0",
        "GAVEL_NODE": "here",
        "GAVEL_JOB_TOKEN": "t",
    }


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


# --- reports, checkpoints, logs ---------------------------------------------------------------------------------

REPORTS = r"""
mkdir -p "$GAVEL_CHECKPOINT_DIR/1-10"
cat >> "$GAVEL_GANG_DIR/reports.jsonl" <<END
{"sequence": 1, "kind": "progress", "step": 5, "steps": 4, "seconds": 0.5, "metrics": {"loss": 2.5}}
rubbish
{"sequence": 2, "kind": "checkpoint", "step": 10, "steps": 5, "seconds": 0.5, "checkpoint": "1-10"}
END
"""


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
    (directory(harness, "j1") / "go").touch()
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
        found = find(harness.backend.observe(), "pair")
        assert found is not None
        assert all(report.is_representative for report in found.reports)
        return bool(found.reports)

    eventually(pair_reports)


def test_only_older_checkpoints_go(harness: LocalHarness) -> None:
    folder = harness.folder / "checkpoints" / "j1"
    for name in ("1-10", "2-5", "2-30", "3-1", "notes"):
        (folder / name).mkdir(parents=True)
        (folder / name / "weights").write_text("w")
    harness.backend.execute([KeepCheckpoint(job_id="j1", checkpoint="2-30")])
    assert sorted(path.name for path in folder.iterdir()) == ["2-30", "3-1", "notes"]
    with pytest.raises(InvalidRequest, match="TOKEN-STEP"):
        harness.backend.execute([KeepCheckpoint(job_id="j1", checkpoint="../..")])


def test_a_log_goes_on_over_gangs_and_stays_when_they_are_forgotten(harness: LocalHarness) -> None:
    for token in (1, 2):
        instructions = script(harness, f"echo gang {token}", token=token, resource="gavel/gang-j1-1")
        harness.backend.execute(instructions)
        exit_of(harness, "j1", token)
        harness.backend.execute([ForgetGang(job_id="j1", token=token)])
    assert not directory(harness, "j1").exists()
    assert harness.backend.read_log("j1") == (b"gang 1\ngang 2\n", 14)
    assert harness.backend.read_log("j1", 5, 3) == (b"1\ng", 8)
    assert harness.backend.read_log("nobody") == (b"", 0)
    with pytest.raises(InvalidRequest, match="offset"):
        harness.backend.read_log("j1", -1)


def test_a_closed_backend_leaves_gangs_and_nothing_else(harness: LocalHarness) -> None:
    harness.backend.execute(gang(harness, "j1", lasts_s=harness.short_s))
    harness.wait_until(is_in(GangState.RUNNING, "j1"))
    threads = threading.active_count()
    harness.backend.close()
    harness.backend.close()
    assert threading.active_count() == threads - 1
    assert harness.processes() == 1
    eventually(lambda: processes_of(harness.folder) == [])


def test_names_of_a_restarted_service_are_those_before(harness: LocalHarness) -> None:
    harness.backend.execute([resource(harness, "kept", 3, generation=7)])
    before = harness.backend.observe().resources
    harness.crash()
    harness.recover()
    assert harness.backend.observe().resources == before
    harness.backend.execute([resource(harness, "kept", 1, generation=6)])
    assert harness.backend.observe().resources == before


TRAINING = """
import time
from workloads.runtime import job

def save(folder):
    (folder / "state").write_text("saved")

def restore(folder):
    assert (folder / "state").read_text() == "saved"
    print("restored", folder.name)

for step in job.steps(checkpoint=save, restore=restore):
    time.sleep(0.01)
"""


def test_the_runtime_trains_through_a_lease_and_resumes(harness: LocalHarness) -> None:
    """1 a gang of two trains until its lease ends and leaves a checkpoint, 2 the next gang goes on from there."""
    train = {"argv": ("python", "-c", TRAINING), "total_steps": 400}
    first = script(harness, "", "a-0", "a-1", lease_expires_at_s=harness.now_s() + 3, **train)
    harness.backend.execute(first)
    end = exit_of(harness, "j1")
    assert (end.outcome, end.exit_code) == (GangOutcome.PREEMPTED, 75), end
    seen = find(harness.backend.observe(), "j1")
    assert seen is not None
    last = seen.reports[-1]
    assert last.checkpoint == f"1-{last.step}"
    rest = {"token": 2, "start_step": last.step, "checkpoint": last.checkpoint, "total_steps": last.step + 5}
    harness.backend.execute(script(harness, "", "a-0", "a-1", **{**train, **rest}))
    end = exit_of(harness, "j1", 2)
    assert (end.outcome, end.exit_code) == (GangOutcome.EXITED, 0), end
    assert f"restored {last.checkpoint}" in end.log_tail
    seen = find(harness.backend.observe(), "j1", 2)
    assert seen is not None
    assert (seen.reports[-1].kind, seen.reports[-1].step) == (ReportKind.FINISHED, last.step + 5)
