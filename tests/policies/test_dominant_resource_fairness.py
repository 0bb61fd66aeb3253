"""Fair shares of resources against the example of the paper, max-min fairness and an independent linear program."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

from gavel.errors import InvalidProblem
from gavel.policies import measures
from gavel.policies._fair_shares import FairShares
from gavel.policies.dominant_resource_fairness import DominantResourceFairness
from gavel.policies.fair_by_cores import FairByCores
from gavel.policies.fair_by_memory import FairByMemory
from gavel.policies.max_min_fairness import MaxMinFairness
from gavel.types import AllocationProblem
from tests.builders import a_problem
from tests.policies.instances import an_instance, seeds
from tests.policies.oracles import Oracle


def test_the_paper_s_users_run_three_tasks_of_one_kind_and_two_of_the_other() -> None:
    """Ghodsi et al., section 4: 9 CPUs and 18 GB; tasks of 1 CPU, 4 GB and of 3 CPUs, 1 GB."""
    problem = a_problem(
        [[1.0]] * 10,
        [100],
        cpu_cores=[1.0] * 5 + [3.0] * 5,
        memory_bytes=[4.0] * 5 + [1.0] * 5,
        cluster_cpu_cores=9.0,
        cluster_memory_bytes=18.0,
    )
    time = DominantResourceFairness().allocate(problem).time_fraction[:, 0]
    assert (time[:5].sum(), time[5:].sum()) == pytest.approx((3.0, 2.0))
    assert time[:5] == pytest.approx([0.6] * 5)


@pytest.mark.parametrize("seed", seeds(6, 60))
def test_where_accelerators_are_all_that_is_scarce_it_is_max_min_fairness(seed: int) -> None:
    problem = an_instance(seed, jobs=5)
    policies = (MaxMinFairness(), DominantResourceFairness(), DominantResourceFairness(share="accelerators"))
    services = [measures.service(problem, policy.allocate(problem).time_fraction) for policy in policies]
    assert services[1] == pytest.approx(services[0], abs=1e-5)
    assert services[2] == pytest.approx(services[0], abs=1e-5)


def test_the_naive_shares_favour_jobs_that_need_little_of_the_resource_that_counts() -> None:
    needs = {"memory_bytes": [30.0, 10.0], "cpu_cores": [1.0, 4.0]}
    problem = a_problem([[1.0], [1.0]], [1], **needs, cluster_memory_bytes=100.0, cluster_cpu_cores=8.0)
    by_accelerator = DominantResourceFairness(share="accelerators")
    expected = {FairByMemory(): [0.25, 0.75], FairByCores(): [0.8, 0.2], by_accelerator: [0.5, 0.5]}
    for policy, time in expected.items():
        assert policy.allocate(problem).time_fraction[:, 0] == pytest.approx(time), policy.name


@pytest.mark.parametrize("policy", [FairByMemory, FairByCores])
def test_a_job_that_states_no_need_counts_with_its_part_of_the_workers(policy: type[FairShares]) -> None:
    problem = a_problem([[1.0], [1.0]], [1], cluster_cpu_cores=8.0)
    assert policy().allocate(problem).time_fraction[:, 0] == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("policy", [DominantResourceFairness, FairByMemory, FairByCores])
def test_among_users_it_does_not_matter_how_many_alike_jobs_a_user_has(policy: type[FairShares]) -> None:
    """ann has one job and bob four, all of one core and one byte; each of the two has one of the two workers."""
    problem = a_problem(
        [[1.0]] * 5,
        [2],
        users=("ann", "bob", "bob", "bob", "bob"),
        cpu_cores=[1.0] * 5,
        memory_bytes=[1.0] * 5,
        cluster_cpu_cores=2.0,
        cluster_memory_bytes=2.0,
    )
    assert policy(among="users").allocate(problem).time_fraction[:, 0] == pytest.approx([1.0, *[0.25] * 4])
    assert policy().allocate(problem).time_fraction[:, 0] == pytest.approx([0.4] * 5)


def test_a_job_too_large_for_the_cluster_gets_nothing_and_is_told_so() -> None:
    problem = a_problem([[1.0], [1.0]], [2], memory_bytes=[200.0, 10.0], cluster_memory_bytes=100.0)
    allocation = DominantResourceFairness().allocate(problem)
    assert allocation.time_fraction[:, 0] == pytest.approx([0.0, 1.0])
    assert allocation.notes == (("j0", "needs more CPU cores or memory than the cluster has"),)


@pytest.mark.parametrize(
    "policy",
    [
        DominantResourceFairness(),
        DominantResourceFairness(share="accelerators"),
        FairByMemory(),
        FairByCores(among="users"),
    ],
    ids=repr,
)
def test_prices_and_program_find_the_same_shares_whether_cores_and_memory_are_scarce_or_not(policy: FairShares) -> None:
    for seed in seeds(8, 150):
        for plenty in (1.0, 2.0, 100.0):
            scarce = with_demands(seed)
            problem = replace(scarce, cluster_cpu_cores=10.0 * plenty, cluster_memory_bytes=60.0 * plenty)
            values = [policy.objective(problem, each) for each in (policy.allocate(problem), policy.program(problem))]
            assert values[0] == pytest.approx(values[1], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("policy", [DominantResourceFairness(), FairByCores(), FairByMemory(among="users")], ids=repr)
def test_on_one_type_all_rise_together_as_far_as_the_program_says(policy: FairShares) -> None:
    for seed in seeds(30, 1500):
        problem = on_one_type(seed)
        allocation = policy.allocate(problem)
        values = [policy.objective(problem, each) for each in (allocation, policy.program(problem))]
        assert values[0] == pytest.approx(values[1], rel=1e-4, abs=1e-6)
        is_idle = not measures.runnable(problem).any()
        assert is_idle or allocation.solver in ("prices", "progressive filling")
        busy = measures.time_of_jobs(problem, allocation.time_fraction)
        assert (measures.cpu_and_memory_share(problem) @ busy <= 1 + 1e-9).all()


def test_demands_and_totals_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidProblem, match=r"cpu_cores\[j1\]"):
        DominantResourceFairness().allocate(a_problem([[1.0], [1.0]], [1], cpu_cores=[1.0, -1.0]))
    with pytest.raises(InvalidProblem, match="cluster_memory_bytes"):
        DominantResourceFairness().allocate(a_problem([[1.0]], [1], cluster_memory_bytes=0.0))


def with_demands(seed: int) -> AllocationProblem:
    plain, draw = an_instance(seed, jobs=6), np.random.default_rng(seed)
    return a_problem(
        plain.throughput_steps_per_s[:, 0],
        plain.capacity_workers,
        scale_factor=plain.scale_factor,
        weight=plain.weight,
        cpu_cores=draw.uniform(0, 8, 6),
        memory_bytes=draw.uniform(0, 40, 6),
        cluster_cpu_cores=10.0,
        cluster_memory_bytes=60.0,
    )


def on_one_type(seed: int) -> AllocationProblem:
    """None to 12 jobs of three users, one type without workers; some jobs state no cores or are too large."""
    draw = np.random.default_rng(seed)
    jobs = int(draw.integers(0, 13))
    rates = draw.uniform(0.1, 10, (jobs, 2)) * (draw.random((jobs, 1)) < 0.9)
    return a_problem(
        rates,
        [int(draw.integers(1, 9)), 0] if draw.random() < 0.5 else [0, int(draw.integers(1, 9))],
        scale_factor=draw.choice([1, 1, 1, 2, 4], jobs),
        weight=draw.choice([1.0, 1.0, 2.0, 0.5], jobs),
        users=tuple(draw.choice(["ann", "bob", "eve"], jobs).tolist()),
        cpu_cores=draw.integers(0, 9, jobs) * 1.0,
        memory_bytes=draw.choice([0.0, 1.0, 8.0, 64.0], jobs),
        cluster_cpu_cores=float(draw.choice([8.0, 16.0, 100.0])),
        cluster_memory_bytes=float(draw.choice([16.0, 60.0, 1000.0])),
    )


@pytest.mark.parametrize("seed", seeds(12, 200))
def test_the_least_share_is_what_an_independent_linear_program_finds(seed: int) -> None:
    problem = with_demands(seed)
    oracle, size = Oracle(problem), 6 * 3
    able = oracle.equal > 0
    held = np.maximum(problem.scale_factor / oracle.workers.sum(), problem.cpu_cores / 10)
    held = np.maximum(held, problem.memory_bytes / 60) / problem.scale_factor / problem.weight
    lifted = np.hstack([-oracle.service * held[:, None], np.ones((6, 1))])[able]
    rows = [oracle.time, oracle.held, problem.cpu_cores @ oracle.time / 10, problem.memory_bytes @ oracle.time / 60]
    limits = np.hstack([np.vstack(rows), np.zeros((11, 1))])
    answer = linprog(
        np.append(np.zeros(size), -1.0),
        A_ub=np.vstack([limits, lifted]),
        b_ub=np.concatenate([np.ones(6), oracle.workers, [1.0, 1.0], np.zeros(able.sum())]),
        bounds=(0, None),
    )
    allocation = DominantResourceFairness().allocate(problem)
    assert DominantResourceFairness().objective(problem, allocation)[0] == pytest.approx(-answer.fun, rel=1e-5)
    busy = allocation.time_fraction.sum(axis=1)
    assert problem.cpu_cores @ busy <= 10 + 1e-5
    assert problem.memory_bytes @ busy <= 60 + 1e-5
