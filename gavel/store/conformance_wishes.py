"""The part of `gavel.store.conformance` about what users wish of their jobs, usage, and the audit log."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gavel.errors import Conflict, InvalidRequest, KeyReused, LimitReached, NotFound, StaleVersion
from gavel.ports import AuditEntry, Changes, JobEdit, JobFilter, Store
from gavel.store.samples import refused, spec
from gavel.types import Cluster, Job, JobState, Tier, Usage, User


def _submit(store: Store, **over: Any) -> Job:
    return store.submit(spec(**over), key=None, body_hash="h", now_s=1.0).job


def _commit(store: Store, *jobs: Job, **changes: Any) -> None:
    store.commit(store.snapshot().version, Changes(jobs=jobs, **changes))


def many_jobs_are_submitted_together_or_not_at_all(store: Store) -> None:
    """In order; one bad item refuses all."""
    answers = store.submit_many([spec(name="a"), spec(name="b")], key=None, body_hash="h", now_s=1.0)
    assert [each.job.spec.name for each in answers] == ["a", "b"] and all(each.created for each in answers)
    assert answers[0].job.id < answers[1].job.id and answers[0].job.spec.array_id is None
    with refused(InvalidRequest):
        store.submit_many([spec(), spec(after=("none",))], key=None, body_hash="h", now_s=1.0)
    assert len(store.jobs(JobFilter()).jobs) == len(store.snapshot().jobs) == 2


def one_key_makes_many_jobs_once(store: Store) -> None:
    """The same jobs in the same order, whatever happened to them; another body is refused."""
    specs = [spec(name=name) for name in "abc"]
    first = store.submit_many(specs, key="k", body_hash="h", now_s=1.0)
    assert store.submitted("ann", "k", body_hash="h") == tuple(each.job for each in first)
    again = store.submit_many(specs, key="k", body_hash="h", now_s=2.0)
    assert [each.job for each in again] == [each.job for each in first] and not any(each.created for each in again)
    with refused(KeyReused):
        store.submitted("ann", "k", body_hash="other")
    assert store.submitted("bob", "k", body_hash="other") == ()
    assert len(store.jobs(JobFilter()).jobs) == 3


def the_jobs_of_an_array_know_it(store: Store) -> None:
    """By the id of the first, in order; a list holds an array alone."""
    _submit(store)
    made = store.submit_many([spec(), spec()], key=None, body_hash="h", now_s=1.0, is_array=True)
    jobs = [each.job for each in made]
    assert [(job.spec.array_id, job.spec.array_index) for job in jobs] == [(jobs[0].id, 0), (jobs[0].id, 1)]
    assert store.jobs(JobFilter(array_id=jobs[0].id)).jobs == (jobs[1], jobs[0])
    assert store.job(jobs[1].id) == jobs[1]


def a_job_waits_for_those_that_have_not_completed(store: Store) -> None:
    """One that has completed is not waited for; one that never will, or never was, is refused."""
    done, going, broken = _submit(store), _submit(store), _submit(store)
    _commit(store, replace(done, state=JobState.COMPLETED), replace(broken, state=JobState.FAILED))
    job = _submit(store, after=(done.id, going.id))
    assert job.waits_for == (going.id,) and job.spec.after == (done.id, going.id)
    for after in ((broken.id,), ("none",)):
        with refused(InvalidRequest):
            _submit(store, after=after)
    _commit(store, replace(store.job(job.id), waits_for=()))
    assert store.job(job.id).waits_for == () and store.job(job.id).spec.after == (done.id, going.id)


def a_pause_is_a_wish_that_can_be_taken_back(store: Store) -> None:
    """Each change counts a version and a line; a commit of the scheduler leaves the wish."""
    job = _submit(store)
    paused = store.request_pause(job.id, is_paused=True, now_s=2.0)
    assert paused == replace(job, pause_requested=True, version=2) == store.snapshot().jobs[job.id]
    assert store.request_pause(job.id, is_paused=True, now_s=3.0) == paused
    _commit(store, replace(job, reason="Paused"))
    assert store.job(job.id).pause_requested and store.job(job.id).reason == "Paused"
    assert not store.request_pause(job.id, is_paused=False, now_s=4.0).pause_requested
    assert [each.kind for each in store.events(job.id)] == ["job.submitted", "pause.requested", "job.resumed"]
    _commit(store, replace(job, state=JobState.COMPLETED))
    with refused(Conflict):
        store.request_pause(job.id, is_paused=True, now_s=5.0)


def a_user_changes_weight_priority_and_labels(store: Store) -> None:
    """Of the version seen; the list by label follows, and the scheduler's next commit does not undo it."""
    job = _submit(store, labels={"team": "vision"})
    view = store.snapshot()
    wish = JobEdit(weight=2.5, priority=-1, labels={"team": "text"})
    edited = store.edit_job(job.id, wish, expected_version=1, now_s=2.0)
    assert edited.spec == replace(job.spec, weight=2.5, priority=-1, labels={"team": "text"}) and edited.version == 2
    assert store.edit_job(job.id, wish, expected_version=None, now_s=2.0) == edited
    with refused(StaleVersion):
        store.edit_job(job.id, wish, expected_version=1, now_s=2.0)
    store.commit(view.version, Changes(jobs=(replace(view.jobs[job.id], token=1),)))
    assert store.job(job.id).spec == edited.spec == store.snapshot().jobs[job.id].spec
    assert store.jobs(JobFilter(label=("team", "text"))).jobs == (store.job(job.id),)
    assert store.jobs(JobFilter(label=("team", "vision"))).jobs == ()
    with refused(NotFound):
        store.edit_job("none", wish, expected_version=None, now_s=2.0)


def many_jobs_are_cancelled_together(store: Store) -> None:
    """All that fit and have not ended, but those to keep."""
    ended, kept, other, *rest = (_submit(store, user=user) for user in ("ann", "ann", "bob", "ann", "ann"))
    _commit(store, replace(ended, state=JobState.COMPLETED))
    ids = tuple(job.id for job in rest)
    assert store.request_cancel_all(JobFilter(user="ann"), keep=[kept.id], now_s=2.0) == ids[::-1]
    assert all(store.job(each).cancel_requested for each in ids)
    assert not any(store.job(job.id).cancel_requested for job in (ended, kept, other))
    assert set(store.request_cancel_all(JobFilter(ids=(other.id, "none")), now_s=2.0)) == {other.id}
    assert store.job(other.id).cancel_requested and not store.job(kept.id).cancel_requested


def the_audit_log_tells_who_decided_what(store: Store) -> None:
    """Newest first, by subject or by the user it touches, in pages."""
    job = _submit(store)
    store.put_tier(Tier(name="gold", max_jobs=7), expected_version=None, by="op", now_s=1.0)
    store.put_user(User(name="ann", tiers=("gold",)), by="op", now_s=2.0)
    store.edit_job(job.id, JobEdit(weight=2.0), expected_version=None, now_s=3.0, by="op")
    entry = AuditEntry(
        at_s=4.0, by="hierarchical", subject=f"job/{job.id}", before=None, after={"to": ["x"]},
        action="gang.preempted", user="ann", round_index=3,
    )  # fmt: skip
    _commit(store, audit=(entry,))
    found = store.audit()
    assert [(each.by, each.action) for each in found] == [
        ("hierarchical", "gang.preempted"), ("op", "job.edited"), ("op", "user.changed"), ("op", "tier.changed"),
    ]  # fmt: skip
    assert replace(found[0], sequence=0) == entry and found[1].before == {"weight": 1.0}
    assert found[3].before is None and found[3].after["max_jobs"] == 7
    assert [each.sequence for each in found] == sorted((each.sequence for each in found), reverse=True)
    assert store.audit(subject=f"job/{job.id}") == found[:2] and store.audit(user="ann") == found[:3]
    assert store.audit(before=found[0].sequence, limit=1) == found[1:2]


def usage_adds_up_by_tier_and_month(store: Store) -> None:
    """The snapshot has the newest two months."""
    parts = [Usage(tier="default", month=month, accelerator_hours=0.5, cost_usd=0.25) for month in ("09", "10", "11")]
    _commit(store, usage=(*parts, parts[2], replace(parts[2], tier="gold")))
    twice = Usage(tier="default", month="11", accelerator_hours=1.0, cost_usd=0.5)
    assert store.usage("11") == (twice, replace(parts[2], tier="gold")) and store.usage("12") == ()
    assert store.usage("09") == (parts[0],)
    assert set(store.snapshot().usage) == {("default", "10"), ("default", "11"), ("gold", "11")}
    assert store.snapshot().usage["default", "11"] == twice


def limits_of_a_tier_are_kept(store: Store) -> None:
    """Every field comes back."""
    gold = Tier(
        name="gold", cap=0.5, default_priority=3, max_jobs=7, accelerator_hours_per_month=1 / 3,
        budget_usd_per_month=0.0,
    )  # fmt: skip
    assert store.put_tier(gold, expected_version=None, by="op", now_s=1.0) == gold == store.snapshot().tiers["gold"]


def a_tier_has_no_more_unfinished_jobs_than_it_may(store: Store) -> None:
    """LimitReached for all of a batch or none; ended jobs do not count; a key answers whatever the limit."""
    store.put_tier(Tier(name="small", max_jobs=2), expected_version=None, by="op", now_s=1.0)
    wanted = [spec(tier="small")] * 2
    first, _ = store.submit_many(wanted, key="k", body_hash="h", now_s=1.0)
    with refused(LimitReached):
        store.submit(spec(tier="small"), key=None, body_hash="h", now_s=1.0)
    assert not store.submit_many(wanted, key="k", body_hash="h", now_s=1.0)[0].created
    store.commit(store.snapshot().version, Changes(jobs=(replace(first.job, state=JobState.CANCELLED),)))
    with refused(LimitReached):
        store.submit_many(wanted, key=None, body_hash="h", now_s=1.0)
    assert store.start_submit(spec(tier="small"), key=None, body_hash="h", now_s=1.0).result()[0].created
    assert len(store.jobs(JobFilter(tier="small")).jobs) == 3


def a_change_of_the_rules_is_another_edition(store: Store) -> None:
    """Tiers, users, the cluster; a submit is none."""
    editions = [store.edition]
    store.submit(spec(), key=None, body_hash="h", now_s=1.0)
    assert store.edition == editions[0]
    store.put_tier(Tier(name="gold"), expected_version=None, by="op", now_s=1.0)
    editions.append(store.edition)
    store.put_user(User(name="ann", tiers=("gold",)), by="op", now_s=1.0)
    editions.append(store.edition)
    store.commit(0, Changes(cluster=Cluster()))
    editions.append(store.edition)
    assert editions == sorted(set(editions))


CHECKS: tuple[Callable[[Store], None], ...] = (
    many_jobs_are_submitted_together_or_not_at_all,
    one_key_makes_many_jobs_once,
    the_jobs_of_an_array_know_it,
    a_job_waits_for_those_that_have_not_completed,
    a_pause_is_a_wish_that_can_be_taken_back,
    a_user_changes_weight_priority_and_labels,
    many_jobs_are_cancelled_together,
    the_audit_log_tells_who_decided_what,
    usage_adds_up_by_tier_and_month,
    limits_of_a_tier_are_kept,
    a_tier_has_no_more_unfinished_jobs_than_it_may,
    a_change_of_the_rules_is_another_edition,
)
