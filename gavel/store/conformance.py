"""What a store has to do, as checks for anybody's implementation: of all ports, or of those that a simulation needs.

@pytest.mark.parametrize("check", SIMULATION_CHECKS, ids=lambda check: check.__name__)  # and API_CHECKS
def test_my_store_conforms(check):
    check(MyStore())  # a fresh one each time, with one tier `default` and nothing else
"""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gavel.errors import Conflict, InvalidRequest, InvariantViolated, KeyReused, LimitReached, NotFound, StaleVersion
from gavel.ports import Changes, JobEvent, ThroughputEstimate, ThroughputSource
from gavel.store import (
    conformance_api,
    conformance_autopilot,
    conformance_federated,
    conformance_job_users,
    conformance_live,
    conformance_notifications,
    conformance_operations,
    conformance_user_requests,
)
from gavel.store.samples import SimulationStore, WholeStore, refused, round_record, same, spec
from gavel.types import Cluster, InfeasibleType, Job, JobState, Node, StartupTimes, Tier, Worker
from gavel.types.checkpoints import CHECKPOINT_GONE, CHECKPOINT_UNREADABLE


def _submit(store: SimulationStore, now_s: float = 1.0, **over: Any) -> Job:
    return store.submit(spec(**over), key=None, body_hash="h", now_s=now_s).job


def _put_tier(store: SimulationStore, tier: Tier, expected_version: int | None = None) -> Tier:
    return store.put_tier(tier, expected_version=expected_version, by="op", now_s=1.0)


def _commit(store: SimulationStore, *jobs: Job, **changes: Any) -> int:
    return store.commit(store.snapshot().version, Changes(jobs=jobs, **changes))


# --- jobs -------------------------------------------------------------------------------------------------------


def a_fresh_store_holds_one_tier_and_nothing_else(store: SimulationStore) -> None:
    """Tier `default` with the objective fairness."""
    snapshot = store.snapshot()
    assert (snapshot.version, dict(snapshot.jobs), snapshot.round_records) == (0, {}, ())
    assert store.tiers() == tuple(snapshot.tiers.values()) == (Tier(name="default", objective="fairness"),)
    assert store.rounds() == () and store.throughputs() == () and store.cluster() == Cluster()
    with refused(NotFound):
        store.round()


def a_submitted_job_is_seen_everywhere(store: SimulationStore) -> None:
    """Read, in the snapshot, with an event."""
    job = _submit(store, now_s=12.5)
    assert job == Job(id=job.id, spec=spec(), submitted_at_s=12.5)
    assert store.job(job.id) == job and dict(store.snapshot().jobs) == {job.id: job}
    assert [(event.kind, event.at_s) for event in store.events(job.id)] == [("job.submitted", 12.5)]


def a_key_belongs_to_one_body_of_one_user(store: SimulationStore) -> None:
    """Same key and body: the same job; other body: KeyReused; other user: a namespace of its own."""
    first = store.submit(spec(), key="k", body_hash="h", now_s=1.0)
    again = store.submit(spec(), key="k", body_hash="h", now_s=2.0)
    assert first.created and not again.created and again.job == first.job
    with refused(KeyReused):
        store.submit(spec(total_steps=5), key="k", body_hash="other", now_s=2.0)
    other = store.submit(spec(user="bob"), key="k", body_hash="other", now_s=2.0)
    assert other.created and other.job.id != first.job.id
    assert len(store.snapshot().jobs) == 2 and len(store.events(first.job.id)) == 1


def without_a_key_each_submit_is_a_job(store: SimulationStore) -> None:
    """Equal bodies, different jobs."""
    assert _submit(store).id != _submit(store).id


def ids_sort_by_time(store: SimulationStore) -> None:
    """16 characters [0-9a-z], growing even if the clock stands still or goes back."""
    ids = [_submit(store, now_s).id for now_s in (0.0, 5.0, 5.0, 4.0, 1.7e9)]
    assert ids == sorted(set(ids)) and all(re.fullmatch("[0-9a-z]{16}", each) for each in ids)


def a_cancel_is_recorded_once(store: SimulationStore) -> None:
    """One new version and one event; only the scheduler changes the state."""
    job = _submit(store)
    changed = store.request_cancel(job.id, now_s=3.0)
    assert changed == replace(job, cancel_requested=True, version=job.version + 1) == store.job(job.id)
    assert store.request_cancel(job.id, now_s=4.0) == changed
    assert store.snapshot().jobs[job.id] == changed
    assert [event.kind for event in store.events(job.id)] == ["job.submitted", "cancel.requested"]


def an_ended_job_cannot_be_cancelled(store: SimulationStore) -> None:
    """Conflict after COMPLETED and FAILED, no change after CANCELLED, NotFound for none."""
    for state in (JobState.COMPLETED, JobState.FAILED):
        job = _submit(store)
        _commit(store, replace(job, state=state))
        with refused(Conflict):
            store.request_cancel(job.id, now_s=3.0)
    job = _submit(store)
    _commit(store, replace(job, state=JobState.CANCELLED))
    assert store.request_cancel(job.id, now_s=3.0) == replace(job, state=JobState.CANCELLED, version=2)
    with refused(NotFound):
        store.request_cancel("none", now_s=3.0)


def pages_are_bounded(store: SimulationStore) -> None:
    """A limit out of bounds raises InvalidRequest."""
    for limit in (0, 1001):
        with refused(InvalidRequest):
            store.events("", limit=limit)
        with refused(InvalidRequest):
            store.rounds(limit=limit)


def events_are_read_in_parts(store: SimulationStore) -> None:
    """Sequences grow over all jobs; those of the cluster have no job."""
    job = _submit(store)
    events = tuple(JobEvent(job_id=each, at_s=2.0, kind="lease.extended", message="x") for each in ("", job.id, job.id))
    _commit(store, events=events, round=round_record(1))
    history = store.events(job.id)
    assert [event.kind for event in history] == ["job.submitted", "lease.extended", "lease.extended"]
    assert store.events(job.id, after=history[0].sequence, limit=1) == history[1:2]
    (of_cluster,) = store.events("")
    assert history[0].sequence < of_cluster.sequence < history[1].sequence < history[2].sequence
    assert store.events("none") == ()


# --- the scheduler's commits ------------------------------------------------------------------------------------


def a_commit_replaces_the_schedulers_fields_only(store: SimulationStore) -> None:
    """Spec, time of submission and a user request that came meanwhile stay; each row's version grows by one."""
    job = _submit(store, now_s=1.0)
    snapshot = store.snapshot()
    store.request_cancel(job.id, now_s=2.0)
    decided = replace(
        snapshot.jobs[job.id],
        spec=spec(total_steps=999),
        submitted_at_s=99.0,
        state=JobState.LEASED,
        generation=3,
        steps_done=40,
        attempt=2,
        checkpoint="3-40",
        received_s={"v100": 0.1 + 0.2},
        rounds_received={"v100": 2},
        metrics={"loss": float("inf")},
        exit_code=-9,
        log_tail="\x00 odd bytes \x1b[0m",
    )
    assert store.commit(snapshot.version, Changes(jobs=(decided,))) == snapshot.version + 1
    kept = replace(decided, spec=job.spec, submitted_at_s=1.0, cancel_requested=True, version=3)
    assert store.job(job.id) == kept == store.snapshot().jobs[job.id]


def a_commit_on_a_stale_view_changes_nothing(store: SimulationStore) -> None:
    """Of two schedulers that decide on one view, the second is refused."""
    job = _submit(store)
    view = store.snapshot()
    event = JobEvent(job_id=job.id, at_s=1.0, kind="gang.launched")
    store.commit(view.version, Changes(jobs=(replace(job, generation=1),)))
    with refused(StaleVersion):
        store.commit(view.version, Changes(jobs=(replace(job, generation=2),), events=(event,), round=round_record(1)))
    assert store.job(job.id).generation == 1 and len(store.events(job.id)) == 1 and store.rounds() == ()
    assert store.snapshot().version == view.version + 1


def jobs_that_a_commit_makes_are_submitted_with_it(store: SimulationStore) -> None:
    """Each is a job like any other, whatever the limits on submissions; a refused commit makes none."""
    _put_tier(store, Tier(name="small", max_jobs=1))
    first, view = _submit(store, tier="small"), store.snapshot()
    made = (spec(tier="small", name="one"), spec(tier="small", name="two", total_steps=None))
    store.commit(view.version, Changes(made=made, made_at_s=5.0))
    jobs = sorted((job for job in store.snapshot().jobs.values() if job.id != first.id), key=lambda job: job.id)
    assert [(job.spec, job.state, job.submitted_at_s) for job in jobs] == [
        (each, JobState.QUEUED, 5.0) for each in made
    ]
    assert all(job.id > first.id and job == store.job(job.id) for job in jobs)
    assert [(event.kind, event.at_s) for job in jobs for event in store.events(job.id)] == [("job.submitted", 5.0)] * 2
    with refused(StaleVersion):
        store.commit(view.version, Changes(made=made, made_at_s=6.0))
    assert len(store.snapshot().jobs) == 3
    _commit(store, replace(jobs[0], state=JobState.COMPLETED))
    with refused(LimitReached):
        _submit(store, tier="small")


def submits_do_not_make_a_view_stale(store: SimulationStore) -> None:
    """The version grows with the scheduler's commits only."""
    view = store.snapshot()
    job = _submit(store)
    store.request_cancel(job.id, now_s=2.0)
    assert store.snapshot().version == view.version
    store.commit(view.version, Changes())


def progress_never_goes_back(store: SimulationStore) -> None:
    """I5 and I7: a violation is refused with the whole commit."""
    job, other = _submit(store), _submit(store)
    _commit(store, replace(job, generation=5, steps_done=50))
    wrong = [
        replace(job, generation=4, steps_done=50),
        replace(job, generation=5, steps_done=49),
        replace(job, generation=5, steps_done=101),
    ]
    for each in wrong:
        with refused(InvariantViolated):
            _commit(store, replace(other, generation=1), each)
    assert store.job(other.id) == other and store.job(job.id).generation == 5
    for kind in (CHECKPOINT_GONE, CHECKPOINT_UNREADABLE):
        lost = JobEvent(job_id=job.id, at_s=2.0, kind=kind, message="m")
        back = replace(job, generation=5, steps_done=4)
        store.commit(store.snapshot().version, Changes(jobs=(back,), events=(lost,)))
        assert store.job(job.id).steps_done == 4
        _commit(store, replace(job, generation=5, steps_done=50))
    _commit(store, replace(job, generation=5, steps_done=50, state=JobState.FAILED))
    with refused(InvariantViolated):
        _commit(store, replace(job, generation=5, steps_done=50, state=JobState.QUEUED))
    with refused(NotFound):
        _commit(store, replace(job, id="none"))


def ended_jobs_leave_the_snapshot(store: SimulationStore) -> None:
    """They can still be read."""
    first, second = _submit(store), _submit(store)
    assert list(store.snapshot().jobs) == [first.id, second.id]
    _commit(store, replace(first, state=JobState.COMPLETED, steps_done=100))
    assert list(store.snapshot().jobs) == [second.id] and store.job(first.id).state is JobState.COMPLETED


def a_snapshot_stands_still(store: SimulationStore) -> None:
    """Later writes do not change it; without writes the next snapshot is the same object."""
    _submit(store)
    before = store.snapshot()
    assert store.snapshot() is before
    _submit(store)
    _put_tier(store, Tier(name="gold"))
    assert len(before.jobs) == 1 and set(before.tiers) == {"default"}
    assert len(store.snapshot().jobs) == 2 and set(store.snapshot().tiers) == {"default", "gold"}


def rounds_come_back_bit_for_bit(store: SimulationStore) -> None:
    """Arrays, infinities, denormals, negative zero; the newest two in the snapshot, oldest first."""
    records = [round_record(index, f"j{index}") for index in (1, 2, 3)]
    for record in records:
        _commit(store, round=record)
        assert same(store.snapshot().round_records[-1], record)
    assert same(store.snapshot().round_records[0], records[1]) and len(store.snapshot().round_records) == 2
    assert same(store.round(), records[2]) and same(store.round(1), records[0])
    assert store.rounds() == tuple(record.plan for record in reversed(records))
    assert store.rounds(before=3, limit=1) == (records[1].plan,)
    with refused(NotFound):
        store.round(4)


def a_round_follows_the_newest(store: SimulationStore) -> None:
    """The first has index 1; gaps, repetitions and other parents are stale, and nothing of their commits is stored."""
    job = _submit(store)
    with refused(StaleVersion):
        _commit(store, round=round_record(2))
    _commit(store, round=round_record(1))
    for record in (round_record(1), round_record(3), round_record(2, parent=0)):
        with refused(StaleVersion):
            _commit(store, replace(job, generation=1), round=record)
    assert store.job(job.id) == job and store.snapshot().version == 1
    _commit(store, round=round_record(2))


def cluster_and_throughputs_are_replaced_whole(store: SimulationStore) -> None:
    """A commit without them leaves them."""
    cluster = Cluster(nodes=(Node(name="n0"),), workers=(Worker(id="w0", node="n0", accelerator_type="v100"),))
    estimate = ThroughputEstimate(
        kind="mlp",
        scale_factor=1,
        accelerator_type="v100",
        steps_per_s=1 / 3,
        relative_error=0.1,
        source=ThroughputSource.MEASURED,
    )
    _commit(store, cluster=cluster, throughputs=(estimate,))
    _commit(store, events=(JobEvent(job_id="", at_s=1.0, kind="node.seen"),))
    assert store.cluster() == cluster and store.throughputs() == (estimate,)
    _commit(store, cluster=Cluster(), throughputs=())
    assert store.cluster() == Cluster() and store.throughputs() == ()


def startup_times_are_replaced_whole(store: SimulationStore) -> None:
    """They come with the snapshot; a commit without them leaves them."""
    assert store.snapshot().startup_times == ()
    times = StartupTimes(kind="mlp", accelerator_type="v100", startup_s=(1 / 3, 2.0), checkpoint_s=(0.25,))
    _commit(store, startup_times=(times,))
    _commit(store, events=(JobEvent(job_id="", at_s=1.0, kind="node.seen"),))
    assert store.snapshot().startup_times == (times,)


def infeasible_types_are_replaced_whole(store: SimulationStore) -> None:
    """They come with the snapshot; a commit without them leaves them."""
    assert store.snapshot().infeasible == ()
    mark = InfeasibleType(
        user="ann", kind="mlp", scale_factor=1, accelerator_type="v100", evidence="é", job_id="j", at_s=1 / 3
    )
    _commit(store, infeasible=(mark,))
    _commit(store, events=(JobEvent(job_id="", at_s=1.0, kind="node.seen"),))
    assert store.snapshot().infeasible == (mark,)
    _commit(store, infeasible=())
    assert store.snapshot().infeasible == ()


# --- tenants ----------------------------------------------------------------------------------------------------


def tiers_are_created_and_replaced_by_version(store: SimulationStore) -> None:
    """Versions start at 1 and grow by one; an unexpected one is stale."""
    gold = Tier(name="gold", weight=2.5, objective="fifo", guarantee=0.5, parent="default", version=77)
    default = _put_tier(store, Tier(name="default", guarantee=0.5), 1)
    assert _put_tier(store, gold) == replace(gold, version=1)
    for stale in (None, 2, 77):
        with refused(StaleVersion):
            _put_tier(store, gold, stale)
    assert _put_tier(store, replace(gold, weight=3.0), 1).version == 2
    with refused(StaleVersion):
        _put_tier(store, Tier(name="new"), 1)
    assert store.tiers() == (default, replace(gold, weight=3.0, version=2))
    assert store.snapshot().tiers["gold"].weight == 3.0


def tiers_form_a_tree_with_feasible_guarantees(store: SimulationStore) -> None:
    """An unknown parent, a circle, and guarantees of siblings above that of their parent are refused."""
    with refused(NotFound):
        _put_tier(store, Tier(name="a", parent="none"))
    with refused(InvalidRequest):
        _put_tier(store, Tier(name="default", parent="default"), 1)
    with refused(InvalidRequest):
        _put_tier(store, Tier(name="a", parent="default", guarantee=0.1))
    _put_tier(store, Tier(name="default", guarantee=0.8), 1)
    _put_tier(store, Tier(name="a", parent="default", guarantee=0.7))
    for wrong in (Tier(name="default", parent="a"), Tier(name="default", guarantee=0.6)):
        with refused(InvalidRequest):
            _put_tier(store, wrong, 2)
    for wrong in (Tier(name="b", parent="default", guarantee=0.2), Tier(name="b", guarantee=0.3)):
        with refused(InvalidRequest):
            _put_tier(store, wrong)
    assert [tier.name for tier in store.tiers()] == ["a", "default"]


SIMULATION_CHECKS: tuple[Callable[[SimulationStore], None], ...] = (
    a_fresh_store_holds_one_tier_and_nothing_else,
    a_submitted_job_is_seen_everywhere,
    a_key_belongs_to_one_body_of_one_user,
    without_a_key_each_submit_is_a_job,
    ids_sort_by_time,
    a_cancel_is_recorded_once,
    an_ended_job_cannot_be_cancelled,
    pages_are_bounded,
    events_are_read_in_parts,
    a_commit_replaces_the_schedulers_fields_only,
    a_commit_on_a_stale_view_changes_nothing,
    jobs_that_a_commit_makes_are_submitted_with_it,
    submits_do_not_make_a_view_stale,
    progress_never_goes_back,
    ended_jobs_leave_the_snapshot,
    a_snapshot_stands_still,
    rounds_come_back_bit_for_bit,
    a_round_follows_the_newest,
    cluster_and_throughputs_are_replaced_whole,
    startup_times_are_replaced_whole,
    infeasible_types_are_replaced_whole,
    tiers_are_created_and_replaced_by_version,
    tiers_form_a_tree_with_feasible_guarantees,
    *conformance_operations.CHECKS,
    *conformance_user_requests.CHECKS,
)
"""Of SchedulerStore, RequestStore and RecordStore."""

API_CHECKS: tuple[Callable[[WholeStore], None], ...] = (
    *conformance_api.CHECKS,
    *conformance_live.CHECKS,
    *conformance_notifications.CHECKS,
    *conformance_federated.CHECKS,
    *conformance_job_users.CHECKS,
    *conformance_autopilot.CHECKS,
)
"""Of ApiStore, for a store that passes the others, too."""
