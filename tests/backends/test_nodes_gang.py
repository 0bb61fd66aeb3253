"""A gang over several nodes: what it holds after each order, and what is stored of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gavel.backends.gang_records import record_of
from gavel.backends.launch import Preparation
from gavel.backends.nodes.gang import NodesGang, Part, read_gang
from gavel.backends.nodes.protocol import ShardSeen
from gavel.errors import BackendUnavailable, LimitReached, NotFound
from gavel.types import GangExit, GangOutcome, GangState, Load, Report, ReportKind
from tests.backends.boottimes import Boottime
from tests.backends.ray.test_agent import a_launch

ENDED, RUNNING, WAITING = GangState.ENDED, GangState.RUNNING, GangState.WAITING
NODES = ("n0", "n1")


def a_part(folder: Path, node: str, nodes: Sequence[str] = NODES, **over: Any) -> Part:
    """A part of one rank, which its node has shown."""
    launch = a_launch(folder, ranks=(nodes.index(node),), node_of_rank=tuple(nodes))
    given = {"launch": launch, "lease_boottime_s": 160.0, "lease_node_boottime_s": 0.0, "is_known": True}
    return Part(**{"node": node, **given, **over})


def a_gang(folder: Path, *nodes: str, **over: Any) -> NodesGang:
    """A gang with a lease until 160 and a rank on each node; without nodes it waits."""
    instruction = replace(a_launch(folder).instruction, **over.pop("launch", {}))
    given = {"instruction": instruction, "directory": folder / "gang", "lease_boottime_s": 160.0}
    parts = {node: a_part(folder, node, nodes) for node in nodes}
    return NodesGang(**{**given, "parts": parts, "state": RUNNING if nodes else WAITING, **over})


def shown(state: GangState, **over: Any) -> ShardSeen:
    return ShardSeen(**{"key": ("j1", 1), "state": state, "lease_node_boottime_s": 0.0, **over})


def ended(outcome: GangOutcome, code: int = 0, **over: Any) -> ShardSeen:
    return shown(ENDED, exit=GangExit(outcome=outcome, exit_code=code), ended_node_boottime_s=90.0, **over)


def nobody(node: str) -> bool:
    return False


def everybody(node: str) -> bool:
    return True


# --- what its parts say ---


def test_a_gang_has_started_once_its_last_rank_has(tmp_path: Path) -> None:
    gang = a_gang(tmp_path, *NODES)
    assert (a_gang(tmp_path).started_boottime_s, gang.started_boottime_s) == (None, None)
    gang.parts["n0"].started_boottime_s = 90.0
    assert gang.started_boottime_s is None
    gang.parts["n1"].started_boottime_s = 80.0
    assert gang.started_boottime_s == 90.0


def test_the_part_that_serves_says_where_and_how_much(tmp_path: Path) -> None:
    gang, load = a_gang(tmp_path, *NODES), Load(requests_per_s=2.0)
    assert (gang.endpoint, gang.load) == ("", None)
    gang.parts["n1"].endpoint, gang.parts["n1"].load = "h:80", load
    assert (gang.endpoint, gang.load) == ("h:80", load)
    assert (gang.key, gang.group_name) == (("j1", 1), "gavel/j1/1")


def test_new_reports_are_handed_on_once_and_none_of_a_part_that_is_over(tmp_path: Path) -> None:
    gang = a_gang(tmp_path, "n0")
    first, second, third = (Report(sequence=each, kind=ReportKind.PROGRESS, step=each) for each in (1, 2, 3))
    gang.take("n0", shown(RUNNING, reports=(first,)), 0.0)
    gang.take("n0", ended(GangOutcome.EXITED, reports=(first, second)), 0.0)
    gang.take("n0", shown(RUNNING, reports=(third,)), 0.0)
    gang.take("n9", shown(RUNNING, reports=(third,)), 0.0)
    assert (gang.fresh, gang.parts["n0"].state) == ([first, second], ENDED)


def test_the_clock_of_its_node_is_taken_off_what_a_part_says(tmp_path: Path) -> None:
    gang = a_gang(tmp_path, "n0")
    gang.take("n0", shown(RUNNING, started_node_boottime_s=1090.0), 1000.0)
    assert gang.started_boottime_s == 90.0


# --- orders ---


def test_a_lease_is_moved_only_later_and_only_while_the_gang_may_run(tmp_path: Path, boottime: Boottime) -> None:
    gang = a_gang(tmp_path, "n0")
    assert (gang.extend(170.0), gang.lease_boottime_s) == (True, 170.0)
    assert (gang.extend(170.0), gang.extend(165.0), gang.lease_boottime_s) == (False, False, 170.0)
    for over in ({"state": ENDED}, {"is_stopping": True}, {"lease_boottime_s": 100.0}):
        closed = a_gang(tmp_path, "n0", **over)
        before = closed.lease_boottime_s
        assert (closed.extend(190.0), closed.lease_boottime_s) == (False, before)
    assert a_gang(tmp_path).extend(170.0)


def test_a_gang_makes_room_for_one_other_once(tmp_path: Path) -> None:
    gang = a_gang(tmp_path, "n0")
    assert (gang.makes_room(None), gang.instruction.shares_with) == (False, None)
    assert (gang.makes_room("j2"), gang.instruction) == (True, replace(gang.instruction, shares_with="j2"))
    assert (gang.makes_room("j3"), gang.instruction.shares_with) == (False, "j2")


def test_a_gang_begins_with_its_parts_and_the_uid_of_its_user(tmp_path: Path) -> None:
    gang = a_gang(tmp_path, uid=70)
    parts = a_gang(tmp_path, *NODES).parts
    gang.begin(parts)
    expected = {node: replace(part, launch=replace(part.launch, uid=70)) for node, part in parts.items()}
    assert (gang.state, gang.parts) == (RUNNING, expected)


def test_a_stop_ends_a_gang_that_waits_and_asks_one_that_runs(tmp_path: Path, boottime: Boottime) -> None:
    waiting, silent, running = a_gang(tmp_path), a_gang(tmp_path), a_gang(tmp_path, "n0")
    waiting.stop("cancelled")
    silent.stop("")
    for gang, message in ((waiting, "cancelled"), (silent, "stopped before it started")):
        assert gang.exit == GangExit(outcome=GangOutcome.PREEMPTED, message=message)
        assert (gang.state, gang.ended_boottime_s, gang.is_stopping) == (ENDED, 100.0, False)
    running.stop("cancelled")
    running.stop("drained")
    assert (running.state, running.is_stopping, running.reason, running.exit) == (RUNNING, True, "cancelled", None)
    over = a_gang(tmp_path, "n0", state=ENDED)
    over.stop("cancelled")
    assert (over.is_stopping, over.reason, over.exit) == (False, "", None)


# --- secrets ---


def preparation(problem: Exception | None = None, uid_problem: Exception | None = None) -> Preparation:
    """Reads the secret T of ann as `t`, and gives her the uid 70, or raises."""

    def secrets_of(user: str, names: Sequence[str]) -> Mapping[str, str]:
        if problem:
            raise problem
        return {f"{user} {name}": "t" for name in names}

    def uid_of(user: str) -> int:
        if uid_problem:
            raise uid_problem
        return {"ann": 70}[user]

    return Preparation(secrets_of=secrets_of, uid_of=uid_of)


def test_the_secrets_and_the_uid_are_those_of_the_user_of_the_job(tmp_path: Path) -> None:
    gang = a_gang(tmp_path, launch={"secrets": ("T",)})
    assert (gang.lacks_secrets, a_gang(tmp_path).lacks_secrets) == (True, False)
    gang.read_of_user(preparation())
    assert (gang.secrets, gang.uid, gang.lacks_secrets, gang.state) == ({"ann T": "t"}, 70, False, WAITING)


@pytest.mark.parametrize(
    ("problems", "exit_"),
    [
        ((NotFound("no secret T"),), GangExit(outcome=GangOutcome.NOT_STARTED, message="no secret T")),
        ((None, LimitReached("no uid")), GangExit(outcome=GangOutcome.NOT_STARTED, message="no uid")),
        ((OSError("disk"),), GangExit(outcome=GangOutcome.LOST, message="cannot start: disk")),
        ((BackendUnavailable("key"),), GangExit(outcome=GangOutcome.LOST, message="cannot start: key")),
    ],
)
def test_a_gang_that_cannot_have_its_secrets_ends_with_the_reason(
    tmp_path: Path, boottime: Boottime, problems: tuple[Exception | None, ...], exit_: GangExit
) -> None:
    gang = a_gang(tmp_path, launch={"secrets": ("T",)})
    gang.read_of_user(preparation(*problems))
    assert (gang.state, gang.exit, gang.ended_boottime_s) == (ENDED, exit_, 100.0)


# --- files ---


def test_all_that_the_next_service_needs_is_stored(tmp_path: Path, boottime: Boottime) -> None:
    gang = a_gang(tmp_path, *NODES, is_stopping=True)
    part = gang.parts["n1"]
    part.log_offset, part.samples_offset, part.is_foreign = 17, 5, True
    gang.remember(1000.0)
    record = json.loads((tmp_path / "gang" / "gang.json").read_text())
    parts = {
        node: {
            "launch": record_of(each.launch),
            "log_offset": each.log_offset,
            "samples_offset": each.samples_offset,
            "is_foreign": each.is_foreign,
        }
        for node, each in gang.parts.items()
    }
    expected = {"instruction": record_of(gang.instruction), "is_stopping": True, "exit": None, "parts": parts}
    assert record == json.loads(json.dumps(expected | {"lease_expires_at_s": 1060.0}))
    assert (gang.remembered_boottime_s, (tmp_path / "gang").stat().st_mode & 0o777) == (100.0, 0o700)


def test_a_gang_that_runs_is_read_back_with_its_parts_in_doubt(tmp_path: Path, boottime: Boottime) -> None:
    gang = a_gang(tmp_path, *NODES)
    gang.parts["n1"].log_offset, gang.parts["n1"].samples_offset, gang.parts["n1"].is_foreign = 17, 5, True
    gang.remember(1000.0)
    boottime.now_s = 7.0
    lease = {"lease_boottime_s": 57.0, "live_boottime_s": 0.0, "is_known": False}
    parts = {
        "n0": a_part(tmp_path, "n0", **lease),
        "n1": a_part(tmp_path, "n1", **lease, log_offset=17, samples_offset=5, is_foreign=True),
    }
    expected = a_gang(tmp_path, *NODES, parts=parts, lease_boottime_s=57.0)
    assert read_gang(tmp_path / "gang", 1010.0) == expected


@pytest.mark.parametrize("is_stopping", [False, True])
def test_a_gang_that_waits_is_read_back_as_one_that_waits(
    tmp_path: Path, boottime: Boottime, is_stopping: bool
) -> None:
    gang = a_gang(tmp_path, is_stopping=is_stopping)
    gang.remember(1000.0)
    assert read_gang(tmp_path / "gang", 1000.0) == a_gang(tmp_path, is_stopping=is_stopping)


def test_a_gang_that_ended_before_any_node_had_it_is_read_back_with_its_end(tmp_path: Path, boottime: Boottime) -> None:
    gang = a_gang(tmp_path)
    exit_ = GangExit(outcome=GangOutcome.LOST, exit_code=3, message="m", log_tail="t", ended_by="stop")
    gang.end(exit_)
    gang.remember(1000.0)
    assert read_gang(tmp_path / "gang", 1000.0) == a_gang(
        tmp_path, state=ENDED, exit=exit_, is_stopping=True, ended_boottime_s=100.0
    )


def test_a_record_of_an_earlier_version_is_read_without_what_it_lacks(tmp_path: Path, boottime: Boottime) -> None:
    gang = a_gang(tmp_path, "n0")
    gang.parts["n0"].samples_offset, gang.parts["n0"].is_foreign = 5, True
    gang.remember(1000.0)
    path = tmp_path / "gang" / "gang.json"
    record = json.loads(path.read_text())
    del record["parts"]["n0"]["samples_offset"], record["parts"]["n0"]["is_foreign"]
    path.write_text(json.dumps(record))
    again = read_gang(path.parent, 1000.0)
    assert again is not None
    assert (again.parts["n0"].samples_offset, again.parts["n0"].is_foreign) == (0, False)


@pytest.mark.parametrize("content", ["", "{}", '{"instruction": 1, "lease_expires_at_s": 1}'])
def test_a_record_that_no_service_wrote_is_no_gang(tmp_path: Path, content: str) -> None:
    (tmp_path / "gang.json").write_text(content)
    assert read_gang(tmp_path, 0.0) is None
    assert read_gang(tmp_path / "none", 0.0) is None


def test_a_record_that_is_refused_is_written_to_the_log(tmp_path: Path) -> None:
    (tmp_path / "gang.json").write_text('{"instruction": 1, "lease_expires_at_s": "noon"}')
    with capture_logs() as logs:
        assert read_gang(tmp_path, 0.0) is None
    error = "unsupported operand type(s) for +: 'float' and 'str'"
    assert logs == [{"event": "gang.refused", "folder": str(tmp_path), "error": error, "log_level": "warning"}]


def test_a_gang_that_is_forgotten_leaves_nothing_in_its_folder(tmp_path: Path) -> None:
    gang = a_gang(tmp_path, "n0")
    gang.remember(0.0)
    gang.remember(1.0)
    gang.forget()
    gang.forget()
    assert not (tmp_path / "gang").exists()


# --- gangs of another service ---


def test_a_part_that_was_adopted_has_the_lease_of_its_node_and_the_others_are_expected(tmp_path: Path) -> None:
    launch = a_launch(tmp_path, ranks=(0, 2), node_of_rank=("n0", "n1", "n0"), ports=(9,))
    gang = a_gang(tmp_path, "n5", parts={})
    gang.adopt("n0", launch, 170.0, 1000.0)
    lease = {"lease_boottime_s": 170.0, "live_boottime_s": 0.0, "is_foreign": True}
    other = replace(launch, ranks=(1,), slots=(), ports=())
    assert gang.parts == {
        "n0": Part(node="n0", launch=launch, lease_node_boottime_s=1170.0, **lease),  # type: ignore[arg-type]
        "n1": Part(node="n1", launch=other, lease_node_boottime_s=0.0, **lease),  # type: ignore[arg-type]
    }


def test_a_part_that_is_known_already_is_not_adopted_anew_for_another_node(tmp_path: Path) -> None:
    gang = a_gang(tmp_path, *NODES)
    kept = gang.parts["n0"]
    outdated = a_gang(tmp_path, "n1")
    outdated.parts["n1"].log_offset, outdated.parts["n1"].samples_offset = 17, 5
    gang.adopt("n1", kept.launch, 170.0, 0.0, outdated)
    adopted = gang.parts["n1"]
    assert gang.parts["n0"] is kept
    assert (adopted.is_foreign, adopted.log_offset, adopted.samples_offset) == (True, 17, 5)


@pytest.mark.parametrize(
    ("over", "part", "is_doubtful"),
    [
        ({}, {}, True),
        ({}, {"is_known": True}, False),
        ({}, {"live_boottime_s": None}, False),
        ({"parts": {}}, None, False),
    ],
)
def test_a_gang_is_doubtful_while_no_node_has_reported_any_of_its_parts(
    tmp_path: Path, over: dict[str, Any], part: dict[str, Any] | None, is_doubtful: bool
) -> None:
    gang = a_gang(tmp_path, *NODES, **over)
    for each in gang.parts.values():
        each.is_known, each.live_boottime_s = False, 0.0
    for name, value in (part or {}).items():
        setattr(gang.parts["n1"], name, value)
    assert gang.is_doubtful is is_doubtful


@pytest.mark.parametrize(
    ("over", "has_never_arrived"),
    [
        ({}, True),
        ({"state": ENDED}, False),
        ({"is_stopping": True}, False),
        ({"lease_boottime_s": 100.0}, False),
    ],
)
def test_a_launch_never_arrived_only_if_it_might_still_start(
    tmp_path: Path, boottime: Boottime, over: dict[str, Any], has_never_arrived: bool
) -> None:
    gang = a_gang(tmp_path, *NODES, **over)
    for each in gang.parts.values():
        each.is_known, each.live_boottime_s = False, 0.0
    assert gang.never_arrived(everybody) is has_never_arrived
    assert gang.never_arrived(lambda node: node in NODES) is has_never_arrived
    assert not gang.never_arrived(lambda node: node == "n0")
    gang.parts["n1"].is_foreign = True
    assert not gang.never_arrived(everybody)
