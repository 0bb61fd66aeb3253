"""What a tick has decided so far: later steps and the commit find what each step puts there, and nothing else."""

from copy import copy
from dataclasses import fields, replace
from typing import Any

import pytest

from gavel.mechanism.jobs.index import JobIndex
from gavel.mechanism.tick import Outcome, Tick
from gavel.ports import AuditEntry, JobEvent, Snapshot, StopGang
from gavel.types import (
    ApplicationResource,
    EphemeralResource,
    InfeasibleType,
    Job,
    JobState,
    NodeState,
    NodeStatus,
    Observation,
    Operation,
    OperationState,
    Reason,
    RoundRecord,
    StartupTimes,
)
from gavel.types.autopilot import AutopilotSetting
from tests.builders import a_job
from tests.mechanism.test_explaining import a_record
from tests.mechanism.world import a_cluster_of_nodes

NOW_S = 100.0
SEEN = Observation(observed_at_s=NOW_S, cluster=a_cluster_of_nodes(n0="fast", n1="fast"), gangs=())
JOBS = {"a": a_job("a"), "b": a_job("b", state=JobState.LEASED, generation=1)}
INFEASIBLE = InfeasibleType(
    user="ann", kind="mlp", scale_factor=1, accelerator_type="slow", evidence="out of memory", job_id="a", at_s=1.0
)
COMMAND = Operation(
    id="o1", sequence=1, kind="node.cordon", subject="node/n0", body={"reason": "fan"}, by="op", created_at_s=90.0
)
RESOURCE = ApplicationResource(
    resource=EphemeralResource(name="r", node="n0", capacity=1, owner="op", lease_expires_at_s=200.0, generation=1)
)
CLOSED = NodeStatus(name="n0", state=NodeState.CORDONED, is_cordoned=True)
EVENT = JobEvent(job_id="a", at_s=NOW_S, kind="job.paused")


def a_snapshot(*jobs: Job, **over: Any) -> Snapshot:
    return Snapshot(version=1, jobs={job.id: job for job in jobs}, tiers={}, **over)


def a_tick(*jobs: Job, **over: Any) -> Tick:
    return Tick.of(NOW_S, SEEN, a_snapshot(*(jobs or JOBS.values()), **over))


def decided(tick: Tick) -> dict[str, Any]:
    """All that the tick holds, but for the index: it is of `jobs`."""
    held = {each.name: getattr(tick, each.name) for each in fields(tick) if each.name not in ("index", "_usable")}
    return {name: copy(value) if isinstance(value, dict | list) else value for name, value in held.items()}


def differences(before: dict[str, Any], tick: Tick) -> dict[str, Any]:
    return {name: value for name, value in decided(tick).items() if value != before[name]}


def test_a_tick_begins_with_what_is_stored_and_has_decided_nothing() -> None:
    times = StartupTimes(kind="mlp", accelerator_type="fast", startup_s=(3.0,))
    snapshot = a_snapshot(*JOBS.values(), startup_times=(times,), infeasible=(INFEASIBLE,))
    expected = Tick(
        now_s=NOW_S,
        seen=SEEN,
        snapshot=snapshot,
        jobs=dict(JOBS),
        startup_times=(times,),
        infeasible=(INFEASIBLE,),
    )
    assert decided(Tick.of(NOW_S, SEEN, snapshot)) == decided(expected)
    for tick in (Tick.of(NOW_S, SEEN, snapshot), expected):
        assert tick.jobs is tick.index.jobs and tick.jobs == JOBS and tick.index.leased == {"b": JOBS["b"]}


def test_the_index_of_the_tick_before_becomes_that_of_the_stored_jobs() -> None:
    index = JobIndex(JOBS)
    tick = Tick.of(NOW_S, SEEN, a_snapshot(a_job("c")), index)
    assert tick.index is index and tick.jobs is index.jobs and index.jobs == {"c": a_job("c")}


def test_a_job_that_is_put_replaces_the_one_before_and_an_ended_one_is_only_written() -> None:
    tick = a_tick()
    later, ended = replace(JOBS["a"], steps_done=7), replace(JOBS["b"], state=JobState.COMPLETED)
    tick.put(later, EVENT)
    assert tick.jobs == {"a": later, "b": JOBS["b"]} and tick.changed == {"a": later} and tick.events == [EVENT]
    tick.put(ended)
    assert tick.jobs == {"a": later} == tick.index.jobs and tick.index.leased == {}
    assert tick.changed == {"a": later, "b": ended} and tick.events == [EVENT]


def test_jobs_that_are_not_expected_to_get_on_are_stalled_unless_they_are_held_or_may_not_be_served() -> None:
    reason = "it never saves"
    stalled = a_job("s", no_progress=reason, retry_at_s=NOW_S)
    others = (
        a_job("held", no_progress=reason),
        a_job("paused", no_progress=reason, pause_requested=True),
        a_job("later", no_progress=reason, retry_at_s=NOW_S + 1.0),
        a_job("waits", waits_for=("x",)),
        a_job("plain"),
    )
    tick = a_tick(stalled, *others)
    tick.held = {"held": (Reason.QUOTA_EXCEEDED, "")}
    assert tick.stalled() == [("s", reason)]


def test_all_that_a_command_decides_is_there_afterwards() -> None:
    tick = a_tick()
    tick.nodes = {"n0": replace(CLOSED, is_cordoned=False), "n1": NodeStatus(name="n1", state=NodeState.READY)}
    before = decided(tick)
    paused = replace(JOBS["a"], pause_requested=True)
    stop = StopGang(job_id="b", generation=1)
    setting = AutopilotSetting(goal="makespan")
    outcome = Outcome(
        result={"done": True},
        jobs=(paused,),
        events=(EVENT,),
        nodes=(CLOSED,),
        resources=(RESOURCE,),
        instructions=(stop,),
        policy="fifo",
        infeasible=(INFEASIBLE,),
        autopilot=setting,
        before={"is_cordoned": False},
        after={"is_cordoned": True},
    )
    tick.take(COMMAND, outcome)
    assert differences(before, tick) == {
        "jobs": {"a": paused, "b": JOBS["b"]},
        "changed": {"a": paused},
        "events": [EVENT],
        "nodes": {"n0": CLOSED, "n1": NodeStatus(name="n1", state=NodeState.READY)},
        "resources": (RESOURCE,),
        "instructions": [stop],
        "policy": "fifo",
        "infeasible": (INFEASIBLE,),
        "autopilot": setting,
        "operations": [
            replace(COMMAND, state=OperationState.DONE, result={"done": True}, finished_at_s=NOW_S),
        ],
        "audit": [
            AuditEntry(
                at_s=NOW_S,
                by="op",
                subject="node/n0",
                before={"is_cordoned": False},
                after={"command": "node.cordon", "is_cordoned": True},
            )
        ],
    }


def test_a_command_that_decides_nothing_leaves_what_commands_before_it_decided() -> None:
    tick = a_tick()
    tick.resources = (RESOURCE,)
    tick.policy, tick.infeasible, tick.autopilot = "fifo", (INFEASIBLE,), AutopilotSetting()
    before = decided(tick)
    tick.take(COMMAND, Outcome())
    done = replace(COMMAND, state=OperationState.DONE, finished_at_s=NOW_S)
    assert differences(before, tick) == {"operations": [done]}


def test_a_command_may_take_away_all_resources_and_marks() -> None:
    tick = a_tick(infeasible=(INFEASIBLE,))
    tick.resources = (RESOURCE,)
    before = decided(tick)
    tick.take(COMMAND, Outcome(resources=(), infeasible=()))
    done = replace(COMMAND, state=OperationState.DONE, finished_at_s=NOW_S)
    assert differences(before, tick) == {"resources": (), "infeasible": (), "operations": [done]}


@pytest.mark.parametrize("after", [None, {"is_cordoned": True}])
def test_a_command_that_is_not_done_yet_is_written_only_when_its_result_changes(after: dict[str, Any] | None) -> None:
    tick, begun = a_tick(), replace(COMMAND, result={"left": 2})
    before = decided(tick)
    tick.take(begun, Outcome(is_pending=True, result={"left": 2}, after=after))
    assert differences(before, tick) == {}
    tick.take(begun, Outcome(is_pending=True, result={"left": 1}, after=after))
    assert differences(before, tick) == {"operations": [replace(COMMAND, result={"left": 1})]}


def test_a_command_that_closes_a_node_takes_its_workers_out_of_what_can_be_leased() -> None:
    tick = a_tick()
    assert tick.usable == SEEN.cluster and tick.usable is tick.usable
    tick.take(COMMAND, Outcome(nodes=(CLOSED,)))
    assert [worker.id for worker in tick.usable.workers] == ["n1-0"]


def in_round(index: int) -> RoundRecord:
    record = a_record("max_min_fairness")
    return replace(record, plan=replace(record.plan, round_index=index, parent_round_index=index - 1))


FIRST, SECOND, THIRD = in_round(1), in_round(2), in_round(3)


@pytest.mark.parametrize(
    ("stored", "record", "newest"),
    [
        ((), None, ()),
        ((FIRST, SECOND), None, (FIRST, SECOND)),
        ((), FIRST, (FIRST,)),
        ((FIRST, SECOND), THIRD, (SECOND, THIRD)),
    ],
    ids=["none", "two stored", "the first of all", "two stored and a new one"],
)
def test_the_newest_two_rounds_are_those_stored_and_the_one_of_this_tick(
    stored: tuple[RoundRecord, ...], record: RoundRecord | None, newest: tuple[RoundRecord, ...]
) -> None:
    tick = a_tick(round_records=stored)
    tick.record = record
    assert tick.round_records == newest and tick.round_plans == tuple(each.plan for each in newest)


@pytest.mark.parametrize("record", [None, THIRD], ids=["it is the newest", "it is in force"])
def test_an_amended_plan_replaces_that_of_its_round_only(record: RoundRecord | None) -> None:
    tick, amended = a_tick(round_records=(FIRST, SECOND)), replace(SECOND.plan, policy="amended")
    tick.record, tick.amended = record, amended
    assert tick.round_plans == ((amended, THIRD.plan) if record else (FIRST.plan, amended))
    assert [each.problem for each in tick.round_records if each.plan is amended] == [SECOND.problem]
