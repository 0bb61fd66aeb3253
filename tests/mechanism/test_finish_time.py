"""T_iso of finish-time fairness is one number: the policy's, the accounting's, the simulator's."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.finish_time import finish_time_fairness, isolated_rate
from gavel.mechanism.cluster.placement import Layout
from gavel.mechanism.observing.accounting import isolated, isolated_rates
from gavel.policies import measures
from gavel.ports import ThroughputEstimate
from gavel.simulator.active import Active
from gavel.simulator.lean import simulate
from gavel.simulator.outcome import Scenario
from gavel.types import FloatArray, Job, JobSpec
from tests.builders import a_cluster, a_job, a_problem
from tests.conftest import IS_FULL
from tests.mechanism.world import World
from tests.simulator.test_lean import a_scenario, a_trace_job

TYPES = ("t0", "t1", "t2")


def estimate_of(rates: FloatArray):  # noqa: ANN201
    """The estimator's answer, as `accounting.isolated_rates` asks it."""

    def estimate(spec: JobSpec, types: tuple[str, ...]) -> tuple[ThroughputEstimate, ...]:
        steps_per_s = dict(zip(TYPES, rates.tolist(), strict=True))
        return tuple(
            ThroughputEstimate(
                kind=spec.kind, scale_factor=spec.scale_factor, accelerator_type=name, steps_per_s=steps_per_s[name],
                relative_error=0.0, source="measured",
            )
            for name in types
        )  # fmt: skip

    return estimate


def accounted(job: Job, steps: int, *, competing: int, layout: Layout, rates: FloatArray) -> Job:
    """The job after steps that a gang has reported, as the driver counts them."""
    ((own, whole),) = isolated_rates([job.spec], [competing], layout, estimate_of(rates))
    return isolated(job, steps, own_steps_per_s=own, whole_steps_per_s=whole)


def accounted_rate(rates: FloatArray, workers: list[int], size: int, competing: int) -> float:
    """T_iso as the accounting counts a job's 1000 steps."""
    layout = Layout(a_cluster(**dict(zip(TYPES, workers, strict=True))))
    job = a_job(spec={"scale_factor": size})
    after = accounted(job, 1000, competing=competing, layout=layout, rates=rates)
    return 1000 / after.isolated_time_s if after.isolated_time_s else 0.0


def test_a_job_that_can_use_one_type_of_three_has_that_type_alone() -> None:
    rates = np.array([6.0, 0.0, 0.0])
    assert accounted_rate(rates, [4, 4, 4], 1, competing=2) == pytest.approx(
        6.0
    )  # 2 workers of its type: one is enough
    assert accounted_rate(rates, [4, 4, 4], 1, competing=8) == pytest.approx(3.0)  # half a worker of it


@given(
    st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=3, max_size=3), min_size=1, max_size=6),
    st.lists(st.integers(1, 6), min_size=3, max_size=3),
    st.lists(st.sampled_from([1, 2, 4]), min_size=6, max_size=6),
)
@settings(max_examples=100 if IS_FULL else 30)
def test_the_policy_and_the_accounting_have_one_isolated_rate(
    table: list[list[float]], workers: list[int], sizes: list[int]
) -> None:
    problem = a_problem(table, workers, scale_factor=sizes[: len(table)])
    able = measures.runnable(problem)
    finish_s = measures.isolated_finish_s(problem, measures.even_share(problem))
    for row in np.flatnonzero(able).tolist():
        counted = accounted_rate(np.array(table[row]), workers, sizes[row], competing=int(able.sum()))
        assert problem.steps_remaining[row] / finish_s[row] == pytest.approx(counted)


def test_a_better_estimate_corrects_what_was_counted_before() -> None:
    layout = Layout(a_cluster(t0=4, t1=4, t2=4))
    guessed, measured = np.array([1.0, 1.0, 0.0]), np.array([4.0, 2.0, 0.0])
    job = accounted(a_job(), 100, competing=16, layout=layout, rates=guessed)
    job = accounted(job, 100, competing=8, layout=layout, rates=measured)
    assert job.isolated_time_s == pytest.approx(100 / 1.5 + 100 / 3.0)


def test_where_the_job_can_run_nowhere_nothing_is_counted() -> None:
    job = a_job(isolated_time_s=5.0, isolated_steps=10.0)
    for cluster in (a_cluster(), a_cluster(t0=1)):
        large = replace(job, spec=replace(job.spec, scale_factor=2))
        after = accounted(large, 10, competing=1, layout=Layout(cluster), rates=np.ones(3))
        assert after.isolated_time_s == 5.0


def test_jobs_that_no_round_may_serve_are_not_counted_in_n() -> None:
    world = World(cluster=a_cluster(fast=4))
    for _ in range(7):
        world.store.request_pause(world.submit(1000), is_paused=True, now_s=world.clock.now_s())
    first = world.submit(100)
    world.submit(100, after=(first,))
    world.submit(100, scale_factor=8)  # no type has as many workers
    world.run(lambda: world.is_done(first))
    assert world.job(first).isolated_time_s == pytest.approx(100 / 10, rel=0.02)  # as if alone


def test_the_simulator_counts_at_the_same_rate() -> None:
    only_fast = {("steep", 1, "fast"): 4.0, ("flat", 1, "fast"): 1.0, ("flat", 1, "slow"): 1.0}
    scenario: Scenario = replace(a_scenario(a_cluster(fast=2, slow=4), "max_min_fairness"), throughput=only_fast)
    outcome = simulate([a_trace_job(0, "steep", 400)], scenario)
    (row,) = outcome.rows
    assert row.rho == pytest.approx(1.0, rel=0.02)  # alone: it ends as if alone
    assert not hasattr(Active(1), "equal_rate")


@pytest.mark.parametrize(
    ("elapsed_s", "isolated_s", "rho"), [(10.0, 5.0, 2.0), (10.0, 0.0, None), (1e10, 5e-324, None)]
)
def test_rho_is_not_told_while_nothing_is_known(elapsed_s: float, isolated_s: float, rho: float | None) -> None:
    assert finish_time_fairness(elapsed_s, isolated_s) == rho


def test_a_slice_that_a_job_cannot_fill_is_not_given_to_it() -> None:
    rates, workers = np.array([[4.0, 2.0]]), np.array([3, 1])
    assert isolated_rate(rates, workers, np.array([1]), np.array([1.0])) == pytest.approx([3.5])
    assert isolated_rate(rates, workers, np.array([1]), np.array([0.1])) == pytest.approx([1.4])
