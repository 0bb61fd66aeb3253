"""What a write has to pass: at each bound, what is still accepted, and the sentence with which the rest is refused."""

from dataclasses import replace

import pytest

from gavel.errors import (
    Conflict,
    InvalidRequest,
    InvariantViolated,
    LimitReached,
    NotFound,
    StaleVersion,
    StoreUnavailable,
)
from gavel.ports import AuditEntry, JobEvent
from gavel.store.rules import (
    JobIds,
    Progress,
    check_alive,
    check_amended,
    check_limit,
    check_limits,
    check_pending,
    check_progress,
    check_round,
    check_token_hash,
    check_unfinished,
    check_user,
    count_preemptions,
    gone_checkpoints,
    new_jobs,
    no_job,
    no_operation,
    no_round,
    unmet,
)
from gavel.types import Job, JobState, OperationState, Reason, RoundPlan, Tier, User
from tests.builders import a_job, a_spec
from tests.refusals import refused

LEASED = Progress(state=JobState.LEASED, generation=3, steps_done=40, total_steps=100)
FEWER = Reason.TOO_MANY_JOBS.fix()
PLAN = RoundPlan(
    round_index=8,
    parent_round_index=7,
    starts_at_s=70.0,
    duration_s=10.0,
    leases=(),
    policy="test",
    allocation_digest="",
)


@pytest.mark.parametrize("over", [{}, {"generation": 4}, {"steps_done": 100}, {"state": JobState.COMPLETED}], ids=str)
def test_a_job_may_stay_as_it_is_or_get_on(over: dict[str, object]) -> None:
    check_progress("j1", LEASED, replace(LEASED, **over))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("over", "sentence"),
    [
        ({"generation": 2}, "generations_grow: token of job j1 would fall from 3 to 2"),
        ({"steps_done": 39}, "progress_grows: steps done of job j1 would go from 40 to 39 of 100"),
        ({"steps_done": 101}, "progress_grows: steps done of job j1 would go from 40 to 101 of 100"),
    ],
)
def test_generation_and_steps_never_fall_and_end_with_the_last_step(over: dict[str, int], sentence: str) -> None:
    with refused(InvariantViolated, sentence):
        check_progress("j1", LEASED, replace(LEASED, **over))  # type: ignore[arg-type]


def test_a_job_whose_checkpoint_is_gone_may_go_back_as_far_as_its_beginning() -> None:
    check_progress("j1", LEASED, replace(LEASED, steps_done=0), is_gone=True)
    sentence = "progress_grows: steps done of job j1 would go from 40 to -1 of 100"
    with refused(InvariantViolated, sentence):
        check_progress("j1", LEASED, replace(LEASED, steps_done=-1), is_gone=True)


def test_a_job_of_unknown_length_has_no_last_step() -> None:
    unknown = replace(LEASED, total_steps=0)
    check_progress("j1", unknown, replace(unknown, steps_done=10**9))


@pytest.mark.parametrize("state", [each for each in JobState if each is not JobState.COMPLETED])
def test_an_ended_job_stays_as_it_ended(state: JobState) -> None:
    ended = replace(LEASED, state=JobState.COMPLETED)
    check_progress("j1", ended, ended)
    sentence = f"terminal_is_final: job j1 is COMPLETED and cannot become {state}"
    with refused(InvariantViolated, sentence):
        check_progress("j1", ended, replace(ended, state=state))


def test_a_checkpoint_is_gone_if_it_was_lost_or_cannot_be_read() -> None:
    kinds = {"a": "checkpoint.gone", "b": "checkpoint.unreadable", "c": "checkpoint.accepted"}
    events = [JobEvent(job_id=job_id, at_s=1.0, kind=kind) for job_id, kind in kinds.items()]
    assert gone_checkpoints(events) == {"a", "b"}


@pytest.mark.parametrize(("parent", "newest"), [(7, 6), (7, 8), (6, 7), (6, 6)])
def test_a_round_follows_the_newest_that_is_stored(parent: int, newest: int) -> None:
    check_round(PLAN, 7)
    sentence = (
        f"round 8 after {parent} cannot follow the newest stored round {newest}: take a new snapshot and plan again"
    )
    with refused(StaleVersion, sentence):
        check_round(replace(PLAN, parent_round_index=parent), newest)


@pytest.mark.parametrize("stored", [None, replace(PLAN, starts_at_s=71.0), replace(PLAN, duration_s=11.0)])
def test_a_round_is_amended_only_as_it_is_stored(stored: RoundPlan | None) -> None:
    check_amended(PLAN, replace(PLAN, policy="another"))
    sentence = "round 8 is not kept as it was: take a new snapshot and decide again"
    with refused(StaleVersion, sentence):
        check_amended(PLAN, stored)


def test_gangs_that_are_moved_or_preempted_count_as_preemptions() -> None:
    actions = ("gang.moved", "gang.preempted", "gang.launched", "gang.preempted")
    audit = [AuditEntry(at_s=1.0, by="p", subject="job/a", before=None, after={}, action=action) for action in actions]
    assert count_preemptions(audit) == 3 and count_preemptions([]) == 0


def test_the_thousandth_command_may_wait_and_no_other() -> None:
    check_pending(999)
    sentence = "1000 commands wait for the scheduler already, try again later"
    with refused(StoreUnavailable, sentence):
        check_pending(1000)


def test_an_operation_ends_once() -> None:
    check_unfinished("o1", OperationState.PENDING)
    with refused(NotFound, "no operation o1, or no longer kept"):
        check_unfinished("o1", None)
    for state in (OperationState.DONE, OperationState.FAILED):
        sentence = f"operations_end_once: operation o1 is {state} already"
        with refused(InvariantViolated, sentence):
            check_unfinished("o1", state)


def test_new_jobs_are_queued_in_the_order_of_their_specifications_at_their_first_step() -> None:
    ids, made = JobIds(lambda bits: 0), JobIds(lambda bits: 0)
    specs = [a_spec(after=("x", "y")), a_spec(from_checkpoint="z/2-40")]
    first, second = new_jobs(specs, ids, 7.0, waits_for={"y"}, is_array=False)
    assert first == Job(id=made.next(7.0), spec=specs[0], submitted_at_s=7.0, waits_for=("y",))
    assert second == Job(id=made.next(7.0), spec=specs[1], submitted_at_s=7.0, steps_done=40)


def test_the_jobs_of_an_array_share_the_id_of_the_first_and_are_numbered() -> None:
    jobs = new_jobs([a_spec()] * 3, JobIds(), 7.0, waits_for=(), is_array=True)
    assert [job.spec for job in jobs] == [a_spec(array_id=jobs[0].id, array_index=index) for index in range(3)]


def test_a_job_waits_for_those_that_are_on_their_way() -> None:
    states = {"a": JobState.QUEUED, "b": JobState.LEASED, "c": JobState.COMPLETED, "d": JobState.FAILED}
    assert unmet(("c", "b", "a"), states) == {"a", "b"} and unmet((), states) == set()


@pytest.mark.parametrize(
    ("after", "sentence"),
    [
        (("c", "x", "e"), "after: no job e"),
        (("d", "f"), "after: job d is FAILED and will never complete; submit it again first"),
        (("f", "x"), "after: job f is CANCELLED and will never complete; submit it again first"),
    ],
)
def test_nothing_can_wait_for_a_job_that_will_never_complete(after: tuple[str, ...], sentence: str) -> None:
    states = {"c": JobState.COMPLETED, "d": JobState.FAILED, "f": JobState.CANCELLED}
    with refused(InvalidRequest, sentence):
        unmet(after, states)


def test_the_unfinished_jobs_of_a_user_are_at_most_its_limit() -> None:
    specs = [a_spec(), a_spec()]
    for per_user, users in ((3, {"ann": 1, "bob": 9}), (2, {}), (None, {"ann": 9})):
        check_limits(specs, users, {}, per_user=per_user, per_tier={})
    check_limits([a_spec()], {}, {}, per_user=1, per_tier={})
    sentence = f"TooManyJobs: ann has 2 unfinished jobs and may have 3, so 2 more cannot come. {FEWER}"
    with refused(LimitReached, sentence):
        check_limits(specs, {"ann": 2}, {}, per_user=3, per_tier={})
    sentence = f"TooManyJobs: ann has 0 unfinished jobs and may have 1, so 2 more cannot come. {FEWER}"
    with refused(LimitReached, sentence):
        check_limits(specs, {}, {}, per_user=1, per_tier={})


def test_the_unfinished_jobs_of_each_tier_are_at_most_its_limit() -> None:
    specs = [a_spec(tier="silver"), a_spec(), a_spec()]
    check_limits(specs, {}, {"gold": 1, "silver": 99}, per_user=None, per_tier={"gold": 3})
    check_limits(specs, {}, {}, per_user=None, per_tier={"gold": 2})
    for stored in (2, 0):
        most = stored + 1
        sentence = (
            f"TooManyJobs: tier gold has {stored} unfinished jobs and may have {most}, so 2 more cannot come. {FEWER}"
        )
        tiers = {"gold": stored} if stored else {}
        with refused(LimitReached, sentence):
            check_limits(specs, {}, tiers, per_user=None, per_tier={"gold": most})


def test_an_ended_job_cannot_be_asked_for_anything() -> None:
    check_alive(a_job(state=JobState.LEASED), "paused")
    sentence = "job j1 is already FAILED and cannot be paused"
    with refused(Conflict, sentence):
        check_alive(a_job(state=JobState.FAILED), "paused")


def test_a_user_has_a_tier_and_only_such_that_exist() -> None:
    tiers = {name: Tier(name=name) for name in ("silver", "gold")}
    check_user(User(name="ann", tiers=("gold", "silver")), tiers)
    sentence = "tiers: user ann needs at least one tier; the first is the default"
    with refused(InvalidRequest, sentence):
        check_user(User(name="ann", tiers=()), tiers)
    sentence = "no tier tin; there are: gold, silver"
    with refused(NotFound, sentence):
        check_user(User(name="ann", tiers=("gold", "tin")), tiers)


def test_a_page_has_from_one_entry_to_the_most_that_are_allowed() -> None:
    check_limit(1, 5)
    check_limit(5, 5)
    for limit in (0, 6):
        with refused(InvalidRequest, f"limit: {limit} is not between 1 and 5"):
            check_limit(limit, 5)


@pytest.mark.parametrize("wrong", ["", "0a" * 31 + "0", "0a" * 33, "0A" * 32, "0g" * 32, "X" * 64, "gavel_" + "0" * 58])
def test_only_a_sha_256_in_lower_case_hex_is_the_hash_of_a_token(wrong: str) -> None:
    check_token_hash("0123456789abcdef" * 4)
    sentence = "token_hash: give the SHA-256 of the token as 64 lower-case hex digits"
    with refused(InvalidRequest, sentence):
        check_token_hash(wrong)


def test_what_is_not_there_is_named() -> None:
    missing = [no_job("j1"), no_operation("o1"), no_round(None), no_round(3)]
    assert [str(each) for each in missing] == [
        "no job j1",
        "no operation o1, or no longer kept",
        "no round has been planned yet",
        "no round 3, or no longer kept",
    ]
