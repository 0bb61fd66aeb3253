"""Jobs whose submission does not say how long they are: driver and lean simulation plan the same rounds for them."""

from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gavel.errors import InvalidRequest
from gavel.simulator.lean import simulate
from tests.builders import a_spec
from tests.simulator.test_lean import RUNNER, a_cluster_of_nodes, a_scenario, a_trace_job, assert_same, trace_jobs
from tests.simulator.test_simulation import FULL
from workloads.traces.job import TraceJob

POLICIES = ["shortest_job_first", "finish_time_fairness", "max_min_fairness?water_filling=false"]


def unsaid(job: TraceJob) -> TraceJob:
    """The same job, whose program says how long it is once it runs."""
    return replace(job, spec=replace(job.spec, total_steps=None), program_steps=job.spec.total_steps)


@pytest.mark.small("max_min_fairness?water_filling=false")
@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=40 if FULL else 5, phases=(Phase.explicit, Phase.generate))
@given(drawn=trace_jobs, states_steps=st.lists(st.booleans(), min_size=9, max_size=9))
def test_driver_and_lean_simulation_agree_on_jobs_of_unknown_length(
    policy: str, drawn: list[tuple[str, int, int, int]], states_steps: list[bool]
) -> None:
    jobs = [a_trace_job(i, kind, steps, float(at_s), size) for i, (kind, steps, at_s, size) in enumerate(drawn)]
    mixed = [job if states else unsaid(job) for job, states in zip(jobs, states_steps, strict=False)]
    mixed = [replace(job, spec=replace(job.spec, name=f"job-{i}")) for i, job in enumerate(_in_order(mixed))]
    assert_same(mixed, a_scenario(a_cluster_of_nodes(fast=4, slow=4), policy))


def _in_order(jobs: list[TraceJob]) -> list[TraceJob]:
    return sorted(jobs, key=lambda job: job.submitted_at_s)


def test_a_job_that_says_its_length_only_when_it_runs_is_not_taken_for_short() -> None:
    """1. Two jobs of one worker; the one of 10 steps says so, the other has a kind of which nothing is known.

    2. Shortest first serves the one that is known to be short.
    """
    jobs = [unsaid(a_trace_job(0, "steep", 5)), a_trace_job(1, "flat", 10)]
    result = simulate(jobs, a_scenario(a_cluster_of_nodes(fast=1), "shortest_job_first"), runner=RUNNER)
    ended = {row.name: row.finished_at_s or 0.0 for row in result.rows}
    assert ended["job-1"] < ended["job-0"]


def test_a_simulated_job_needs_a_length_from_somebody() -> None:
    job = TraceJob(submitted_at_s=0.0, spec=a_spec(name="endless", total_steps=None))
    with pytest.raises(InvalidRequest, match="total_steps: job endless: say how many steps"):
        _ = job.total_steps


def test_a_job_may_end_before_or_after_the_length_that_policies_see() -> None:
    """1. Shortest first on one worker: the job that states 10 steps makes 200, the one that states 100 makes 20.

    2. The one that seems short goes first, and each ends where it really does.
    """
    long, short = a_trace_job(0, "steep", 10), a_trace_job(1, "steep", 100)
    jobs = [replace(long, ends_at_step=200), replace(short, ends_at_step=20)]
    result = simulate(jobs, a_scenario(a_cluster_of_nodes(fast=1), "shortest_job_first"), runner=RUNNER)
    ended = {row.name: row.finished_at_s or 0.0 for row in result.rows}
    rate = 4.0 * 1.00371
    assert ended["job-0"] == pytest.approx(200 / rate) and ended["job-1"] == pytest.approx(220 / rate)
