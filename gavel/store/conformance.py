"""What every `gavel.ports.Store` has to do, as checks for anybody's implementation.

@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_my_store_conforms(check):
    check(MyStore())  # a fresh one each time, with one tier `default` and nothing else
"""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gavel.errors import Conflict, InvalidRequest, InvariantViolated, KeyReused, NotFound, StaleVersion
from gavel.ports import Changes, JobEvent, JobFilter, Store, ThroughputEstimate
from gavel.store import conformance_live, conformance_operations, conformance_tokens, conformance_wishes
from gavel.store.samples import refused, round_record, same, spec
from gavel.types import Cluster, Identity, Job, JobState, Node, Scope, Tier, User, Worker


def _submit(store: Store, now_s: float = 1.0, **over: Any) -> Job:
    return store.submit(spec(**over), key=None, body_hash="h", now_s=now_s).job


def _put_tier(store: Store, tier: Tier, expected_version: int | None = None) -> Tier:
    return store.put_tier(tier, expected_version=expected_version, by="op", now_s=1.0)


def _commit(store: Store, *jobs: Job, **changes: Any) -> int:
    return store.commit(store.snapshot().version, Changes(jobs=jobs, **changes))


# --- jobs -------------------------------------------------------------------------------------------------------


def a_fresh_store_holds_one_tier_and_nothing_else(store: Store) -> None:
    """Tier `default` with the objective fairness."""
    snapshot = store.snapshot()
    assert (snapshot.version, dict(snapshot.jobs), snapshot.rounds) == (0, {}, ())
    assert store.tiers() == tuple(snapshot.tiers.values()) == (Tier(name="default", objective="fairness"),)
    assert store.users() == () and store.rounds() == () and store.throughputs() == ()
    assert store.cluster() == Cluster() and store.count_jobs() == {} and store.jobs(JobFilter()).jobs == ()
    with refused(NotFound):
        store.round()


def a_submitted_job_is_seen_everywhere(store: Store) -> None:
    """Read, listed, counted, in the snapshot, with an event."""
    job = _submit(store, now_s=12.5)
    assert job == Job(id=job.id, spec=spec(), submitted_at_s=12.5)
    assert store.job(job.id) == job and store.jobs(JobFilter()).jobs == (job,)
    assert dict(store.snapshot().jobs) == {job.id: job}
    assert store.count_jobs() == {(JobState.QUEUED, "default"): 1}
    assert [(event.kind, event.at_s) for event in store.events(job.id)] == [("job.submitted", 12.5)]


def a_key_belongs_to_one_body_of_one_user(store: Store) -> None:
    """Same key and body: the same job; other body: KeyReused; other user: a namespace of its own."""
    first = store.submit(spec(), key="k", body_hash="h", now_s=1.0)
    again = store.submit(spec(), key="k", body_hash="h", now_s=2.0)
    assert first.created and not again.created and again.job == first.job
    with refused(KeyReused):
        store.submit(spec(total_steps=5), key="k", body_hash="other", now_s=2.0)
    other = store.submit(spec(user="bob"), key="k", body_hash="other", now_s=2.0)
    assert other.created and other.job.id != first.job.id
    assert len(store.jobs(JobFilter()).jobs) == 2 and len(store.events(first.job.id)) == 1


def without_a_key_each_submit_is_a_job(store: Store) -> None:
    """Equal bodies, different jobs."""
    assert _submit(store).id != _submit(store).id


def ids_sort_by_time(store: Store) -> None:
    """16 characters [0-9a-z], growing even if the clock stands still or goes back."""
    ids = [_submit(store, now_s).id for now_s in (0.0, 5.0, 5.0, 4.0, 1.7e9)]
    assert ids == sorted(set(ids)) and all(re.fullmatch("[0-9a-z]{16}", each) for each in ids)


def a_cancel_is_a_wish_recorded_once(store: Store) -> None:
    """The version grows once, one event; the state is the scheduler's to change."""
    job = _submit(store)
    wished = store.request_cancel(job.id, now_s=3.0)
    assert wished == replace(job, cancel_requested=True, version=job.version + 1) == store.job(job.id)
    assert store.request_cancel(job.id, now_s=4.0) == wished
    assert store.snapshot().jobs[job.id] == wished
    assert [event.kind for event in store.events(job.id)] == ["job.submitted", "cancel.requested"]


def an_ended_job_cannot_be_cancelled(store: Store) -> None:
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


def jobs_are_filtered_and_come_in_pages(store: Store) -> None:
    """Newest first; the cursor is the last id of a page."""
    ids = [_submit(store, user=f"u{i % 2}", tier=f"t{i % 3}", labels={"i": str(i % 2)}).id for i in range(6)]
    _commit(store, replace(store.job(ids[0]), state=JobState.LEASED))
    first = store.jobs(JobFilter(), limit=4)
    rest = store.jobs(JobFilter(), cursor=first.next_cursor, limit=4)
    assert [job.id for job in (*first.jobs, *rest.jobs)] == ids[::-1] and rest.next_cursor is None
    assert store.jobs(JobFilter(), limit=6).next_cursor is None
    wanted = {
        (5, 3, 1): JobFilter(user="u1"),
        (3, 0): JobFilter(tier="t0"),
        (4, 2, 0): JobFilter(label=("i", "0")),
        (0,): JobFilter(states=(JobState.LEASED, JobState.FAILED)),
        (3,): JobFilter(states=(JobState.QUEUED,), user="u1", tier="t0", label=("i", "1")),
        (): JobFilter(label=("i", "none")),
    }
    for indices, where in wanted.items():
        assert [job.id for job in store.jobs(where).jobs] == [ids[i] for i in indices]
    assert store.jobs(JobFilter(states=())).jobs == ()


def pages_are_bounded(store: Store) -> None:
    """A limit out of bounds is the caller's mistake."""
    for limit in (0, -1, 201):
        with refused(InvalidRequest):
            store.jobs(JobFilter(), limit=limit)
    for limit in (0, 1001):
        with refused(InvalidRequest):
            store.events("", limit=limit)
        with refused(InvalidRequest):
            store.rounds(limit=limit)


def events_are_read_in_parts(store: Store) -> None:
    """Sequences grow over all jobs; those of the cluster have no job."""
    job = _submit(store)
    events = tuple(JobEvent(job_id=each, at_s=2.0, kind="lease.extended", message="x") for each in ("", job.id, job.id))
    _commit(store, events=events, round=round_record(1))
    story = store.events(job.id)
    assert [event.kind for event in story] == ["job.submitted", "lease.extended", "lease.extended"]
    assert store.events(job.id, after=story[0].sequence, limit=1) == story[1:2]
    (of_cluster,) = store.events("")
    assert story[0].sequence < of_cluster.sequence < story[1].sequence < story[2].sequence
    assert store.events("none") == ()


# --- the scheduler's commits ------------------------------------------------------------------------------------


def a_commit_replaces_the_schedulers_fields_only(store: Store) -> None:
    """Spec, time of submission and a wish recorded meanwhile stay; each row's version grows by one."""
    job = _submit(store, now_s=1.0)
    snapshot = store.snapshot()
    store.request_cancel(job.id, now_s=2.0)
    decided = replace(
        snapshot.jobs[job.id],
        spec=spec(total_steps=999),
        submitted_at_s=99.0,
        state=JobState.LEASED,
        token=3,
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


def a_commit_on_a_stale_view_changes_nothing(store: Store) -> None:
    """Two schedulers decide on one view: the second is refused."""
    job = _submit(store)
    view = store.snapshot()
    event = JobEvent(job_id=job.id, at_s=1.0, kind="gang.launched")
    store.commit(view.version, Changes(jobs=(replace(job, token=1),)))
    with refused(StaleVersion):
        store.commit(view.version, Changes(jobs=(replace(job, token=2),), events=(event,), round=round_record(1)))
    assert store.job(job.id).token == 1 and len(store.events(job.id)) == 1 and store.rounds() == ()
    assert store.snapshot().version == view.version + 1


def submits_do_not_make_a_view_stale(store: Store) -> None:
    """The version grows with the scheduler's commits only."""
    view = store.snapshot()
    job = _submit(store)
    store.request_cancel(job.id, now_s=2.0)
    assert store.snapshot().version == view.version
    store.commit(view.version, Changes())


def progress_never_goes_back(store: Store) -> None:
    """I5 and I7, each refused with all of its commit."""
    job, other = _submit(store), _submit(store)
    _commit(store, replace(job, token=5, steps_done=50))
    wrong = [
        replace(job, token=4, steps_done=50),
        replace(job, token=5, steps_done=49),
        replace(job, token=5, steps_done=101),
    ]
    for each in wrong:
        with refused(InvariantViolated):
            _commit(store, replace(other, token=1), each)
    assert store.job(other.id) == other and store.job(job.id).token == 5
    _commit(store, replace(job, token=5, steps_done=50, state=JobState.FAILED))
    with refused(InvariantViolated):
        _commit(store, replace(job, token=5, steps_done=50, state=JobState.QUEUED))
    with refused(NotFound):
        _commit(store, replace(job, id="none"))


def ended_jobs_leave_the_snapshot(store: Store) -> None:
    """They stay readable."""
    first, second = _submit(store), _submit(store)
    assert list(store.snapshot().jobs) == [first.id, second.id]
    _commit(store, replace(first, state=JobState.COMPLETED, steps_done=100))
    assert list(store.snapshot().jobs) == [second.id] and store.job(first.id).state is JobState.COMPLETED
    assert store.count_jobs() == {(JobState.QUEUED, "default"): 1, (JobState.COMPLETED, "default"): 1}


def a_snapshot_stands_still(store: Store) -> None:
    """What happens later does not change it; while nothing happens, the next is the same object."""
    _submit(store)
    before = store.snapshot()
    assert store.snapshot() is before
    _submit(store)
    _put_tier(store, Tier(name="gold"))
    assert len(before.jobs) == 1 and set(before.tiers) == {"default"}
    assert len(store.snapshot().jobs) == 2 and set(store.snapshot().tiers) == {"default", "gold"}


def rounds_come_back_bit_for_bit(store: Store) -> None:
    """Arrays, infinities, denormals, negative zero; the newest two in the snapshot, oldest first."""
    records = [round_record(index, f"j{index}") for index in (1, 2, 3)]
    for record in records:
        _commit(store, round=record)
        assert same(store.snapshot().rounds[-1], record)
    assert same(store.snapshot().rounds[0], records[1]) and len(store.snapshot().rounds) == 2
    assert same(store.round(), records[2]) and same(store.round(1), records[0])
    assert store.rounds() == tuple(record.plan for record in reversed(records))
    assert store.rounds(before=3, limit=1) == (records[1].plan,)
    with refused(NotFound):
        store.round(4)


def a_round_follows_the_newest(store: Store) -> None:
    """The first has index 1; gaps, repetitions and other parents are stale, and nothing of the commit remains."""
    job = _submit(store)
    with refused(StaleVersion):
        _commit(store, round=round_record(2))
    _commit(store, round=round_record(1))
    for record in (round_record(1), round_record(3), round_record(2, parent=0)):
        with refused(StaleVersion):
            _commit(store, replace(job, token=1), round=record)
    assert store.job(job.id) == job and store.snapshot().version == 1
    _commit(store, round=round_record(2))


def cluster_and_throughputs_are_replaced_whole(store: Store) -> None:
    """A commit without them leaves them."""
    cluster = Cluster(nodes=(Node(name="n0"),), workers=(Worker(id="w0", node="n0", accelerator_type="v100"),))
    estimate = ThroughputEstimate(
        kind="mlp", scale_factor=1, accelerator_type="v100", steps_per_s=1 / 3, relative_error=0.1, source="measured"
    )
    _commit(store, cluster=cluster, throughputs=(estimate,))
    _commit(store, events=(JobEvent(job_id="", at_s=1.0, kind="node.seen"),))
    assert store.cluster() == cluster and store.throughputs() == (estimate,)
    _commit(store, cluster=Cluster(), throughputs=())
    assert store.cluster() == Cluster() and store.throughputs() == ()


# --- tenants ----------------------------------------------------------------------------------------------------


def tiers_are_created_and_replaced_by_version(store: Store) -> None:
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


def tiers_form_a_tree_with_feasible_guarantees(store: Store) -> None:
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


def users_have_tiers_that_exist(store: Store) -> None:
    """In the order given: the first is the default."""
    _put_tier(store, Tier(name="gold"))
    ann = User(name="ann", tiers=("gold", "default"))
    assert store.put_user(ann, by="op", now_s=1.0) == ann
    with refused(NotFound):
        store.put_user(User(name="bob", tiers=("none",)), by="op", now_s=1.0)
    with refused(InvalidRequest):
        store.put_user(User(name="bob", tiers=()), by="op", now_s=1.0)
    store.put_user(User(name="aaron", tiers=("default",)), by="op", now_s=1.0)
    assert store.users() == (User(name="aaron", tiers=("default",)), ann)


def a_token_tells_who_holds_it(store: Store) -> None:
    """With the user's tiers of now; the same token has one holder."""
    operator, user, job = ("0" * 64, "1" * 64, "2" * 64)
    store.add_token(operator, user="op", scope=Scope.OPERATOR, now_s=1.0)
    store.add_token(user, user="ann", scope=Scope.USER, now_s=1.0)
    store.add_token(job, user="ann", scope=Scope.JOB, job_id="j", now_s=1.0)
    store.put_user(User(name="ann", tiers=("default",)), by="op", now_s=2.0)
    assert store.identify(operator) == Identity(user="op", scope=Scope.OPERATOR)
    assert store.identify(user) == Identity(user="ann", scope=Scope.USER, tiers=("default",))
    assert store.identify(job) == Identity(user="ann", scope=Scope.JOB, tiers=("default",), job_id="j")
    assert store.identify("3" * 64) is None
    store.add_token(user, user="ann", scope=Scope.USER, now_s=9.0)
    with refused(Conflict):
        store.add_token(user, user="bob", scope=Scope.USER, now_s=9.0)
    for clear_text in ("gavel_secret", "A" * 64):
        with refused(InvalidRequest):
            store.add_token(clear_text, user="ann", scope=Scope.USER, now_s=1.0)


CHECKS: tuple[Callable[[Store], None], ...] = (
    a_fresh_store_holds_one_tier_and_nothing_else,
    a_submitted_job_is_seen_everywhere,
    a_key_belongs_to_one_body_of_one_user,
    without_a_key_each_submit_is_a_job,
    ids_sort_by_time,
    a_cancel_is_a_wish_recorded_once,
    an_ended_job_cannot_be_cancelled,
    jobs_are_filtered_and_come_in_pages,
    pages_are_bounded,
    events_are_read_in_parts,
    a_commit_replaces_the_schedulers_fields_only,
    a_commit_on_a_stale_view_changes_nothing,
    submits_do_not_make_a_view_stale,
    progress_never_goes_back,
    ended_jobs_leave_the_snapshot,
    a_snapshot_stands_still,
    rounds_come_back_bit_for_bit,
    a_round_follows_the_newest,
    cluster_and_throughputs_are_replaced_whole,
    tiers_are_created_and_replaced_by_version,
    tiers_form_a_tree_with_feasible_guarantees,
    users_have_tiers_that_exist,
    a_token_tells_who_holds_it,
    *conformance_live.CHECKS,
    *conformance_operations.CHECKS,
    *conformance_tokens.CHECKS,
    *conformance_wishes.CHECKS,
)
