"""The first code that holds, with its figures, from what is kept of the newest round."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.mechanism.explaining import State, explain, explain_waiting
from gavel.policies.inline import InlineRunner
from gavel.types import Job, JobState, Lease, RoundPlan, RoundRecord, Tier, Usage
from tests.builders import a_cluster, a_job, a_problem

TIERS = {"gold": Tier(name="gold"), "silver": Tier(name="silver")}
NOW_S = 100.0


def lease(job_id: str, name: str = "t0", worker: str = "t0-0", **over: Any) -> Lease:
    fields: dict[str, Any] = {"token": 1, "combination": (job_id,), "round_index": 3, "expires_at_s": 20.0}
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


@given(owed=st.lists(st.sampled_from([0.0, 0.5, 1.25]), min_size=6, max_size=6))
def test_a_job_s_message_and_its_explanation_count_the_same_jobs_ahead(owed: list[float]) -> None:
    jobs = [a_job(f"j{row}", submitted_at_s=50.0 + row) for row in range(3)]
    cells = [(job.id, name) for job in jobs for name in ("t0", "t1")]
    record = replace(a_record(), owed_rounds=dict(zip(cells, owed, strict=True)))
    state = a_state(*jobs, record=record)
    said = {job_id: message for job_id, _, message in explain_waiting(state.jobs, record)}
    for job in jobs:
        assert f"; {explain(job, state).jobs_ahead} waiting ahead" in said[job.id]
    assert [explain(state.jobs[job_id], state).position for job_id in said] == [1, 2, 3]


@pytest.mark.parametrize(
    ("code", "job", "over", "figures"),
    [
        ("Misconfigured", a_job(spec={"tier": "gone"}), {}, ["no tier gone"]),
        ("Misconfigured", a_job(spec={"cpu_cores": 64}), {}, ["64 CPU cores", "together have 2"]),
        ("NoMatchingType", a_job(spec={"scale_factor": 3, "cpu_cores": 0}), {}, ["needs 3 workers", "t0 1, t1 1"]),
        ("Paused", a_job(pause_requested=True), {}, ["step 0 of 100"]),
        ("WaitingForJobs", a_job(waits_for=("a",), spec={"after": ("a", "b")}), {}, ["1 of 2 have not completed"]),
        ("PendingEvaluation", a_job(), {}, ["no round has been decided yet"]),
        ("PendingEvaluation", a_job(retry_at_s=130.0, losses=2), {}, ["lost 2 times", "in 30 s"]),
        ("Cancelling", a_job(cancel_requested=True), {}, ["once its gang has stopped"]),
        ("Ended", a_job(state=JobState.FAILED, reason="ProgramFailed", message="exit code 3"), {}, ["exit code 3"]),
    ],
)
def test_what_no_round_can_mend_is_said_with_its_figures(
    code: str, job: Job, over: dict[str, Any], figures: list[str]
) -> None:
    why = explain(job, a_state(job, **over))
    assert why.code == code and all(figure in why.message for figure in figures), why
    assert (why.position, why.binding) == (None, None)


def test_a_tier_s_month_that_is_spent_goes_before_a_pause_and_one_too_short_before_both() -> None:
    tiers = TIERS | {"gold": Tier(name="gold", accelerator_hours_per_month=2.0)}
    usage = {("gold", "1970-01"): Usage(tier="gold", month="1970-01", accelerator_hours=2.5)}
    paused = replace(JOB, pause_requested=True)
    why = explain(paused, a_state(paused, tiers=tiers, usage=usage))
    assert why.code == "QuotaExceeded" and "2.50 of 2" in why.message
    long = replace(paused, spec=replace(JOB.spec, total_steps=360_000))  # ten hours at ten steps a second
    why = explain(long, a_state(long, tiers=tiers, usage=usage, record=a_record()))
    assert why.code == "ExceedsMaxQuota" and "10.00 accelerator hours" in why.message and "2 a month" in why.message


def test_a_waiting_job_is_told_the_type_that_is_short_by_the_policy_s_prices() -> None:
    """The fast type costs twice the slow one, as it does twice the work."""
    others = [a_job(f"j{index}", state=JobState.LEASED, token=1) for index in (1, 2)]
    record = a_record("max_min_fairness", lease("j1"), lease("j2", "t1", "t1-0"))
    job = replace(JOB, received_s={"t0": 10.0})
    why = explain(job, a_state(job, *others, record=record))
    assert why.code == "BehindFairShare" and why.binding
    assert (why.binding.accelerator_type, why.binding.source, why.binding.price) == ("t0", "prices", 1.0)
    assert (why.binding.leased_workers, why.binding.workers) == (1, 1)
    assert why.owed == {"t0": pytest.approx(1 / 3, abs=1e-6), "t1": pytest.approx(1 / 3, abs=1e-6)}
    assert why.received == {"t0": pytest.approx(0.2)} and "owed 66.7% of the time, had 20.0%" in why.message
    assert "1 more free worker of t0" in why.would_unblock
    assert "the first gang there ends, in 100 s of running" in why.would_unblock


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
    record = replace(a_record(), owed_rounds={("j2", "t0"): 0.9, ("j0", "t0"): 0.2, ("j1", "t1"): 0.2})
    state = a_state(*jobs, record=record)
    assert [explain(job, state).position for job in jobs] == [2, 3, 1]
    assert explain(jobs[2], state).owed_rounds == 0.9
    elsewhere = replace(jobs[2], spec=replace(jobs[2].spec, tier="silver"))
    assert explain(jobs[1], a_state(*jobs[:2], elsewhere, record=record)).jobs_ahead == 1


def test_who_runs_or_is_about_to_is_told_where() -> None:
    running, starting = replace(JOB, state=JobState.LEASED, token=1), replace(JOB, id="j1")
    record = a_record("max_min_fairness", lease("j0"), lease("j1", "t1", "t1-0"), lease("j2", is_profiling=True))
    state = a_state(running, starting, a_job("j2"), a_job("j9"), record=record)
    assert explain(running, state).code == "Running" and "t0-0" in explain(running, state).message
    assert "about to start" in explain(starting, state).message
    assert explain(a_job("j2"), state).code == "Profiling"
    assert "after round 3 was decided" in explain(a_job("j9"), state).message


def test_a_reused_allocation_on_other_types_is_explained_without_its_prices() -> None:
    record = a_record()
    other = replace(record.problem, accelerator_types=("t0", "t9"))
    why = explain(JOB, a_state(JOB, record=replace(record, problem=other)))
    assert why.binding and why.binding.source == "load"
    nowhere = replace(record.problem, throughput_steps_per_s=np.zeros((3, 2, 2)))
    assert explain(JOB, a_state(JOB, record=replace(record, problem=nowhere))).binding is None
