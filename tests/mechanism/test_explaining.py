"""The first code that holds, with its figures, from what is kept of the newest round."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.views.overview import line_of
from gavel.mechanism.explaining.explanation import State, explain
from gavel.mechanism.explaining.waiting import MESSAGES_PER_TIER, Line, explain_waiting
from gavel.policies.equal_share import EqualShare
from gavel.policies.inline import InlineRunner
from gavel.types import Job, JobState, Lease, Reason, RoundPlan, RoundRecord, Tier, Usage
from tests.builders import a_cluster, a_job, a_problem

TIERS = {"gold": Tier(name="gold"), "silver": Tier(name="silver")}
NOW_S = 100.0


def lease(job_id: str, name: str = "t0", worker: str = "t0-0", **over: Any) -> Lease:
    fields: dict[str, Any] = {"generation": 1, "combination": (job_id,), "round_index": 3, "expires_at_s": 102.0}
    return Lease(**{"job_id": job_id, "accelerator_type": name, "worker_ids": (worker,)} | fields | over)


def a_record(policy: str = "max_min_fairness", *leases: Lease, **over: Any) -> RoundRecord:
    """Three jobs on a fast and a slow type with one worker each, allocated by a real policy."""
    problem = a_problem([[10, 5], [10, 5], [10, 5]], [1, 1], now_s=90.0, **over)
    plan = RoundPlan(
        round_index=3,
        parent_round_index=2,
        starts_at_s=92.0,
        duration_s=10.0,
        leases=leases,
        policy=policy,
        allocation_digest="",
    )
    return RoundRecord(plan=plan, problem=problem, allocation=InlineRunner().allocate(policy, problem, 10.0))


def a_state(*jobs: Job, record: RoundRecord | None = None, **over: Any) -> State:
    fields = {"tiers": TIERS, "cluster": a_cluster(t0=1, t1=1), "now_s": NOW_S} | over
    return State(jobs={job.id: job for job in jobs}, record=record, **fields)


JOB = a_job("j0", submitted_at_s=50.0)


@given(
    lag=st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.25]), min_size=8, max_size=8),
    tiers=st.lists(st.sampled_from(["gold", "silver"]), min_size=5, max_size=5),
    served=st.sets(st.integers(0, 4)),
    policy=st.sampled_from(["max_min_fairness", "fifo", "equal_share"]),
    sizes=st.lists(st.sampled_from([1, 2]), min_size=3, max_size=3),
)
def test_message_explanation_and_queue_say_the_same(
    lag: list[float], tiers: list[str], served: set[int], policy: str, sizes: list[int]
) -> None:
    """Five jobs, of which the round knows the first three and serves some; the others came later."""
    jobs = [a_job(f"j{row}", submitted_at_s=50.0 + row, spec={"tier": tier}) for row, tier in enumerate(tiers)]
    jobs = [replace(job, spec=replace(job.spec, scale_factor=size)) for job, size in zip(jobs, sizes, strict=False)]
    jobs += [a_job(f"j{row}", spec={"tier": tiers[row]}) for row in (3, 4)]
    cells = [(f"j{row}", name) for row in range(4) for name in ("t0", "t1")]
    leases = [lease(f"j{row}", worker=f"t0-{row}") for row in sorted(served) if row < 3]
    record = replace(a_record(policy, *leases), lag_rounds=dict(zip(cells, lag, strict=True)))
    state = a_state(*jobs, record=record, cluster=a_cluster(t0=2, t1=1))
    explained = {job_id: (reason, message) for job_id, reason, message in explain_waiting(state.jobs, record)}
    assert explained.keys() == {"j0", "j1", "j2"}
    for job_id, reason_and_message in explained.items():
        why = explain(state.jobs[job_id], state)
        assert (why.code, why.message) == reason_and_message
    placed = {job.id: place for place, job in line_of(state.jobs, record)}
    assert placed == {job.id: explain(job, state).position for job in jobs}
    for tier in set(tiers):
        places = [place for job_id, place in placed.items() if place and state.jobs[job_id].spec.tier == tier]
        assert sorted(places) == list(range(1, len(places) + 1))


def test_a_waiting_job_is_told_in_sentences_what_is_leased_what_it_has_and_who_comes_first() -> None:
    jobs = [a_job(f"j{index}") for index in range(3)]
    record = a_record("fifo", lease("j0"))
    messages = {job_id: message for job_id, _, message in explain_waiting({job.id: job for job in jobs}, record)}
    assert messages["j0"] == "Round 3 gives this job 1 worker of t0 (t0-0). Its gang is about to start."
    assert messages["j1"].endswith(" This job is next in gold.")
    assert messages["j2"] == (
        "t1 has 1 of 1 worker free; the next round gives it away. 1 job of gold comes before this job."
    )
    full = a_record("fifo", lease("j0"), lease("j1", "t1", "t1-0"))
    (_, _, message) = list(explain_waiting({job.id: job for job in jobs}, full))[-1]
    assert message == "All 2 workers are busy. This job is next in gold."


def test_a_worker_whose_gang_has_ended_is_not_busy() -> None:
    """1. A round leases both workers. 2. One of the two jobs ends. 3. The third waits for the other worker only."""
    record = a_record("fifo", lease("j0"), lease("j1", "t1", "t1-0"))
    jobs = {job.id: job for job in (a_job("j1", state=JobState.LEASED, generation=1), a_job("j2"))}
    (_, _, message) = list(explain_waiting(jobs, record))[-1]
    assert message == "The only worker of t1 is busy. This job is next in gold."


@pytest.mark.parametrize(
    ("code", "job", "over", "figures"),
    [
        ("Misconfigured", a_job(spec={"tier": "gone"}), {}, ["no tier gone"]),
        ("Misconfigured", a_job(spec={"cpu_cores": 64}), {}, ["64 CPU cores", "At most 2 would do"]),
        ("NoMatchingType", a_job(spec={"scale_factor": 3, "cpu_cores": 0}), {}, ["needs 3 workers", "t0 1, t1 1"]),
        ("Paused", a_job(pause_requested=True), {}, ["step 0 of 100"]),
        ("WaitingForJobs", a_job(waits_for=("a",), spec={"after": ("a", "b")}), {}, ["1 of 2 have not completed"]),
        ("Lost", a_job(retry_at_s=130.0, losses=2), {}, ["gang of the job was lost", "in 30 s, after 2 lost gangs"]),
        ("Cancelling", a_job(cancel_requested=True), {}, ["when its gang has stopped"]),
        (
            "ProgramFailed",
            a_job(state=JobState.FAILED, reason=Reason.PROGRAM_FAILED, message="exit code 3"),
            {},
            ["exit code 3"],
        ),
    ],
)
def test_what_no_round_can_mend_is_said_with_its_figures(
    code: str, job: Job, over: dict[str, Any], figures: list[str]
) -> None:
    why = explain(job, a_state(job, **over))
    text = " ".join((why.message, *why.would_unblock))
    assert why.code == code and all(figure in text for figure in figures), why
    assert (why.position, why.binding) == (None, None)


@pytest.mark.parametrize(
    ("user", "of_guest", "of_session"),
    [
        ("ann", "It runs beside session note, on the same accelerators", "shares its accelerators with training j0."),
        ("bob", "It runs beside a session of another user, on", "its accelerators with a training of another user."),
    ],
)
def test_a_training_beside_a_session_says_so_and_names_no_job_of_another_user(
    user: str, of_guest: str, of_session: str
) -> None:
    session = a_job("note", spec={"user": user, "longest_s": 60.0}, state=JobState.LEASED, generation=1)
    guest = replace(JOB, state=JobState.LEASED, generation=1)
    pair = ("note", "j0")
    record = a_record("max_min_fairness", lease("note", combination=pair), lease("j0", combination=pair))
    state = a_state(session, guest, record=record)
    assert of_guest in explain(guest, state).message
    assert of_session in explain(session, state).message
    assert "beside" not in explain(replace(guest, state=JobState.QUEUED), state).message


def test_before_the_first_round_a_job_has_its_place_already() -> None:
    why = explain(JOB, a_state(JOB, a_job("a-first")))
    sentence = "The first round takes the job into account."
    assert (why.code, why.message, why.position) == (Reason.PENDING_EVALUATION, sentence, 2)


def test_a_tier_s_month_that_is_spent_goes_before_a_pause_and_one_too_short_before_both() -> None:
    tiers = TIERS | {"gold": Tier(name="gold", accelerator_hours_per_month=2.0)}
    usage = {("gold", "1970-01"): Usage(tier="gold", month="1970-01", accelerator_hours=2.5)}
    paused = replace(JOB, pause_requested=True)
    why = explain(paused, a_state(paused, tiers=tiers, usage=usage))
    assert why.code == Reason.QUOTA_EXCEEDED and "2.50 of 2" in why.message
    long = replace(paused, spec=replace(JOB.spec, total_steps=360_000))  # ten hours at ten steps a second
    why = explain(long, a_state(long, tiers=tiers, usage=usage, record=a_record()))
    assert (
        why.code == Reason.EXCEEDS_MAX_QUOTA and "10.00 accelerator hours" in why.message and "2 a month" in why.message
    )


def test_a_waiting_job_is_told_the_type_that_is_short_by_the_policy_s_prices() -> None:
    """The fast type costs twice the slow one, as it does twice the work."""
    others = [a_job(f"j{index}", state=JobState.LEASED, generation=1) for index in (1, 2)]
    record = a_record("max_min_fairness", lease("j1"), lease("j2", "t1", "t1-0"))
    job = replace(JOB, received_s={"t0": 10.0})
    why = explain(job, a_state(job, *others, record=record))
    assert why.code == Reason.BEHIND_FAIR_SHARE and why.binding
    assert (why.binding.accelerator_type, why.binding.source, why.binding.price) == ("t0", "prices", 1.0)
    assert (why.binding.leased_workers, why.binding.workers) == (1, 1)
    assert why.target_fraction == {"t0": pytest.approx(1 / 3, abs=1e-6), "t1": pytest.approx(1 / 3, abs=1e-6)}
    assert why.received == {"t0": pytest.approx(0.2)} and why.message.startswith("All 2 workers are busy.")
    free, first, fix = why.would_unblock
    assert free == "1 more free worker of t0 would be enough."
    assert first == "The first gang on t0 ends in 100 s of running."
    assert "gavel job set j0 --priority" in fix


def test_a_job_that_fifo_leaves_out_waits_for_capacity() -> None:
    """The first two jobs have everything; the level at which the third stops is that of the slow type."""
    jobs = [a_job(f"j{index}") for index in range(3)]
    record = a_record("fifo", lease("j0"), lease("j1", "t1", "t1-0"))
    why = explain(jobs[2], a_state(*jobs, record=record))
    assert (why.code, why.position, why.jobs_ahead) == ("WaitingForCapacity", 1, 0)
    assert why.binding and why.binding.source == "prices" and why.binding.accelerator_type == "t1"


def test_without_prices_the_load_says_what_is_short() -> None:
    record = a_record("equal_share", lease("j1"), lease("j2", "t1", "t1-0"))
    assert "prices" not in record.allocation.warm_start
    why = explain(JOB, a_state(JOB, record=record))
    assert why.binding and why.binding.source == "load" and why.binding.price == pytest.approx(1.0)


def test_the_place_follows_the_rounds_owed_then_the_arrival() -> None:
    jobs = [a_job(f"j{index}") for index in range(3)]
    record = replace(a_record(), lag_rounds={("j2", "t0"): 0.9, ("j0", "t0"): 0.2, ("j1", "t1"): 0.2})
    state = a_state(*jobs, record=record)
    assert [explain(job, state).position for job in jobs] == [2, 3, 1]
    assert explain(jobs[2], state).lag_rounds == 0.9
    elsewhere = replace(jobs[2], spec=replace(jobs[2].spec, tier="silver"))
    assert explain(jobs[1], a_state(*jobs[:2], elsewhere, record=record)).jobs_ahead == 1


def test_who_runs_or_is_about_to_is_told_where() -> None:
    running, starting = replace(JOB, state=JobState.LEASED, generation=1), replace(JOB, id="j1")
    record = a_record("max_min_fairness", lease("j0"), lease("j1", "t1", "t1-0"), lease("j2", is_profiling=True))
    state = a_state(running, starting, a_job("j2"), a_job("j9"), record=record)
    assert explain(running, state).code == Reason.RUNNING and "t0-0" in explain(running, state).message
    assert "about to start" in explain(starting, state).message
    assert explain(a_job("j2"), state).code == Reason.PROFILING
    assert "The next round takes the job into account." in explain(a_job("j9"), state).message


def test_who_lost_its_gang_in_the_round_is_told_that_and_not_that_it_starts() -> None:
    lost = replace(
        JOB, generation=1, reason=Reason.LOST, message="The gang was lost on t0 at step 3 of 100: no network."
    )
    record = a_record("max_min_fairness", lease("j0"))
    why = explain(lost, a_state(lost, record=record))
    assert (why.code, why.message) == (Reason.LOST, lost.message)
    assert "j0" not in {job_id for job_id, _, _ in explain_waiting({"j0": lost}, record)}


def test_a_reused_allocation_on_other_types_is_explained_without_its_prices() -> None:
    record = a_record()
    other = replace(record.problem, accelerator_types=("t0", "t9"))
    why = explain(JOB, a_state(JOB, record=replace(record, problem=other)))
    assert why.binding and why.binding.source == "load"
    nowhere = replace(record.problem, throughput_steps_per_s=np.zeros((3, 2, 2)))
    assert explain(JOB, a_state(JOB, record=replace(record, problem=nowhere))).binding is None


def test_only_the_first_jobs_of_each_tier_have_a_message_so_that_an_end_changes_few_rows() -> None:
    """1. Many jobs of two tiers wait. 2. The first one ends. 3. Only messages of the first places change."""
    jobs = {f"j{row:04}": a_job(f"j{row:04}", spec={"tier": ("gold", "silver")[row % 2]}) for row in range(500)}
    problem = a_problem([[1.0]] * 500, [1], job_ids=tuple(jobs))
    record = replace(a_record("fifo"), problem=problem, allocation=EqualShare().allocate(problem))
    before = {job_id: (reason, message) for job_id, reason, message in explain_waiting(jobs, record)}
    after = {each[0]: each[1:] for each in explain_waiting({k: v for k, v in jobs.items() if k != "j0000"}, record)}
    assert sum(bool(message) for _, message in before.values()) == 2 * MESSAGES_PER_TIER
    assert sum(after[job_id] != before[job_id] for job_id in after) == MESSAGES_PER_TIER


@settings(max_examples=40)
@given(lags=st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), min_size=6, max_size=6), gone=st.sets(st.integers(0, 5)))
def test_the_line_is_that_of_a_plain_sort(lags: list[float], gone: set[int]) -> None:
    """Jobs 6 and 7 came after the round; 8 runs to its end without a lease."""
    ids = tuple(f"j{5 - row}" for row in range(6))
    record = replace(a_record("fifo", lease("j1")), problem=a_problem([[1.0, 1.0]] * 6, [1, 1], job_ids=ids))
    record = replace(record, lag_rounds=dict(zip([(each, "t0") for each in ids], lags, strict=True)))
    jobs = {
        f"j{row}": a_job(f"j{row}", spec={"tier": f"tier-{row % 2}"}) for row in (7, *range(6), 6) if row not in gone
    }
    jobs["j8"] = a_job("j8", state=JobState.LEASED, generation=1)
    waiting = [job for job in jobs.values() if job.id not in ("j1", "j8")]
    lag_of = dict(zip(ids, lags, strict=True))
    waiting.sort(
        key=lambda job: (-max(0.0, lag_of.get(job.id, 0.0)), ids.index(job.id) if job.id in ids else 6, job.id)
    )
    line = list(Line(record).in_order(jobs))
    assert [job.id for _, job in line] == [job.id for job in waiting]
    assert all(Line(record).place_of(job, jobs.values()) == place for place, job in line)


@pytest.mark.parametrize(
    ("regions", "state", "words"),
    [
        (("eu",), JobState.QUEUED, "No node of region eu can be used now; the job waits for one."),
        (("eu", "ap"), JobState.QUEUED, "No node of the regions eu, ap can be used now; the job waits for one."),
        (("eu",), JobState.LEASED, "No node of region eu can be used now; its gang runs to the end of its lease."),
    ],
)
def test_a_job_of_a_region_that_is_away_is_told_so(regions: tuple[str, ...], state: JobState, words: str) -> None:
    job = a_job("j0", state=state, spec={"regions": regions})
    why = explain(job, a_state(job))
    assert (why.code, why.message) == (Reason.REGION_AWAY, words)
    here = a_job("j0", spec={"regions": (*regions, "local")})
    assert words not in explain(here, a_state(here)).message
