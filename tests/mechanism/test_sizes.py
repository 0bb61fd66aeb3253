"""The sizes that are chosen for a round: a pure function of jobs, cluster and estimates."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.mechanism.cluster.placement import Layout
from gavel.mechanism.observing.accounting import isolated_rates
from gavel.mechanism.planning.configurations import SpeedInputs, configurations_of
from gavel.mechanism.planning.problem import Matrix
from gavel.mechanism.planning.sizes import in_their_sizes
from gavel.ports import ThroughputEstimate, ThroughputMatrix
from gavel.types import AcceleratorType, InfeasibleType, Job, JobSpec
from tests.builders import a_cluster, a_job
from tests.mechanism.planning import size_inputs

SIZES = (1, 2, 4, 8)


def all_measured(specs: Sequence[JobSpec], types: Sequence[AcceleratorType]) -> ThroughputMatrix:
    """Speeds that grow with the size by less and less; everything was measured."""
    rate = np.array([[10.0 * spec.scale_factor**0.8] * len(types) for spec in specs]).reshape(len(specs), len(types))
    return ThroughputMatrix(
        steps_per_s=rate, relative_error=np.full_like(rate, 0.05), is_worth_measuring=np.zeros(rate.shape, dtype=bool)
    )


def measured_up_to(largest: int) -> Matrix:
    """The same, but what is larger was not measured."""

    def matrix(specs: Sequence[JobSpec], types: Sequence[AcceleratorType]) -> ThroughputMatrix:
        whole = all_measured(specs, types)
        is_larger = np.array([[spec.scale_factor > largest] * len(types) for spec in specs], dtype=bool)
        return ThroughputMatrix(
            steps_per_s=whole.steps_per_s,
            relative_error=np.where(is_larger, 0.5, 0.05),
            is_worth_measuring=is_larger,
        )

    return matrix


def chosen(jobs: Sequence[Job], workers: int, matrix: Matrix = all_measured, **over: object) -> list[int]:
    sized = in_their_sizes(jobs, size_inputs(matrix, a_cluster(fast=workers), **over)).jobs
    assert [job.id for job in sized] == [job.id for job in jobs]
    return [job.spec.scale_factor for job in sized]


def elastic(job_id: str, steps: int = 100_000, sizes: tuple[int, ...] = SIZES) -> Job:
    return a_job(job_id, spec={"sizes": sizes, "global_batch": 64, "total_steps": steps, "scale_factor": sizes[0]})


@given(
    st.lists(st.tuples(st.sets(st.sampled_from(SIZES), max_size=4), st.integers(1, 10**6)), max_size=12),
    st.integers(1, 24),
)
def test_every_job_has_one_of_its_sizes_and_the_gangs_that_run_keep_theirs(
    jobs: list[tuple[set[int], int]], workers: int
) -> None:
    made = [
        elastic(f"j{index}", steps, tuple(sorted(sizes))) if sizes else a_job(f"j{index}", spec={"scale_factor": 2})
        for index, (sizes, steps) in enumerate(jobs)
    ]
    fits = [job for job in made if job.spec.is_elastic and max(job.spec.sizes) <= workers]
    held = {job.id: ("fast", max(job.spec.sizes)) for job in fits[:1]}
    sizes = chosen(made, workers, held=held, staying=set(held))
    assert all(size in job.spec.possible_sizes for job, size in zip(made, sizes, strict=True))
    assert all(size == held[job.id][1] for job, size in zip(made, sizes, strict=True) if job.id in held)


def test_jobs_share_what_there_is_so_that_all_of_them_run() -> None:
    sizes = chosen([elastic(f"j{index}") for index in range(4)], 8)
    assert sum(sizes) <= 8 and min(sizes) >= 1 and max(sizes) <= 4
    assert chosen([elastic("j")], 8) == [8]


def test_a_larger_size_is_given_only_twice_beyond_what_was_measured() -> None:
    assert [chosen([elastic("j")], 8, matrix=measured_up_to(most)) for most in (0, 1, 2, 4)] == [[1], [2], [4], [8]]


def test_a_restart_has_to_pay_within_what_is_left_of_the_job() -> None:
    held = {"j": ("fast", 1)}
    assert chosen([elastic("j", 100_000)], 8, held=held) == [8]
    assert chosen([elastic("j", 50)], 8, held=held) == [1]
    assert chosen([elastic("j", 100_000)], 8, held=held, restart_s={"mlp": 10_000.0}) == [1]


def test_a_size_in_which_the_job_does_not_fit_is_left_out() -> None:
    mark = InfeasibleType(
        user="ann", kind="mlp", scale_factor=8, accelerator_type="fast", evidence="e", job_id="x", at_s=0.0
    )
    assert chosen([elastic("j")], 8, marks=(mark,)) == [4]


def test_a_job_that_is_given_nothing_would_start_in_its_smallest_possible_size() -> None:
    rigid = [a_job(f"r{index}", spec={"weight": 1000.0}) for index in range(4)]
    assert chosen([*rigid, elastic("j", sizes=(2, 4))], 4) == [1, 1, 1, 1, 2]
    assert chosen([elastic("j", sizes=(8,))], 4) == [8]


@pytest.mark.parametrize("workers", [0, 1])
def test_without_workers_or_jobs_nothing_is_chosen(workers: int) -> None:
    assert chosen([], workers) == []
    assert chosen([elastic("j")], workers) == [1]


def test_the_isolated_speed_is_over_the_sizes_that_a_job_may_be_given_now() -> None:
    """And the accounting counts by it, whatever the size in force."""
    jobs, layout = [a_job("r"), elastic("j")], Layout(a_cluster(fast=8))
    for most, largest in ((0, 1), (2, 4), (8, 8)):
        speeds = SpeedInputs(
            feasibility=layout.feasibility, matrix=measured_up_to(most), marks=(), of_own_kind=lambda job: job
        )
        choice = configurations_of(jobs, speeds)
        assert choice is not None and choice.jobs.tolist() == [1] and choice.sizes.tolist() == list(SIZES)
        assert (choice.steps_per_s[0, 0] > 0).tolist() == [size <= largest for size in SIZES]
        specs = [job.spec for job in jobs]
        (_, whole) = isolated_rates(specs, [2, 2], layout, estimated, choice)[1]
        assert whole == pytest.approx(10.0 * largest**0.8)
    assert configurations_of(jobs[:1], speeds) is None


def estimated(spec: JobSpec, types: Sequence[AcceleratorType]) -> tuple[ThroughputEstimate, ...]:
    rates = all_measured([spec], types).steps_per_s[0].tolist()
    return tuple(
        ThroughputEstimate(
            kind=spec.kind,
            scale_factor=spec.scale_factor,
            accelerator_type=name,
            steps_per_s=rate,
            relative_error=0.0,
            source="measured",
        )
        for name, rate in zip(types, rates, strict=True)
    )


def test_a_gang_on_the_second_type_grows_only_where_that_pays_for_a_restart() -> None:
    """It fits on no worker of the first type; two workers make 1.74 times as many steps as one."""
    marks = tuple(
        InfeasibleType(
            user="ann", kind="mlp", scale_factor=size, accelerator_type="fast", evidence="e", job_id="x", at_s=0.0
        )
        for size in (1, 2)
    )
    for restart_s, expected in ((400.0, 2), (500.0, 1)):
        over = {"marks": marks, "held": {"j": ("slow", 1)}, "restart_s": {"": restart_s}}
        inputs = size_inputs(all_measured, a_cluster(fast=2, slow=2), **over)
        assert in_their_sizes([elastic("j", sizes=(1, 2))], inputs).jobs[0].spec.scale_factor == expected
