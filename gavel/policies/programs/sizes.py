"""Problems in which a policy shares out the sizes of elastic jobs, too."""

from dataclasses import replace

import numpy as np

from gavel.policies.programs.validate import check_problem
from gavel.types import AllocationProblem, FloatArray, IntArray


def over_sizes(problem: AllocationProblem) -> AllocationProblem:
    """Return `problem` in which each elastic job has a combination for every size that it can have.

    x_jc >= 0 is then the time of job j in configuration c, a type and a size n_c: sum_c x_jc <= 1 for each job, and
    sum_jc n_c x_jc <= N_g for each type g. Rigid jobs have one combination as before. Combinations are in the order of
    the jobs, then of sizes; `combination_workers` says which. The scale factor of an elastic job becomes the size in
    which it is fastest. Raises InvalidProblem for a problem without configurations, or with packed jobs.
    """
    choice = problem.configurations
    check_problem(problem)
    if choice is None:
        return replace(problem, combination_workers=problem.scale_factor.copy())
    of_elastic = {job: place for place, job in enumerate(choice.jobs.tolist())}
    rows = [_of_job(problem, job, of_elastic.get(job)) for job in range(len(problem.job_ids))]
    rates = np.zeros((sum(len(sizes) for sizes, _ in rows), 2, len(problem.accelerator_types)))
    rates[:, 0] = np.concatenate([speeds for _, speeds in rows]) if rows else rates[:, 0]
    return replace(
        problem,
        combinations=tuple((job,) for job, (sizes, _) in enumerate(rows) for _ in sizes),
        throughput_steps_per_s=rates,
        combination_workers=np.array([size for sizes, _ in rows for size in sizes], dtype=np.int64),
        scale_factor=_fastest_sizes(problem),
    )


def _of_job(problem: AllocationProblem, job: int, place: int | None) -> tuple[list[int], FloatArray]:
    """The sizes of a job, and its speeds in each on each type, (sizes, m); one that can run nowhere keeps one size."""
    choice, size = problem.configurations, int(problem.scale_factor[job])
    if place is None or choice is None:
        return [size], problem.throughput_steps_per_s[job, 0][None]
    possible = choice.steps_per_s[place].any(axis=0)
    if not possible.any():
        return [size], np.zeros((1, len(problem.accelerator_types)))
    return choice.sizes[possible].tolist(), choice.steps_per_s[place][:, possible].T


def _fastest_sizes(problem: AllocationProblem) -> IntArray:
    """The scale factors, (n,): of an elastic job the size in which it is fastest, on a type that holds it."""
    choice, sizes = problem.configurations, problem.scale_factor.copy()
    if choice is None:
        return sizes
    fits = choice.sizes <= problem.capacity_workers[:, None]
    most = (choice.steps_per_s * fits).max(axis=1, initial=0.0)
    sizes[choice.jobs] = np.where(most.any(axis=1), choice.sizes[most.argmax(axis=1)], sizes[choice.jobs])
    return sizes
