"""AlloX against every assignment and order; Gandiva's packing against closed forms."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from gavel.policies.allox import AlloX, _matched, _places
from gavel.policies.equal_share import EqualShare
from gavel.policies.gandiva import Gandiva
from gavel.policies.programs.pairs import with_pairs
from gavel.types import AllocationProblem
from tests.builders import a_problem
from tests.policies.instances import seeds


def first_of_each_queue(problem: AllocationProblem) -> set[tuple[int, int]]:
    """(job, type) of the first job on each worker when the sum of completion times is least; one worker a type."""
    time_s = problem.steps_remaining[:, None] / problem.throughput_steps_per_s[:, 0]
    jobs, types = time_s.shape

    def queues(assigned: tuple[int, ...]) -> list[list[int]]:
        own = [[job for job in range(jobs) if assigned[job] == column] for column in range(types)]
        return [sorted(queue, key=lambda job, column=column: time_s[job, column]) for column, queue in enumerate(own)]

    def total_s(assigned: tuple[int, ...]) -> float:
        return sum(np.cumsum(time_s[queue, column]).sum() for column, queue in enumerate(queues(assigned)))

    best = min(product(range(types), repeat=jobs), key=total_s)
    return {(queue[0], column) for column, queue in enumerate(queues(best)) if queue}


@pytest.mark.parametrize("seed", seeds(15, 100))
def test_allox_starts_the_first_job_of_each_queue_of_the_least_total_completion_time(seed: int) -> None:
    draw = np.random.default_rng(seed)
    problem = a_problem(draw.uniform(1, 9, (6, 2)), [1, 1], steps_remaining=draw.uniform(1, 100, 6))
    started = np.argwhere(AlloX().allocate(problem).time_fraction == 1.0)
    assert {(int(job), int(column)) for job, column in started} == first_of_each_queue(problem)


@pytest.mark.parametrize("seed", seeds(8, 100))
def test_allox_finds_the_least_total_that_an_assignment_of_single_places_finds(seed: int) -> None:
    """The same matching with a column for every place of every worker, by the Hungarian method."""
    draw = np.random.default_rng(seed)
    time_s, workers = draw.uniform(1, 9, (12, 2)) * draw.uniform(1, 50, (12, 1)), np.asarray([2, 3])
    place_type, place_k = _places(workers, 12)
    ours = time_s[:, place_type] * place_k
    column = _matched(ours, workers[place_type], 10.0)
    single = np.repeat(ours, workers[place_type], axis=1)
    assert ours[np.arange(12), column].sum() == pytest.approx(single[linear_sum_assignment(single)].sum())


def test_allox_keeps_every_worker_of_a_type_busy_before_any_queue_grows() -> None:
    problem = a_problem([[1.0]] * 7, [3], steps_remaining=[10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0])
    assert AlloX().allocate(problem).time_fraction[:, 0] == pytest.approx([1, 1, 1, 0, 0, 0, 0])


def test_allox_puts_larger_gangs_where_workers_are_left() -> None:
    problem = a_problem([[9.0, 1.0], [5.0, 1.0], [5.0, 1.0]], [3, 2], scale_factor=[1, 2, 2])
    expected = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    assert AlloX().allocate(problem).time_fraction == pytest.approx(np.asarray(expected))


def contended() -> AllocationProblem:
    problem = a_problem([[10.0], [10.0], [10.0], [10.0]], [2])
    rates = {("j0", "j1"): [[8.0], [8.0]], ("j1", "j2"): [[9.0], [9.0]], ("j0", "j3"): [[4.0], [4.0]]}
    return with_pairs(problem, rates)


def test_gandiva_packs_the_best_pairs_that_pay_and_splits_the_cluster_equally_over_what_results() -> None:
    allocation = Gandiva().allocate(contended())
    running = {jobs: row[0] for jobs, row in zip(allocation.combinations, allocation.time_fraction, strict=True)}
    assert running[("j1", "j2")] == pytest.approx(2 / 3)
    assert running[("j0",)] == running[("j3",)] == pytest.approx(2 / 3)
    assert running[("j0", "j1")] == running[("j0", "j3")] == 0.0


def test_gandiva_packs_nobody_while_there_are_enough_workers() -> None:
    problem = with_pairs(a_problem([[10.0], [10.0]], [2]), {("j0", "j1"): [[9.0], [9.0]]})
    assert Gandiva().allocate(problem).time_fraction[:, 0] == pytest.approx([1.0, 1.0, 0.0])


def test_the_isolated_split_gives_everybody_the_same_part_of_every_type() -> None:
    problem = a_problem([[1.0, 9.0], [5.0, 1.0], [1.0, 1.0]], [3, 1], scale_factor=[1, 1, 2])
    expected = [[3 / 4, 1 / 4], [3 / 4, 1 / 4], [1 / 2, 0.0]]  # of 1 and 1/3: rows of single gangs are scaled to 1
    assert EqualShare().allocate(problem).time_fraction == pytest.approx(np.asarray(expected))
