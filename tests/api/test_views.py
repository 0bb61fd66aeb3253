"""Views of the scheduler's types, tested without a server."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.views.jobs_and_rounds import (
    allocation_view,
    cluster_view,
    core_states,
    leases_in_force,
    shown_state,
    target_of_jobs,
)
from gavel.mechanism.explaining.fairness import deficit_s, finish_time_fairness, isolated_share
from gavel.store.samples import round_record
from gavel.types import Allocation, Certificate, JobState, Lease, Reason, RoundPlan
from tests.builders import a_cluster, a_job


def a_lease(generation: int, worker: str) -> Lease:
    return Lease(
        job_id="j1",
        generation=generation,
        combination=("j1",),
        accelerator_type="fast",
        worker_ids=(worker,),
        round_index=generation,
        expires_at_s=10.0,
    )


def a_plan(lease: Lease) -> RoundPlan:
    return RoundPlan(
        round_index=lease.round_index,
        parent_round_index=lease.round_index - 1,
        starts_at_s=0.0,
        duration_s=10.0,
        leases=(lease,),
        policy="fifo",
        allocation_digest="",
    )


@given(
    state=st.sampled_from(JobState),
    is_cancelled=st.booleans(),
    attempt=st.integers(0, 2),
    reason=st.sampled_from(Reason),
)
def test_a_list_by_shown_state_asks_for_the_core_state_of_each_such_job(
    state: JobState, is_cancelled: bool, attempt: int, reason: Reason
) -> None:
    job = a_job(state=state, cancel_requested=is_cancelled, attempt=attempt, reason=reason)
    assert state in core_states(shown_state(job, None))


def test_a_job_in_two_combinations_is_wanted_for_the_sum() -> None:
    allocation = Allocation(
        combinations=(("a",), ("a", "b")),
        accelerator_types=("fast", "slow"),
        time_fraction=np.array([[0.25, 0.0], [0.5, 0.125]]),
        certificate=Certificate(primal_violation=0.0),
        policy="fifo",
        solver="",
    )
    assert target_of_jobs(allocation) == {"a": [0.75, 0.125], "b": [0.5, 0.125]}


def test_a_policy_s_note_on_a_job_stands_in_the_job_s_row() -> None:
    record = round_record(1)
    rows = allocation_view(record, {"j": a_job("j")}, 10.0).rows
    assert [(row.job_id, row.note) for row in rows] == [("j", dict(record.allocation.notes)["j"])]
    silent = replace(record, allocation=replace(record.allocation, notes=()))
    assert allocation_view(silent, {"j": a_job("j")}, 10.0).rows[0].note == ""


def test_the_lease_in_force_is_that_of_the_live_token_not_the_one_planned_ahead() -> None:
    job = a_job(state=JobState.LEASED, generation=1)
    ahead, now = a_plan(a_lease(2, "fast-1")), a_plan(a_lease(1, "fast-0"))
    assert leases_in_force((ahead, now), {"j1": job})["j1"].worker_ids == ("fast-0",)
    assert leases_in_force((ahead, now), {"j1": a_job(state=JobState.QUEUED, generation=1)}) == {}


def test_fairness_is_unknown_before_any_step_and_never_infinite() -> None:
    assert finish_time_fairness(a_job(), 10.0) is None
    assert finish_time_fairness(a_job(isolated_time_s=5e-324), 1e10) is None
    assert finish_time_fairness(a_job(isolated_time_s=5.0, submitted_at_s=2.0, finished_at_s=12.0), 99.0) == 2.0


@given(age_s=st.floats(0.0, 1e7), isolated_s=st.floats(0.0, 1e7), steps=st.integers(0, 10**6))
def test_a_job_is_behind_its_isolated_share_exactly_if_its_rho_is_above_one(
    age_s: float, isolated_s: float, steps: int
) -> None:
    """Behind by what the reported steps took longer, whether or not a checkpoint holds them."""
    job = a_job(submitted_at_s=0.0, isolated_time_s=isolated_s, steps_done=steps // 2, steps_reported=steps)
    rho, behind_s = finish_time_fairness(job, age_s), deficit_s(job, age_s)
    assert behind_s == pytest.approx(age_s - isolated_s, rel=1e-9, abs=1e-6)
    if rho is not None and abs(behind_s) > 1e-3:
        assert (rho > 1) == (behind_s > 0)
    words = isolated_share(job, age_s)
    assert ("behind" in words) == (behind_s >= 1) and ("ahead of" in words) == (behind_s <= -1)


def test_how_far_a_job_is_ahead_or_behind_is_told_in_one_unit() -> None:
    job = a_job(submitted_at_s=0.0, isolated_time_s=1000.0)
    assert isolated_share(job, 280.0) == "12 min ahead of its isolated share"
    assert isolated_share(job, 1030.0) == "30 s behind its isolated share"
    assert isolated_share(replace(job, finished_at_s=1000.5), 9e9) == "as far as with its isolated share"


def test_a_worker_that_two_jobs_share_names_both() -> None:
    leases = {job_id: replace(a_lease(1, "fast-0"), job_id=job_id, combination=("a", "b")) for job_id in ("a", "b")}
    shared, free = cluster_view(a_cluster(fast=2), leases, {"a"}, (), 10.0).workers
    assert (shared.busy, shared.job_ids) == (True, ["a", None]), "the other is another user's"
    assert (free.busy, free.job_ids) == (False, [])
