"""The part of `gavel.store.conformance` about the requests of users, usage, and the audit log."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gavel.errors import Conflict, InvalidRequest, LimitReached, NotFound, StaleVersion
from gavel.ports import AuditEntry, Changes, JobEdit
from gavel.store.samples import SimulationStore, refused, spec
from gavel.types import Job, JobState, Reason, Tier, Usage


def _submit(store: SimulationStore, **over: Any) -> Job:
    return store.submit(spec(**over), key=None, body_hash="h", now_s=1.0).job


def _commit(store: SimulationStore, *jobs: Job, **changes: Any) -> None:
    store.commit(store.snapshot().version, Changes(jobs=jobs, **changes))


def a_job_waits_for_those_that_have_not_completed(store: SimulationStore) -> None:
    """It does not wait for completed jobs; one that will never complete, or does not exist, is refused."""
    done, going, broken = _submit(store), _submit(store), _submit(store)
    _commit(store, replace(done, state=JobState.COMPLETED), replace(broken, state=JobState.FAILED))
    job = _submit(store, after=(done.id, going.id))
    assert job.waits_for == (going.id,) and job.spec.after == (done.id, going.id)
    for after in ((broken.id,), ("none",)):
        with refused(InvalidRequest):
            _submit(store, after=after)
    _commit(store, replace(store.job(job.id), waits_for=()))
    assert store.job(job.id).waits_for == () and store.job(job.id).spec.after == (done.id, going.id)


def a_pause_can_be_taken_back(store: SimulationStore) -> None:
    """Each change adds one to the version, and an event; a commit of the scheduler leaves the request as it is."""
    job = _submit(store)
    paused = store.request_pause(job.id, is_paused=True, now_s=2.0)
    assert paused == replace(job, pause_requested=True, version=2) == store.snapshot().jobs[job.id]
    assert store.request_pause(job.id, is_paused=True, now_s=3.0) == paused
    _commit(store, replace(job, reason=Reason.PAUSED))
    assert store.job(job.id).pause_requested and store.job(job.id).reason == Reason.PAUSED
    assert not store.request_pause(job.id, is_paused=False, now_s=4.0).pause_requested
    assert [each.kind for each in store.events(job.id)] == ["job.submitted", "pause.requested", "job.resumed"]
    _commit(store, replace(job, state=JobState.COMPLETED))
    with refused(Conflict):
        store.request_pause(job.id, is_paused=True, now_s=5.0)


def a_request_that_was_read_between_a_look_and_its_commit_stays(store: SimulationStore) -> None:
    """The scheduler looks, users ask for a pause, a cancel, an edit, another part looks, and the scheduler commits."""
    ids = [_submit(store).id for _ in range(3)]
    view = store.snapshot()
    store.request_pause(ids[0], is_paused=True, now_s=2.0)
    store.request_cancel(ids[1], now_s=2.0)
    store.edit_job(ids[2], JobEdit(weight=2.5), expected_version=None, now_s=2.0)
    store.snapshot()
    store.commit(view.version, Changes(jobs=tuple(replace(view.jobs[each], steps_done=7) for each in ids)))
    paused, cancelled, edited = (store.snapshot().jobs[each] for each in ids)
    assert paused.pause_requested and cancelled.cancel_requested and edited.spec.weight == 2.5
    assert (paused, cancelled, edited) == tuple(store.job(each) for each in ids)


def a_user_changes_weight_priority_and_labels(store: SimulationStore) -> None:
    """Only of the version that was read; the scheduler's next commit keeps the change."""
    job = _submit(store, labels={"team": "vision"})
    view = store.snapshot()
    edit = JobEdit(weight=2.5, priority=-1, labels={"team": "text"})
    edited = store.edit_job(job.id, edit, expected_version=1, now_s=2.0)
    assert edited.spec == replace(job.spec, weight=2.5, priority=-1, labels={"team": "text"}) and edited.version == 2
    assert store.edit_job(job.id, edit, expected_version=None, now_s=2.0) == edited
    with refused(StaleVersion):
        store.edit_job(job.id, edit, expected_version=1, now_s=2.0)
    store.commit(view.version, Changes(jobs=(replace(view.jobs[job.id], generation=1),)))
    assert store.job(job.id).spec == edited.spec == store.snapshot().jobs[job.id].spec
    with refused(NotFound):
        store.edit_job("none", edit, expected_version=None, now_s=2.0)


def the_audit_log_tells_who_decided_what(store: SimulationStore) -> None:
    """Newest first, by subject or by the user it touches, in pages."""
    job = _submit(store)
    store.put_tier(Tier(name="gold", max_jobs=7), expected_version=None, by="op", now_s=1.0)
    store.edit_job(job.id, JobEdit(weight=2.0), expected_version=None, now_s=3.0, by="op")
    entry = AuditEntry(
        at_s=4.0, by="hierarchical", subject=f"job/{job.id}", before=None, after={"to": ["x"]},
        action="gang.preempted", user="ann", round_index=3,
    )  # fmt: skip
    _commit(store, audit=(entry,))
    entries = store.audit()
    assert [(each.by, each.action) for each in entries] == [
        ("hierarchical", "gang.preempted"), ("op", "job.edited"), ("op", "tier.changed"),
    ]  # fmt: skip
    assert replace(entries[0], sequence=0) == entry and entries[1].before == {"weight": 1.0}
    assert entries[2].before is None and entries[2].after["max_jobs"] == 7
    assert [each.sequence for each in entries] == sorted((each.sequence for each in entries), reverse=True)
    assert store.audit(subject=f"job/{job.id}") == entries[:2] and store.audit(user="ann") == entries[:2]
    assert store.audit(before=entries[0].sequence, limit=1) == entries[1:2]


def usage_adds_up_by_tier_and_month(store: SimulationStore) -> None:
    """The snapshot holds the newest two months."""
    amounts = {"accelerator_hours": 0.5, "cost_usd": 0.25, "worker_hours": 1.5}
    parts = [Usage(tier="default", month=month, lost_gangs=1, **amounts) for month in ("09", "10", "11")]
    _commit(store, usage=(*parts, parts[2], replace(parts[2], tier="gold")))
    twice = Usage(tier="default", month="11", accelerator_hours=1.0, cost_usd=0.5, worker_hours=3.0, lost_gangs=2)
    assert store.usage("11") == (twice, replace(parts[2], tier="gold")) and store.usage("12") == ()
    assert store.usage("09") == (parts[0],)
    assert set(store.snapshot().usage) == {("default", "10"), ("default", "11"), ("gold", "11")}
    assert store.snapshot().usage["default", "11"] == twice


def limits_of_a_tier_are_kept(store: SimulationStore) -> None:
    """Every field is stored."""
    gold = Tier(
        name="gold", cap=0.5, default_priority=3, max_jobs=7, accelerator_hours_per_month=1 / 3,
        budget_usd_per_month=0.0, within_user="equal", non_preemptible_workers=2, session_longest_s=90.0,
    )  # fmt: skip
    assert store.put_tier(gold, expected_version=None, by="op", now_s=1.0) == gold == store.snapshot().tiers["gold"]


def a_tier_has_no_more_unfinished_jobs_than_it_may(store: SimulationStore) -> None:
    """LimitReached; ended jobs do not count; a used key returns its job whatever the limit."""
    store.put_tier(Tier(name="small", max_jobs=1), expected_version=None, by="op", now_s=1.0)
    first = store.submit(spec(tier="small"), key="k", body_hash="h", now_s=1.0)
    with refused(LimitReached):
        _submit(store, tier="small")
    assert not store.submit(spec(tier="small"), key="k", body_hash="h", now_s=1.0).created
    _commit(store, replace(first.job, state=JobState.CANCELLED))
    assert _submit(store, tier="small").id != first.job.id


CHECKS: tuple[Callable[[SimulationStore], None], ...] = (
    a_job_waits_for_those_that_have_not_completed,
    a_pause_can_be_taken_back,
    a_request_that_was_read_between_a_look_and_its_commit_stays,
    a_user_changes_weight_priority_and_labels,
    the_audit_log_tells_who_decided_what,
    usage_adds_up_by_tier_and_month,
    limits_of_a_tier_are_kept,
    a_tier_has_no_more_unfinished_jobs_than_it_may,
)
