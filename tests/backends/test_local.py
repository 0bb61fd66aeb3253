"""The local backend beyond conformance: this machine's processes, files and accidents."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gavel.backends import gang as gang_module
from gavel.backends import supervisor
from gavel.backends.harness import Behaviour, exit_of, find, gang, is_in, launch, resource, state_of, stop
from gavel.errors import BackendUnavailable
from gavel.types import GangOutcome, GangState
from tests.backends.clusters import LocalHarness, accelerators, directory, eventually, processes_of, script

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


def supervisor_pid(harness: LocalHarness, job_id: str) -> int:
    record = supervisor.read_json(str(directory(harness, job_id) / "supervisor.json"))
    return int(record["pid"])


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
        if path.is_file() and path.name != "gang.json":
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
    harness.backend.execute(gang(harness, "j1", generation=2))
    harness.wait_until(is_in(GangState.RUNNING, "j1", generation=2))


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
