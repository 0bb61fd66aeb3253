"""Policies that serve jobs in an order, against serving one job at a time by brute force."""

import numpy as np
import pytest

from gavel.policies import measures, registry
from gavel.policies.fifo import Fifo
from gavel.policies.least_attained_service import LeastAttainedService
from gavel.policies.least_remaining_work import LeastRemainingWork
from gavel.policies.shortest_job_first import ShortestJobFirst
from gavel.policies.smallest_gang_first import SmallestGangFirst
from tests.builders import a_problem
from tests.policies.instances import an_instance, idle_pairs, seeds, workers_held
from tests.policies.oracles import served_in_order


def test_the_earliest_job_runs_on_its_fastest_type_and_the_next_on_the_best_that_is_left() -> None:
    problem = a_problem([[1.0, 3.0], [1.0, 2.0], [5.0, 1.0]], [1, 1])
    assert Fifo().allocate(problem).time_fraction == pytest.approx(np.asarray([[0, 1], [1, 0], [0, 0]]), abs=1e-7)


def test_the_shortest_job_is_served_first_whenever_it_arrived() -> None:
    problem = a_problem([[2.0], [2.0], [4.0]], [1], steps_remaining=[100.0, 90.0, 120.0])
    assert ShortestJobFirst().allocate(problem).time_fraction[:, 0] == pytest.approx([0.0, 0.0, 1.0])


def test_a_gang_goes_first_only_if_all_its_workers_together_have_less_to_do() -> None:
    problem = a_problem([[1.0], [1.0]], [2], scale_factor=[1, 2], steps_remaining=[100.0, 60.0])
    assert ShortestJobFirst().allocate(problem).time_fraction[:, 0] == pytest.approx([0.0, 1.0])
    assert LeastRemainingWork().allocate(problem).time_fraction[:, 0] == pytest.approx([1.0, 0.5])


def test_the_set_of_tasks_with_the_least_left_together_goes_first() -> None:
    users = ("ann", "bob", "bob", "bob", "ann")
    problem = a_problem([[1.0]] * 5, [2], users=users, steps_remaining=[50.0, 40.0, 40.0, 40.0, 50.0])
    answers = [LeastRemainingWork(work_of=each).allocate(problem) for each in ("job", "user")]
    assert [each.time_fraction[:, 0].tolist() for each in answers] == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]


def test_the_smallest_gang_goes_first_whatever_it_has_to_do() -> None:
    problem = a_problem([[1.0], [1.0], [1.0]], [2], scale_factor=[2, 1, 1], steps_remaining=[1.0, 90.0, 80.0])
    assert SmallestGangFirst().allocate(problem).time_fraction[:, 0] == pytest.approx([0.0, 1.0, 1.0])


def test_a_job_goes_to_the_back_queue_at_the_threshold_and_each_queue_is_first_in_first_out() -> None:
    held_s = np.asarray([3600.0, 3599.0, 10.0])
    problem = a_problem([[1.0], [1.0], [1.0]], [1], attained_service_s=held_s)
    expected = {"two": [0.0, 1.0, 0.0], "continuous": [0.0, 0.0, 1.0]}
    for queues, time in expected.items():
        policy = registry.load(f"least_attained_service?queues={queues}")
        assert policy.allocate(problem).time_fraction[:, 0] == pytest.approx(time)
    later = LeastAttainedService(threshold_h=2.0).allocate(problem)
    assert later.time_fraction[:, 0] == pytest.approx([1.0, 0.0, 0.0])


def test_the_roundings_of_what_was_held_do_not_decide_who_goes_first() -> None:
    problem = a_problem([[1.0], [1.0]], [1], attained_service_s=np.asarray([10.000000000000002, 10.0]))
    for spec in ("least_attained_service?queues=continuous", "weighted_priority?attained_service=-1"):
        assert registry.load(spec).allocate(problem).time_fraction[:, 0] == pytest.approx([1.0, 0.0])


def test_backfill_serves_a_small_job_past_a_gang_that_must_wait() -> None:
    problem = a_problem([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [2, 1], scale_factor=[1, 2, 1])
    with_backfill, without = (Fifo(backfill=each).allocate(problem) for each in (True, False))
    assert with_backfill.time_fraction[2].sum() == pytest.approx(0.0, abs=1e-6)  # the gang takes all that is left
    assert with_backfill.time_fraction[1, 0] == pytest.approx(1.0)
    assert without.time_fraction[1, 0] == pytest.approx(1.0)


def test_without_backfill_nobody_is_served_behind_the_first_job_that_is_held_up() -> None:
    problem = a_problem([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [1, 1])
    with_backfill, without = (Fifo(backfill=each).allocate(problem) for each in (True, False))
    assert workers_held(problem, with_backfill) == pytest.approx([1.0, 1.0])
    assert workers_held(problem, without) == pytest.approx([1.0, 0.0], abs=1e-6)


def test_a_job_that_can_run_nowhere_holds_nobody_up() -> None:
    problem = a_problem([[0.0], [1.0]], [1])
    assert Fifo(backfill=False).allocate(problem).time_fraction[:, 0] == pytest.approx([0.0, 1.0])


@pytest.mark.parametrize("seed", seeds(15, 200))
def test_each_job_in_turn_gets_the_most_it_can(seed: int) -> None:
    problem = an_instance(seed, jobs=2 + seed % 8, types=2 + seed % 3)
    orders = {
        Fifo(): np.arange(len(problem.job_ids)),
        ShortestJobFirst(): np.argsort(measures.remaining_time_s(problem), kind="stable"),
        LeastRemainingWork(): np.argsort(measures.remaining_time_s(problem) * problem.scale_factor, kind="stable"),
        SmallestGangFirst(): np.argsort(problem.scale_factor, kind="stable"),
        LeastAttainedService(): np.argsort(problem.attained_service_s >= 3600.0, kind="stable"),
    }
    for policy, order in orders.items():
        allocation = policy.allocate(problem)
        got = measures.service(problem, allocation.time_fraction)
        assert got == pytest.approx(served_in_order(problem, order), abs=1e-4), policy.name
        assert not idle_pairs(problem, allocation).any()
