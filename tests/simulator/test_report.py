import pytest

from gavel.simulator.report import metrics, metrics_by_tier, row_of, utilisation
from gavel.types import Job, JobState
from tests.builders import a_cluster, a_job


def a_completed(job_id: str, submitted_at_s: float, finished_at_s: float, tier: str = "gold", **over: object) -> Job:
    return a_job(
        job_id,
        spec={"tier": tier, "name": f"name of {job_id}", "scale_factor": over.pop("scale_factor", 1)},
        state=JobState.COMPLETED,
        submitted_at_s=submitted_at_s,
        finished_at_s=finished_at_s,
        **over,
    )


def test_figures_are_those_of_the_completed_jobs() -> None:
    jobs = [a_completed(f"j{i}", 10.0, 20.0 + 10 * i, isolated_time_s=20.0 * (i > 0), preemptions=i) for i in range(4)]
    result = metrics([*jobs, a_job("queued"), a_job("broke", state=JobState.FAILED, finished_at_s=15.0)])
    assert (result.jobs, result.completed, result.preemptions) == (6, 4, 6)
    assert (result.mean_jct_s, result.median_jct_s) == (25.0, 25.0)
    assert result.p90_jct_s == pytest.approx(37.0)
    assert (result.mean_rho, result.max_rho) == (1.5, 2.0)
    assert result.makespan_s == 50.0  # from the first submission, at 0, of whatever became of that job


def test_without_a_completed_job_there_is_nothing_to_average() -> None:
    for jobs in ([], [a_job()]):
        result = metrics(jobs)
        assert result.completed == 0
        assert {result.mean_jct_s, result.median_jct_s, result.p90_jct_s, result.makespan_s, result.max_rho} == {None}
        assert utilisation(jobs, a_cluster(fast=1)) == 0.0


def test_each_tier_has_its_own_figures() -> None:
    jobs = [a_completed("a", 0, 10, "gold"), a_completed("b", 0, 20, "free"), a_completed("c", 0, 40, "free")]
    result = metrics_by_tier(jobs)
    assert {tier: (each.jobs, each.mean_jct_s) for tier, each in result.items()} == {
        "free": (2, 30.0),
        "gold": (1, 10.0),
    }


def test_utilisation_counts_every_worker_of_a_gang() -> None:
    jobs = [
        a_completed("a", 0.0, 10.0, received_s={"fast": 4.0, "slow": 2.0}, scale_factor=2),
        a_completed("b", 5.0, 20.0, received_s={"slow": 8.0}),
    ]
    assert utilisation(jobs, a_cluster(fast=2, slow=2)) == pytest.approx((6 * 2 + 8) / (4 * 20))


def test_a_row_tells_what_became_of_a_job() -> None:
    row = row_of(a_completed("a", 5.0, 20.0, isolated_time_s=10.0, rounds_received={"fast": 3}, preemptions=2))
    assert (row.id, row.name, row.tier, row.kind, row.user) == ("a", "name of a", "gold", "mlp", "ann")
    assert (row.jct_s, row.rho, row.rounds, row.preemptions) == (15.0, 1.5, {"fast": 3}, 2)
    assert row_of(a_job()).jct_s is None and row_of(a_job()).rho is None
