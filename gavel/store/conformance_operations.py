"""The part of `gavel.store.conformance` about commands, nodes, the policy, predictions, and rounds amended in force."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gavel.errors import InvariantViolated, NotFound, StaleVersion, StoreUnavailable
from gavel.ports import AuditEntry, Changes
from gavel.store.rules import PENDING_COMMANDS_MAX
from gavel.store.samples import SimulationStore, refused, round_record, same, spec
from gavel.types import (
    ApplicationResource,
    EphemeralResource,
    Expected,
    Job,
    JobState,
    NodeState,
    NodeStatus,
    Operation,
    OperationState,
    Prediction,
)
from gavel.types.autopilot import AutopilotMode, AutopilotSetting


def _command(store: SimulationStore, **over: Any) -> Operation:
    fields: dict[str, Any] = {"subject": "node/n0", "body": {"window_s": 1 / 3}, "by": "op", "now_s": 2.0}
    return store.add_command("node.drain", **fields | over)


def _submit(store: SimulationStore) -> Job:
    return store.submit(spec(), key=None, body_hash="h", now_s=1.0).job


def _done(operation: Operation, **over: Any) -> Operation:
    return replace(operation, state=OperationState.DONE, finished_at_s=3.5, **over)


def _commit(store: SimulationStore, **changes: Any) -> int:
    return store.commit(store.snapshot().version, Changes(**changes))


def a_command_waits_for_the_scheduler(store: SimulationStore) -> None:
    """Pending, readable by its id, in the snapshot in order of arrival; the view does not become stale."""
    view = store.snapshot()
    first, second = _command(store), _command(store, body={"window_s": 5, "deep": {"list": [1, "é", None]}})
    assert first == Operation(
        id=first.id,
        sequence=first.sequence,
        kind="node.drain",
        subject="node/n0",
        body={"window_s": 1 / 3},
        by="op",
        created_at_s=2.0,
    )
    assert first.id != second.id and first.sequence < second.sequence
    assert store.operation(first.id) == first and store.snapshot().commands == (first, second)
    assert view.commands == () and store.commit(view.version, Changes()) == view.version + 1
    with refused(NotFound):
        store.operation("none")


def an_operation_ends_once_with_what_it_changed(store: SimulationStore) -> None:
    """Outcome, nodes and audit in one commit; it leaves the snapshot, stays readable, and cannot end again."""
    first, second = _command(store), _command(store)
    done = _done(first, result={"state": "draining"})
    failed = replace(
        second, state=OperationState.FAILED, error="no node n0\x00", error_kind="NotFound", finished_at_s=3.5
    )
    node = NodeStatus(name="n0", state=NodeState.DRAINING, since_s=2.5, is_cordoned=True, drain_by_s=62.5, by="op")
    entry = AuditEntry(at_s=3.5, by="op", subject="node/n0", before=None, after={"state": "draining"})
    _commit(store, operations=(done, failed), nodes=(node,), audit=(entry,))
    assert store.snapshot().commands == () and store.operation(first.id) == done
    assert store.operation(second.id).error.startswith("no node n0")
    assert store.nodes() == (node,) and store.snapshot().nodes == {"n0": node}
    with refused(InvariantViolated):
        _commit(store, operations=(done,), nodes=())
    with refused(NotFound):
        _commit(store, operations=(replace(done, id="none"),), nodes=())
    assert store.nodes() == (node,)


def an_operation_may_be_noted_and_stay_pending(store: SimulationStore) -> None:
    """The decision for it is durable before it is carried out."""
    noted = replace(_command(store), result={"generation": 4})
    _commit(store, operations=(noted,))
    assert store.snapshot().commands == (noted,) and store.operation(noted.id) == noted


def commands_are_refused_when_too_many_wait(store: SimulationStore) -> None:
    """A refused command is not stored; there is room again once some have ended."""
    waiting = [_command(store) for _ in range(PENDING_COMMANDS_MAX)]
    with refused(StoreUnavailable):
        _command(store)
    _commit(store, operations=tuple(_done(each) for each in waiting))
    assert store.snapshot().commands == () and _command(store).sequence > waiting[-1].sequence


def nodes_are_replaced_whole(store: SimulationStore) -> None:
    """A commit without nodes does not change them."""
    nodes = tuple(NodeStatus(name=name, since_s=1.5) for name in ("a", "b"))
    assert store.nodes() == () and dict(store.snapshot().nodes) == {}
    _commit(store, nodes=nodes)
    _commit(store, round=round_record(1))
    assert store.nodes() == nodes and list(store.snapshot().nodes) == ["a", "b"]
    _commit(store, nodes=())
    assert store.nodes() == () and dict(store.snapshot().nodes) == {}


def resources_are_replaced_whole(store: SimulationStore) -> None:
    """A commit without resources does not change them."""
    pool = EphemeralResource(name="lb", node="n0", capacity=2, owner="app", lease_expires_at_s=9.5, generation=3)
    wanted = (ApplicationResource(resource=pool, job_id="j", held=1), ApplicationResource(resource=pool))
    assert store.resources() == () and store.snapshot().resources == ()
    _commit(store, resources=wanted)
    _commit(store, round=round_record(1))
    assert store.resources() == wanted and store.snapshot().resources == wanted
    _commit(store, resources=())
    assert store.resources() == () and store.snapshot().resources == ()


def a_round_in_force_is_amended(store: SimulationStore) -> None:
    """Its plan is replaced, its decision stays; another round, or other times, cannot be stored this way."""
    records = [round_record(index) for index in (1, 2)]
    for record in records:
        _commit(store, round=record)
    for index, record in zip((0, 1), records, strict=True):
        lease = replace(record.plan.leases[0], job_id="k", worker_ids=("w1",), starts_at_s=4.5)
        amended = replace(record.plan, leases=(*record.plan.leases, lease))
        before = store.snapshot()
        _commit(store, amended=amended)
        assert same(store.snapshot().round_records[index], replace(record, plan=amended))
        assert same(store.round(index + 1), replace(record, plan=amended))
        assert same(before.round_records[index], record)
    for wrong in (round_record(3).plan, replace(records[0].plan, duration_s=11.0)):
        with refused(StaleVersion):
            _commit(store, amended=wrong)


def a_policy_that_was_chosen_stays(store: SimulationStore) -> None:
    """Until another is chosen; a fresh store has none."""
    assert store.snapshot().policy == ""
    _commit(store, policy="fifo")
    _commit(store, round=round_record(1))
    assert store.snapshot().policy == "fifo"
    _commit(store, policy="hierarchical?x=1")
    assert store.snapshot().policy == "hierarchical?x=1"


def what_is_set_of_the_autopilot_stays(store: SimulationStore) -> None:
    """Until something else is set; a fresh store has the default, which advises."""
    assert store.snapshot().autopilot == AutopilotSetting(mode=AutopilotMode.ADVISE)
    wanted = AutopilotSetting(
        mode=AutopilotMode.PIN, goal="money=1", candidates=("fifo", "a?b=1/c=2"), epoch_s=0.1 + 0.2, pinned="fifo"
    )
    _commit(store, autopilot=wanted)
    _commit(store, round=round_record(1))
    assert store.snapshot().autopilot == wanted


def what_was_expected_of_a_job_is_kept_as_first_said_and_settled_when_it_completes(store: SimulationStore) -> None:
    """A second prediction changes nothing; a job that did not complete is never settled; the newest end comes first."""
    first, second, third = (_submit(store) for _ in range(3))
    start, finish = Expected(at_s=2.0, low_s=1.0, high_s=1 / 3), Expected(at_s=9.0, low_s=8.0, high_s=0.1 + 0.2)
    made = Prediction(job_id=first.id, made_at_s=1.0, start=start, finish=finish)
    others = [Prediction(job_id=job.id, made_at_s=2.0, finish=finish) for job in (second, third)]
    _commit(store, predictions=(made, *others), round=round_record(1))
    _commit(store, predictions=(replace(made, made_at_s=5.0),), round=round_record(2))
    assert store.predictions() == ()
    ended = replace(first, state=JobState.COMPLETED, steps_done=100, started_at_s=3.0, finished_at_s=7.0)
    later = replace(second, state=JobState.COMPLETED, steps_done=100, started_at_s=3.0, finished_at_s=8.0)
    _commit(store, jobs=(ended, later, replace(third, state=JobState.CANCELLED, finished_at_s=9.0)))
    settled = replace(made, started_at_s=3.0, finished_at_s=7.0)
    assert store.predictions() == (replace(others[0], started_at_s=3.0, finished_at_s=8.0), settled)
    assert [each.job_id for each in store.predictions(limit=1)] == [second.id]


CHECKS: tuple[Callable[[SimulationStore], None], ...] = (
    a_command_waits_for_the_scheduler,
    an_operation_ends_once_with_what_it_changed,
    an_operation_may_be_noted_and_stay_pending,
    commands_are_refused_when_too_many_wait,
    nodes_are_replaced_whole,
    resources_are_replaced_whole,
    a_round_in_force_is_amended,
    a_policy_that_was_chosen_stays,
    what_is_set_of_the_autopilot_stays,
    what_was_expected_of_a_job_is_kept_as_first_said_and_settled_when_it_completes,
)
