"""What a job does to the files of its own gang ends that gang, with a reason, and nothing else."""

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.backends import gang as gang_module
from gavel.backends import gang_processes, gang_records, isolation, lease_rules, machine
from gavel.backends.folder import StateFolder
from gavel.backends.gang import LocalGang
from gavel.backends.harness import exit_of, gang, is_in, stop
from gavel.backends.isolation import adopted_gangs, isolated
from gavel.ports import ExtendLease, ForgetGang
from gavel.types import GangOutcome, GangState, ReportKind
from tests.backends.clusters import LocalHarness, directory, eventually, script

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
FILES = ("gang", "lease", "started", "supervisor", "exit", "launch", "fence", "tasks", "starts", "ends", "reports")
IDLES = "sleep 60"


def _no_folder(home: Path) -> None:
    shutil.rmtree(home)


def _folder_elsewhere(home: Path) -> None:
    home.rename(home.with_name("moved"))
    home.symlink_to("moved")


def _lease_is_a_folder(home: Path) -> None:
    (home / "lease.json").unlink(missing_ok=True)
    (home / "lease.json").mkdir()


def _start_is_a_text(home: Path) -> None:
    os.remove(home / "started.json")
    (home / "started.json").write_text('{"boottime_s": "noon"}')


def _end_is_forged(home: Path) -> None:
    (home / "exit.json").write_text(
        '{"outcome": "won", "exit_code": 0, "message": "", "log_tail": "", "boottime_s": 1}'
    )
    os.kill(int(machine.read_json(str(home / "supervisor.json"))["pid"]), signal.SIGKILL)


@pytest.mark.small("_lease_is_a_folder")
@pytest.mark.parametrize("spoil", [_no_folder, _folder_elsewhere, _lease_is_a_folder, _end_is_forged])
def test_a_gang_that_spoils_its_files_is_lost_alone(harness: LocalHarness, spoil: Callable[[Path], None]) -> None:
    """1 two gangs run, 2 one spoils its files, 3 it is lost with a reason and leaves no process, the other runs on."""
    harness.backend.execute([*script(harness, IDLES, "b-0", job_id="good"), *script(harness, IDLES, job_id="bad")])
    harness.wait_until(is_in(GangState.RUNNING, "good", "bad"))
    eventually((directory(harness, "bad") / "started.json").exists)
    spoil(directory(harness, "bad"))
    until_s = harness.now_s() + 90
    harness.backend.execute(
        [ExtendLease(job_id=job_id, generation=1, expires_at_s=until_s) for job_id in ("bad", "good")]
    )
    ended = exit_of(harness, "bad")
    assert ended.outcome is GangOutcome.LOST
    assert ended.message
    harness.crash()
    harness.recover()
    seen = harness.wait_until(is_in(GangState.RUNNING, "good"))
    assert {each.job_id for each in seen.gangs if each.state is GangState.RUNNING} == {"good"}
    harness.backend.execute([ForgetGang(job_id="bad", generation=1), *gang(harness, "bad", generation=2)])
    harness.wait_until(is_in(GangState.RUNNING, "bad", generation=2))


def test_a_gang_that_writes_that_it_ended_long_ago_ended_when_it_was_last_there(harness: LocalHarness) -> None:
    """Else its job would have the time back that it has held its workers."""
    harness.backend.execute(script(harness, IDLES))
    harness.wait_until(is_in(GangState.RUNNING, "j1"))
    home = directory(harness, "j1")
    eventually((home / "started.json").exists)
    harness.wait_until(lambda seen: harness.now_s() > (seen.gangs[0].started_at_s or harness.now_s()) + 1.0)
    there_s = harness.now_s()
    forged = '{"outcome": "exited", "exit_code": 1, "message": "", "log_tail": "", "boottime_s": 1}'
    (home / "exit.json").write_text(forged)
    harness.backend.observe()
    os.kill(int(machine.read_json(str(home / "supervisor.json"))["pid"]), signal.SIGKILL)
    seen = harness.wait_until(is_in(GangState.ENDED, "j1"))
    assert seen.gangs[0].ended_at_s is not None and seen.gangs[0].ended_at_s > there_s - 0.1


@pytest.mark.full
def test_a_forged_start_does_not_end_the_look_at_others(harness: LocalHarness) -> None:
    harness.backend.execute([*script(harness, IDLES, "b-0", job_id="good"), *script(harness, IDLES, job_id="bad")])
    harness.wait_until(is_in(GangState.RUNNING, "good", "bad"))
    eventually((directory(harness, "bad") / "started.json").exists)
    harness.crash()
    _start_is_a_text(directory(harness, "bad"))
    os.mkfifo(directory(harness, "bad").with_name("fence.json"))
    os.mkfifo(directory(harness, "bad") / "lease.json.tmp")
    harness.recover()
    assert exit_of(harness, "bad").outcome is GangOutcome.LOST
    harness.wait_until(is_in(GangState.RUNNING, "good"))


def test_what_is_left_of_a_gang_without_its_file_ends_with_the_restart(harness: LocalHarness) -> None:
    harness.backend.execute(script(harness, IDLES))
    harness.wait_until(is_in(GangState.RUNNING, "j1"))
    eventually((directory(harness, "j1") / "started.json").exists)
    harness.crash()
    (directory(harness, "j1") / "gang.json").write_text('{"instruction": 1}')
    harness.recover()
    eventually(lambda: harness.processes() == 0)
    assert not harness.backend.observe().gangs


# --- supervisors that do not do their work ---


def test_a_suspended_supervisor_does_not_outlive_its_lease(
    harness: LocalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_rules, "BACKSTOP_MARGIN_S", 0.1)
    harness.backend.execute(script(harness, IDLES))
    harness.wait_until(is_in(GangState.RUNNING, "j1"))
    eventually((directory(harness, "j1") / "started.json").exists)
    os.kill(int(machine.read_json(str(directory(harness, "j1") / "supervisor.json"))["pid"]), signal.SIGSTOP)
    harness.backend.execute(stop("j1"))
    ended = exit_of(harness, "j1")
    assert (ended.outcome, "did not end it" in ended.message) == (GangOutcome.LOST, True)
    eventually(lambda: harness.processes() == 0)


def test_a_job_that_rewrites_its_lease_is_stopped(harness: LocalHarness) -> None:
    """The supervisor of such a gang may never see the stop in the file."""
    lie = '{"expires_boottime_s": 1e9, "stop": false}'
    harness.crash()
    harness.backend = harness.open(preparation=harness.preparation(isolation="none"))
    forever = f"cd $GAVEL_GANG_DIR/..; while true; do echo '{lie}' > new; mv new lease.json; done"
    harness.backend.execute(script(harness, forever))
    harness.wait_until(is_in(GangState.RUNNING, "j1"))
    eventually((directory(harness, "j1") / "started.json").exists)
    harness.wait_until(lambda seen: seen.gangs[0].started_at_s is not None)
    harness.backend.execute(stop("j1"))
    assert exit_of(harness, "j1").outcome is GangOutcome.PREEMPTED


def test_a_supervisor_that_cannot_be_watched_is_not_lost(
    harness: LocalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(pid: int) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", refused)
    harness.backend.execute(script(harness, "exit 0"))
    assert exit_of(harness, "j1").outcome is GangOutcome.EXITED


# --- files that hold anything ---

TEXTS = st.text(max_size=20) | st.sampled_from(["\ud800", "\0", "exited", "lost", "/etc", "x" * 20_000])
NUMBERS = st.integers() | st.floats() | st.sampled_from([10**400, -1, 2**63, 1e308, float("inf"), float("nan"), True])
FIELDS = (
    "boot_id lease_boottime_s instruction expires_boottime_s stop boottime_s pid start_time outcome exit_code message "
    "log_tail ended_by fence task node argv requires env sequence kind step steps seconds metrics phases note secrets"
)
NAMES = st.sampled_from(tuple(FIELDS.split(" ")))
VALUES = st.recursive(
    st.none() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | TEXTS, inner, max_size=4),
    max_leaves=8,
)
CONTENTS = (
    st.binary(max_size=100)
    | VALUES.map(lambda value: json.dumps(value).encode())
    | st.sampled_from([b"[" * 20_000, b"9" * 10_000, b'{"a":' * 10_000, b"\xff\xfe{}"])
)
long_contents = pytest.mark.filterwarnings("ignore:Generating overly large repr")
PLACES = st.sampled_from(["fifo", "folder", "link", "file"])


RECORDS_READ = ("exit", "lease", "started", "supervisor", "launch", "gang")
RECORDS: list[Callable[[dict[str, Any]], object]] = [
    gang_records.exit_record,
    gang_records.lease_record,
    gang_records.started_boottime_s,
    gang_records.supervisor_process,
    gang_records.launch_from,
    lambda record: gang_records.gang_record(record, Path("/gangs/j1/1")),
]


def _put(path: Path, place: str, content: bytes) -> None:
    path.unlink(missing_ok=True)
    if place == "fifo":
        os.mkfifo(path)
    elif place == "folder":
        path.mkdir()
    elif place == "link":
        path.symlink_to("/dev/zero")
    else:
        path.write_bytes(content)


def _launched(home: Path) -> LocalGang:
    """A gang whose supervisor is gone, in a folder that a service made."""
    fields: dict[str, Any] = {
        "job_id": home.parent.name,
        "generation": 1,
        "user": "ann",
        "argv": ["true"],
        "env": {},
        "accelerator_type": "a",
        "worker_ids": ["a-0"],
        "resource": "gavel/gang",
        "lease_expires_at_s": 1.0,
        "start_step": 0,
        "total_steps": 9,
        "checkpoint": None,
    }
    home.mkdir(parents=True)
    record = {"boot_id": machine.boot_id(), "lease_boottime_s": 1.0, "instruction": fields}
    machine.write_json(str(home / "gang.json"), record)
    machine.write_json(str(home / "launch.json"), {"secrets": {}})
    machine.write_json(str(home / "supervisor.json"), {"pid": 2**22, "start_time": 1})
    adopted = LocalGang.adopt(home, home, lease_grace_s=0.0, has_processes=False)
    assert adopted is not None
    return adopted


def _look_until_ended(made: LocalGang, folder: StateFolder) -> None:
    for _ in range(3):
        with isolated(made, folder):
            made.look()
            made.reports.read()
    assert made.state is GangState.ENDED
    assert made.exit is not None
    for text in (made.exit.message, made.exit.log_tail):
        assert "\0" not in text
        text.encode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StateFolder]:
    """A state folder in which no gang has a process."""
    made = StateFolder(tmp_path_factory.mktemp("state"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gang_processes, "homes_below", lambda _: set())
        yield made
    made.close()


@long_contents
@settings(max_examples=2_000 if IS_FULL else 10, deadline=None)
@given(files=st.dictionaries(st.sampled_from(FILES), st.tuples(PLACES, CONTENTS), max_size=4))
def test_a_folder_that_holds_anything_gives_an_end_or_is_refused(
    folder: StateFolder, files: dict[str, tuple[str, bytes]]
) -> None:
    """Before and after a restart of the service, and neither waits."""
    shutil.rmtree(folder.gangs_dir, ignore_errors=True)
    home = folder.gangs_dir / "j1" / "1"
    made = _launched(home)
    for name, (place, content) in files.items():
        suffix = "jsonl" if name in ("tasks", "starts", "ends", "reports") else "json"
        _put((home.parent if name == "fence" else home) / f"{name}.{suffix}", place, content)
    _look_until_ended(made, folder)
    for again in adopted_gangs(folder, lease_grace_s=0.0):
        _look_until_ended(again, folder)


@long_contents
@settings(max_examples=10_000 if IS_FULL else 30, deadline=None)
@given(lines=st.lists(CONTENTS, max_size=3))
def test_reports_that_hold_anything_are_reports_or_counted(lines: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "reports.jsonl"
        path.write_bytes(b"\n".join(lines) + b"\n")
        reader = gang_module.ReportReader(path, generation=1, start_step=0, total_steps=None, checkpoints=Path(name))
        for report in reader.read():
            assert report.kind in ReportKind
            assert 0 <= report.seconds < float("inf")


@pytest.mark.skipif(not IS_FULL, reason="10,000 folders: GAVEL_TEST_PROFILE=full")
def test_ten_thousand_hostile_gangs_cost_no_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        isolation, "warn", lambda *_, **__: None
    )  # a drawn traceback of each would take most of the time
    harness = LocalHarness(tmp_path / "state")
    harness.crash()
    for number in range(10_000):
        home = tmp_path.resolve() / "state" / "gangs" / f"j{number}" / "1"
        _launched(home)
        name = FILES[number % len(FILES)]
        _put(home / f"{name}.json", ["fifo", "folder", "link", ""][number // len(FILES) % 4], b'{"boottime_s": "x"}')
    harness.recover()
    try:
        harness.backend.execute(gang(harness, "good", "b-0"))
        seen = harness.wait_until(is_in(GangState.RUNNING, "good"))
        others = [each for each in seen.gangs if each.job_id != "good"]
        assert all(each.state is GangState.ENDED for each in others)
        harness.wait_until(lambda seen: len(seen.gangs) == len(others) + 1)
    finally:
        harness.close()


@pytest.mark.parametrize("reads", RECORDS, ids=RECORDS_READ)
@settings(max_examples=16_700 if IS_FULL else 20, deadline=None)
@given(record=st.dictionaries(NAMES, VALUES, max_size=6))
def test_a_record_is_read_or_refused_with_a_sentence(
    reads: Callable[[dict[str, Any]], object], record: dict[str, Any]
) -> None:
    """Six readers, 100,000 records in all."""
    try:
        reads(record)
    except ValueError as problem:
        assert str(problem)
