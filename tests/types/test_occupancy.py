"""Workers of a plan's leases: their parts add up to the workers that are held."""

import pytest

from gavel.types import Lease, RoundPlan, mean_workers_held, mean_workers_received, parts_held, workers_held
from tests.builders import a_job


def a_lease(job_id: str, *workers: str, partner: str = "", **over: float) -> Lease:
    members = tuple(sorted({job_id, partner} - {""}))
    fields = {"expires_at_s": 110.0} | over
    return Lease(
        job_id=job_id, generation=1, combination=members, accelerator_type="fast", worker_ids=workers, round_index=1,
        expires_at_s=fields["expires_at_s"], starts_at_s=fields.get("starts_at_s"),
    )  # fmt: skip


def a_plan(*leases: Lease) -> RoundPlan:
    return RoundPlan(
        round_index=1, parent_round_index=0, starts_at_s=100.0, duration_s=10.0, leases=leases, policy="p",
        allocation_digest="",
    )  # fmt: skip


def test_a_pair_holds_half_each_and_a_gang_each_of_its_workers() -> None:
    leases = [a_lease("a", "w0", partner="b"), a_lease("b", "w0", partner="a"), a_lease("c", "w1", "w2")]
    assert workers_held(leases) == [0.5, 0.5, 2.0] == mean_workers_held(a_plan(*leases))
    assert workers_held(leases[1:]) == [1.0, 2.0], "whose partner has gone has the worker"


def test_a_lease_counts_by_the_time_that_it_holds() -> None:
    """Four jobs of a quarter each on one worker, one of which waits for the other to end; a fifth is over already."""
    spans = [(100.0, 102.5), (102.5, 105.0), (105.0, 107.5), (107.5, 110.0), (107.5, 107.5)]
    leases = [a_lease(f"j{n}", "w0", starts_at_s=at, expires_at_s=end) for n, (at, end) in enumerate(spans)]
    assert mean_workers_held(a_plan(*leases)) == pytest.approx([0.25] * 4 + [0.0])


def test_who_outlives_the_partner_has_the_whole_worker_from_then_on() -> None:
    first, last = a_lease("a", "w0", partner="b", expires_at_s=104.0), a_lease("b", "w0", partner="a")
    assert mean_workers_held(a_plan(first, last)) == pytest.approx([0.2, 0.8])
    beyond = a_lease("c", "w1", starts_at_s=90.0, expires_at_s=200.0)
    assert mean_workers_held(a_plan(beyond)) == [1.0]


def test_parts_are_of_all_workers_that_were_there() -> None:
    plan = a_plan(a_lease("a", "w0", "gone"), a_lease("b", "w1", expires_at_s=105.0))
    assert parts_held(plan, ["w0", "w1", "w2"]) == pytest.approx([0.5, 0.125])
    assert parts_held(a_plan(), []) == []


def test_what_jobs_received_counts_from_when_the_first_of_them_came() -> None:
    early = a_job("a", submitted_at_s=0.0, received_s={"fast": 30.0})
    late = a_job("b", submitted_at_s=90.0, received_s={"fast": 10.0}, spec={"scale_factor": 2})
    assert mean_workers_received([early, late], ["fast", "slow"], 100.0).tolist() == [[0.3, 0.0], [0.2, 0.0]]
    assert mean_workers_received([], ["fast"], 100.0).shape == (0, 1)
