"""What is read from each file of a gang, at its limits, and the sentence of each refusal."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from gavel.backends import machine
from gavel.backends.gang_records import (
    DEMAND_MAX,
    INSTANT_MAX_S,
    PID_MAX,
    TEXT_CHARACTERS,
    WHOLE_MAX,
    ExitRecord,
    GangRecord,
    exit_record,
    gang_record,
    launch_from,
    lease_record,
    ready_port,
    record_of,
    replica_load,
    started_boottime_s,
    supervisor_process,
)
from gavel.backends.nodes.protocol import ShardLaunch, Slot, launch_of
from gavel.ports import LaunchGang
from gavel.types import GangExit, GangOutcome, Load

FOLDER = Path("/gangs/j1/3")
LAUNCH = LaunchGang(
    job_id="j1",
    generation=3,
    user="ann",
    argv=("python", "train.py"),
    env={"LR": "0.1", "SEED": "7"},
    accelerator_type="a100",
    worker_ids=("a100-0", "a100-1"),
    resource="gavel/gang-j1-3",
    lease_expires_at_s=60.5,
    start_step=4,
    total_steps=None,
    checkpoint=None,
    secrets=("TOKEN",),
    data={"images": "/data"},
    shares_with="j2",
)
EXIT = {"outcome": "exited", "exit_code": 3, "message": "it failed", "log_tail": "oh", "boottime_s": 5.0}


def stored(value: Any) -> dict[str, Any]:
    """What the record reads as after it was in a file."""
    fields: dict[str, Any] = json.loads(json.dumps(value))
    return fields


def refusal(read: Callable[[Mapping[str, Any]], object], record: Mapping[str, Any]) -> str:
    """Why a record is refused, whole."""
    with pytest.raises(ValueError) as caught:
        read(record)
    return str(caught.value)


def gang_of(record: Mapping[str, Any]) -> GangRecord:
    return gang_record(record, FOLDER)


def test_a_launch_is_read_back_as_it_was_written() -> None:
    record = record_of(LAUNCH)
    assert record == asdict(LAUNCH)
    assert launch_from(stored(record)) == LAUNCH
    with_steps = LaunchGang(**{**asdict(LAUNCH), "total_steps": 9, "checkpoint": "2-8", "shares_with": None})
    assert launch_from(stored(record_of(with_steps))) == with_steps


def test_a_part_of_a_launch_is_read_back_with_its_accelerators() -> None:
    slots = tuple(Slot(accelerator_type="a100", resource="GPU", index=index, cpus=(index,)) for index in range(2))
    part = ShardLaunch(
        instruction=LAUNCH,
        ranks=(0, 1),
        slots=slots,
        node_of_rank=("n0", "n0"),
        environment={"MASTER_PORT": "1"},
        lease_grace_s=0.5,
        log_bytes=9,
        checkpoints="/shared",
        ports=(),
    )
    assert record_of(part) == asdict(part) | {"slots": [asdict(each) for each in slots]}
    assert launch_of(stored(record_of(part))) == part


def test_a_gang_is_read_with_the_boot_and_the_lease_that_it_had() -> None:
    record = {"instruction": stored(record_of(LAUNCH)), "boot_id": "b", "lease_boottime_s": 7.5}
    assert gang_of(record) == GangRecord(instruction=LAUNCH, boot_id="b", lease_boottime_s=7.5)
    another = "instruction is that of another gang"
    for folder in ("/gangs/j2/3", "/gangs/j1/4"):
        assert refusal(lambda each, at=Path(folder): gang_record(each, at), record) == another  # type: ignore[misc]


@pytest.mark.parametrize(
    ("over", "why"),
    [
        ({"instruction": None}, "instruction must be an object"),
        ({"boot_id": 1}, "boot_id must be a text"),
        ({"lease_boottime_s": "noon"}, "lease_boottime_s: str is not a number"),
        ({"lease_boottime_s": -0.001}, "lease_boottime_s must be from 0 to 1e+12 seconds"),
        ({"lease_boottime_s": 1.001e12}, "lease_boottime_s must be from 0 to 1e+12 seconds"),
    ],
)
def test_a_gang_whose_file_was_spoilt_is_refused_with_the_field(over: dict[str, Any], why: str) -> None:
    record = {"instruction": stored(record_of(LAUNCH)), "boot_id": "b", "lease_boottime_s": 7.5}
    assert refusal(gang_of, record | over) == why


@pytest.mark.parametrize(
    ("over", "why"),
    [
        ({"zeal": 1, "anger": 2}, "anger is no field of a launch"),
        ({"argv": "python"}, "argv must be texts"),
        ({"argv": ["python", 1]}, "argv must be texts"),
        ({"env": ["LR"]}, "env must be an object"),
        ({"env": {"LR": 0.1}}, "env must be texts"),
        ({"job_id": 7}, "job_id must be texts"),
        ({"job_id": None}, "job_id must be texts"),
        ({"generation": 1.5}, f"generation must be a whole number from 0 to {WHOLE_MAX}"),
        ({"generation": -1}, f"generation must be a whole number from 0 to {WHOLE_MAX}"),
        ({"start_step": WHOLE_MAX + 1}, f"start_step must be a whole number from 0 to {WHOLE_MAX}"),
        ({"lease_expires_at_s": "soon"}, "lease_expires_at_s: str is not a number"),
    ],
)
def test_a_launch_that_no_service_wrote_is_refused_with_the_field(over: dict[str, Any], why: str) -> None:
    assert refusal(launch_from, stored(record_of(LAUNCH)) | over) == why


def test_a_launch_that_lacks_a_field_is_refused_with_its_name() -> None:
    record = stored(record_of(LAUNCH))
    del record["user"]
    assert "'user'" in refusal(launch_from, record)


def test_the_numbers_of_a_launch_may_be_the_least_and_the_most() -> None:
    record = stored(record_of(LAUNCH)) | {"generation": 0, "start_step": WHOLE_MAX, "lease_expires_at_s": 0}
    read = launch_from(record)
    assert (read.generation, read.start_step, read.lease_expires_at_s) == (0, WHOLE_MAX, 0.0)
    assert launch_from(record | {"lease_expires_at_s": INSTANT_MAX_S}).lease_expires_at_s == INSTANT_MAX_S


def test_a_lease_says_its_end_and_whether_to_stop() -> None:
    assert lease_record({"expires_boottime_s": 5}) == (5.0, False)
    assert lease_record({"expires_boottime_s": 0, "stop": True}) == (0.0, True)
    assert lease_record({"expires_boottime_s": INSTANT_MAX_S, "stop": False}) == (INSTANT_MAX_S, False)
    assert refusal(lease_record, {}) == "expires_boottime_s: NoneType is not a number"


def test_an_end_is_read_whole_and_no_later_than_now() -> None:
    exit_ = GangExit(outcome=GangOutcome.EXITED, exit_code=3, message="it failed", log_tail="oh")
    with machine.boottime_from(lambda: 6.0):
        assert exit_record(EXIT) == ExitRecord(exit=exit_, boottime_s=5.0)
        assert exit_record(EXIT | {"boottime_s": 7.0}).boottime_s == 6.0
        assert exit_record(EXIT | {"ended_by": "lease"}).exit.ended_by == "lease"
        assert exit_record(EXIT | {"ended_by": "stop", "outcome": "preempted"}).exit == GangExit(
            outcome=GangOutcome.PREEMPTED, exit_code=3, message="it failed", log_tail="oh", ended_by="stop"
        )


@pytest.mark.parametrize(
    ("over", "why"),
    [
        ({"outcome": "won"}, "outcome is none that a gang has"),
        ({"outcome": None}, "outcome is none that a gang has"),
        ({"exit_code": (1 << 31) + 1}, f"exit_code must be a whole number from {-(1 << 31)} to {1 << 31}"),
        ({"exit_code": -(1 << 31) - 1}, f"exit_code must be a whole number from {-(1 << 31)} to {1 << 31}"),
        ({"exit_code": True}, f"exit_code must be a whole number from {-(1 << 31)} to {1 << 31}"),
        ({"message": None}, "message must be a text"),
        ({"log_tail": 1}, "log_tail must be a text"),
        ({"ended_by": "fate"}, "ended_by must be one of lease, stop"),
        ({"ended_by": None}, "ended_by must be one of lease, stop"),
        ({"boottime_s": None}, "boottime_s: NoneType is not a number"),
    ],
)
def test_an_end_that_was_forged_is_refused_with_the_field(over: dict[str, Any], why: str) -> None:
    assert refusal(exit_record, EXIT | over) == why


def test_an_exit_code_may_be_the_least_and_the_most() -> None:
    for code in (-(1 << 31), 1 << 31):
        assert exit_record(EXIT | {"exit_code": code}).exit.exit_code == code


def test_a_text_is_cut_and_cleaned_so_that_every_database_takes_it() -> None:
    long = "é" * TEXT_CHARACTERS
    assert exit_record(EXIT | {"message": long + "x", "log_tail": "a\0b\ud800c"}).exit == GangExit(
        outcome=GangOutcome.EXITED, exit_code=3, message=long, log_tail="a?b?c"
    )


def test_a_start_is_never_in_the_future() -> None:
    with machine.boottime_from(lambda: 6.0):
        assert [started_boottime_s({"boottime_s": at_s}) for at_s in (0, 5.5, 9.0)] == [0.0, 5.5, 6.0]
    assert refusal(started_boottime_s, {"boottime_s": -1}) == "boottime_s must be from 0 to 1e+12 seconds"


def test_a_replica_is_ready_only_where_its_file_says_so() -> None:
    assert [ready_port({"is_ready": True, "port": port}) for port in (1, 65_535)] == [1, 65_535]
    assert [ready_port({"is_ready": ready, "port": 80}) for ready in (False, None, 1, "yes")] == [None] * 4
    for port in (0, 65_536, "80", None):
        why = "port must be a whole number from 1 to 65535"
        assert refusal(ready_port, {"is_ready": True, "port": port}) == why


def test_the_load_of_a_replica_is_read_within_what_anybody_believes() -> None:
    assert replica_load({}) is None
    assert replica_load({"requests_per_s": 0, "queue": DEMAND_MAX}) == Load(requests_per_s=0.0, queue=DEMAND_MAX)
    assert refusal(replica_load, {"requests_per_s": -0.5, "queue": 0}) == "requests_per_s must be from 0 to 1e+09"
    assert refusal(replica_load, {"requests_per_s": 1, "queue": 1.1e9}) == "queue must be from 0 to 1e+09"
    assert refusal(replica_load, {"requests_per_s": 1}) == "NoneType is not a number"


def test_a_supervisor_is_a_process_that_may_be_signalled() -> None:
    assert supervisor_process({"pid": 2, "start_time": 0}) == (2, 0)
    assert supervisor_process({"pid": PID_MAX, "start_time": WHOLE_MAX}) == (PID_MAX, WHOLE_MAX)
    for pid in (1, 0, -1, PID_MAX + 1):
        assert refusal(supervisor_process, {"pid": pid, "start_time": 0}) == (
            f"pid must be a whole number from 2 to {PID_MAX}"
        )
    assert refusal(supervisor_process, {"pid": 2, "start_time": -1}) == (
        f"start_time must be a whole number from 0 to {WHOLE_MAX}"
    )
