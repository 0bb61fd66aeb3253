"""The part of `gavel.store.conformance` about what only the API needs: many jobs at once, lists, users and tokens."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gavel.errors import Conflict, InvalidRequest, KeyReused, LimitReached, NotFound
from gavel.ports import Changes, JobEdit, JobFilter
from gavel.store.samples import WholeStore, refused, spec
from gavel.types import Cluster, Identity, Job, JobState, Scope, Tier, User


def _submit(store: WholeStore, **over: Any) -> Job:
    return store.submit(spec(**over), key=None, body_hash="h", now_s=1.0).job


def _commit(store: WholeStore, *jobs: Job) -> None:
    store.commit(store.snapshot().version, Changes(jobs=jobs))


# --- lists ------------------------------------------------------------------------------------------------------


def jobs_are_listed_and_counted(store: WholeStore) -> None:
    """A fresh store has none; ended jobs stay in the list."""
    assert store.users() == () and store.count_jobs() == {} and store.jobs(JobFilter()).jobs == ()
    job = _submit(store)
    assert store.jobs(JobFilter()).jobs == (job,) and store.count_jobs() == {(JobState.QUEUED, "default"): 1}
    _submit(store)
    _commit(store, replace(job, state=JobState.COMPLETED, steps_done=100))
    assert store.count_jobs() == {(JobState.QUEUED, "default"): 1, (JobState.COMPLETED, "default"): 1}


def jobs_are_filtered_and_come_in_pages(store: WholeStore) -> None:
    """Newest first; the cursor is the last id of a page."""
    parts = [
        {"user": f"u{i % 2}", "tier": f"t{i % 3}", "name": f"name-{i}", "labels": {"i": str(i % 2)}} for i in range(6)
    ]
    ids = [_submit(store, **each).id for each in parts]
    beginning = ids[3][:-1]
    assert [job.id for job in store.jobs(JobFilter(match=beginning)).jobs] == [
        each for each in ids[::-1] if each.startswith(beginning)
    ]
    assert store.jobs(JobFilter(match="name")).jobs == () == store.jobs(JobFilter(match="%")).jobs
    _commit(store, replace(store.job(ids[0]), state=JobState.LEASED))
    first = store.jobs(JobFilter(), limit=4)
    rest = store.jobs(JobFilter(), cursor=first.next_cursor, limit=4)
    assert [job.id for job in (*first.jobs, *rest.jobs)] == ids[::-1] and rest.next_cursor is None
    assert store.jobs(JobFilter(), limit=6).next_cursor is None
    wanted = {
        (5, 3, 1): JobFilter(user="u1"),
        (1,): JobFilter(match="name-1"),
        (4,): JobFilter(match=ids[4]),
        (3, 0): JobFilter(tier="t0"),
        (4, 2, 0): JobFilter(label=("i", "0")),
        (0,): JobFilter(states=(JobState.LEASED, JobState.FAILED)),
        (3,): JobFilter(states=(JobState.QUEUED,), user="u1", tier="t0", label=("i", "1")),
        (): JobFilter(label=("i", "none")),
    }
    for indices, where in wanted.items():
        assert [job.id for job in store.jobs(where).jobs] == [ids[i] for i in indices]
    assert store.jobs(JobFilter(states=())).jobs == ()


def a_list_by_label_follows_a_change_of_labels(store: WholeStore) -> None:
    """The list changes with the labels."""
    job = _submit(store, labels={"team": "vision"})
    edited = store.edit_job(job.id, JobEdit(labels={"team": "text"}), expected_version=1, now_s=2.0)
    assert store.jobs(JobFilter(label=("team", "text"))).jobs == (edited,)
    assert store.jobs(JobFilter(label=("team", "vision"))).jobs == ()


def jobs_that_may_not_be_preempted_are_found(store: WholeStore) -> None:
    """Those that have not ended, whatever else they are."""
    _submit(store)
    kept, ended = (_submit(store, preemptible=False, longest_s=60.0) for _ in range(2))
    _commit(store, replace(ended, state=JobState.CANCELLED))
    assert [job.id for job in store.non_preemptible_jobs()] == [kept.id]


def pages_of_jobs_are_bounded(store: WholeStore) -> None:
    """A limit out of bounds raises InvalidRequest."""
    for limit in (0, -1, 201):
        with refused(InvalidRequest):
            store.jobs(JobFilter(), limit=limit)


# --- many at once -----------------------------------------------------------------------------------------------


def many_jobs_are_submitted_together_or_not_at_all(store: WholeStore) -> None:
    """In order; one bad item refuses all."""
    answers = store.submit_many([spec(name="a"), spec(name="b")], key=None, body_hash="h", now_s=1.0)
    assert [each.job.spec.name for each in answers] == ["a", "b"] and all(each.created for each in answers)
    assert answers[0].job.id < answers[1].job.id and answers[0].job.spec.array_id is None
    with refused(InvalidRequest):
        store.submit_many([spec(), spec(after=("none",))], key=None, body_hash="h", now_s=1.0)
    assert len(store.jobs(JobFilter()).jobs) == len(store.snapshot().jobs) == 2


def one_key_makes_many_jobs_once(store: WholeStore) -> None:
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


def the_jobs_of_an_array_know_it(store: WholeStore) -> None:
    """Each has the id of the first, in order; a list can be limited to one array."""
    _submit(store)
    made = store.submit_many([spec(), spec()], key=None, body_hash="h", now_s=1.0, is_array=True)
    jobs = [each.job for each in made]
    assert [(job.spec.array_id, job.spec.array_index) for job in jobs] == [(jobs[0].id, 0), (jobs[0].id, 1)]
    assert store.jobs(JobFilter(array_id=jobs[0].id)).jobs == (jobs[1], jobs[0])
    assert store.job(jobs[1].id) == jobs[1]


def many_jobs_are_cancelled_together(store: WholeStore) -> None:
    """All unfinished jobs that match, except those to keep."""
    ended, kept, other, *rest = (_submit(store, user=user) for user in ("ann", "ann", "bob", "ann", "ann"))
    _commit(store, replace(ended, state=JobState.COMPLETED))
    ids = tuple(job.id for job in rest)
    assert store.request_cancel_all(JobFilter(user="ann"), keep=[kept.id], now_s=2.0) == ids[::-1]
    assert all(store.job(each).cancel_requested for each in ids)
    assert not any(store.job(job.id).cancel_requested for job in (ended, kept, other))
    assert set(store.request_cancel_all(JobFilter(ids=(other.id, "none")), now_s=2.0)) == {other.id}
    assert store.job(other.id).cancel_requested and not store.job(kept.id).cancel_requested


def a_limit_of_a_tier_holds_for_all_of_a_batch_or_none(store: WholeStore) -> None:
    """LimitReached refuses the whole batch; ended jobs do not count; a used key returns its jobs whatever the limit."""
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


# --- users and tokens -------------------------------------------------------------------------------------------


def users_have_tiers_that_exist(store: WholeStore) -> None:
    """In the given order: the first is the default."""
    store.put_tier(Tier(name="gold"), expected_version=None, by="op", now_s=1.0)
    ann = User(name="ann", tiers=("gold", "default"))
    assert store.put_user(ann, by="op", now_s=1.0) == ann
    with refused(NotFound):
        store.put_user(User(name="bob", tiers=("none",)), by="op", now_s=1.0)
    with refused(InvalidRequest):
        store.put_user(User(name="bob", tiers=()), by="op", now_s=1.0)
    store.put_user(User(name="aaron", tiers=("default",)), by="op", now_s=1.0)
    assert store.users() == (User(name="aaron", tiers=("default",)), ann)


def a_token_tells_who_holds_it(store: WholeStore) -> None:
    """It has the user's present tiers; a token has one holder."""
    operator, user, job = ("0" * 64, "1" * 64, "2" * 64)
    store.add_token(operator, user="op", scope=Scope.OPERATOR, now_s=1.0)
    store.add_token(user, user="ann", scope=Scope.USER, now_s=1.0)
    store.add_token(job, user="ann", scope=Scope.JOB, job_id="j", now_s=1.0)
    store.put_user(User(name="ann", tiers=("default",)), by="op", now_s=2.0)
    assert store.identify(operator) == Identity(user="op", scope=Scope.OPERATOR)
    assert store.identify(user) == Identity(user="ann", scope=Scope.USER, tiers=("default",))
    assert store.identify(job) == Identity(user="ann", scope=Scope.JOB, tiers=("default",), job_id="j")
    assert store.identify("3" * 64) is None
    theirs = store.submit(spec(user="ann"), key=None, body_hash="", now_s=3.0).job
    for _ in range(2):
        store.add_job_tokens({"4" * 64: theirs, "5" * 64: theirs}, now_s=3.0)
    assert {store.identify(each * 64) for each in "45"} == {
        Identity(user="ann", scope=Scope.JOB, tiers=("default",), job_id=theirs.id)
    }
    store.add_token(user, user="ann", scope=Scope.USER, now_s=9.0)
    with refused(Conflict):
        store.add_token(user, user="bob", scope=Scope.USER, now_s=9.0)
    for clear_text in ("gavel_secret", "A" * 64):
        with refused(InvalidRequest):
            store.add_token(clear_text, user="ann", scope=Scope.USER, now_s=1.0)


def the_audit_log_tells_of_users(store: WholeStore) -> None:
    """Entries are found by the user whom a decision concerns."""
    store.put_user(User(name="ann", tiers=("default",)), by="op", now_s=2.0)
    (entry,) = store.audit(user="ann")
    assert (entry.by, entry.action, entry.subject, entry.before) == ("op", "user.changed", "user/ann", None)


def a_token_that_is_taken_back_opens_nothing(store: WholeStore) -> None:
    """Tokens are listed by the start of their SHA-256; those of jobs end with them; a revocation is in the log."""
    first, second, of_a_job = ("a" * 64, "b" * 64, "c" * 64)
    store.put_user(User(name="ann", tiers=("default",)), by="op", now_s=1.0)
    store.add_token(second, user="ann", scope=Scope.OPERATOR, now_s=1.0)
    store.add_token(first, user="ann", scope=Scope.USER, now_s=2.0)
    store.add_token(of_a_job, user="ann", scope=Scope.JOB, job_id="j", now_s=3.0)
    expected = [("b" * 16, Scope.OPERATOR, 1.0), ("a" * 16, Scope.USER, 2.0)]
    *own, last = store.tokens("ann")
    assert [(each.id, each.scope, each.created_at_s) for each in own] == expected
    assert (last.id, last.scope, last.job_id) == ("c" * 16, Scope.JOB, "j")
    assert store.tokens("bob") == ()
    for user, token_id in (("bob", "b" * 16), ("ann", "c" * 16), ("ann", "b" * 15), ("ann", "%")):
        with refused(NotFound):
            store.revoke_token(user, token_id, by="op", now_s=4.0)
    store.revoke_token("ann", "b" * 16, by="op", now_s=5.0)
    assert store.identify(second) is None and store.identify(first) is not None
    assert [each.id for each in store.tokens("ann")] == ["a" * 16, "c" * 16]
    newest = store.audit(limit=1)[0]
    assert (newest.action, newest.by, newest.user) == ("token.revoked", "op", "ann")
    assert newest.before == {"id": "b" * 16, "scope": "operator"}


def a_session_ends_after_its_time_and_with_its_token(store: WholeStore) -> None:
    """It has an id of its own, which is no token; whoever logs in often ends the sessions that end first."""
    token, other, *sessions = (f"{number:064x}" for number in range(105))
    store.add_token(token, user="ann", scope=Scope.USER, now_s=1.0)
    with refused(NotFound):
        store.start_session(sessions[0], other, now_s=1.0, ends_at_s=9.0)
    with refused(InvalidRequest):
        store.start_session("clear text", token, now_s=1.0, ends_at_s=9.0)
    for number, session in enumerate(sessions):
        store.start_session(session, token, now_s=1.0, ends_at_s=9.0 + number)
    assert [store.session_holder(each, 2.0) is None for each in sessions] == [True] * 3 + [False] * 100
    holder = Identity(user="ann", scope=Scope.USER)
    assert store.session_holder(sessions[3], 11.9) == holder and store.session_holder(sessions[3], 12.0) is None
    assert store.identify(sessions[3]) is None and store.session_holder(token, 2.0) is None
    version = store.cache_version
    store.end_session(sessions[4])
    store.end_session(sessions[4])
    assert store.session_holder(sessions[4], 2.0) is None and store.cache_version > version
    store.revoke_token("ann", token[:16], by="op", now_s=3.0)
    assert all(store.session_holder(each, 2.0) is None for each in sessions)


def a_change_of_the_rules_is_another_cache_version(store: WholeStore) -> None:
    """Tiers, users and the cluster change it; a submit does not."""
    versions = [store.cache_version]
    store.submit(spec(), key=None, body_hash="h", now_s=1.0)
    assert store.cache_version == versions[0]
    store.put_tier(Tier(name="gold"), expected_version=None, by="op", now_s=1.0)
    versions.append(store.cache_version)
    store.put_user(User(name="ann", tiers=("gold",)), by="op", now_s=1.0)
    versions.append(store.cache_version)
    store.commit(0, Changes(cluster=Cluster()))
    versions.append(store.cache_version)
    assert versions == sorted(set(versions))


CHECKS: tuple[Callable[[WholeStore], None], ...] = (
    jobs_are_listed_and_counted,
    jobs_are_filtered_and_come_in_pages,
    a_list_by_label_follows_a_change_of_labels,
    jobs_that_may_not_be_preempted_are_found,
    pages_of_jobs_are_bounded,
    many_jobs_are_submitted_together_or_not_at_all,
    one_key_makes_many_jobs_once,
    the_jobs_of_an_array_know_it,
    many_jobs_are_cancelled_together,
    a_limit_of_a_tier_holds_for_all_of_a_batch_or_none,
    users_have_tiers_that_exist,
    a_token_tells_who_holds_it,
    the_audit_log_tells_of_users,
    a_token_that_is_taken_back_opens_nothing,
    a_change_of_the_rules_is_another_cache_version,
)
