"""Checks any policy on small problems: `check_policy(policy)` raises AssertionError, which names the failed check.

For anybody's policy, in this folder or not. A policy also says what it optimises (`objective`), so that answers can be
compared where the time fractions themselves are not unique.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, Protocol, get_args

import numpy as np

from gavel.errors import InvalidProblem
from gavel.policies import measures
from gavel.policies._reads import fields_read
from gavel.policies.equal_share import EqualShare
from gavel.policies.programs.pairs import with_pairs
from gavel.policies.programs.program import MOST_VIOLATION, Program, Solver, cvxpy
from gavel.ports import Policy
from gavel.types import Allocation, AllocationProblem, FloatArray, Tier

TOLERANCE = 1e-5

PROMISES: Mapping[str, str] = {
    "sharing_incentive": "the worst-off job, as the objective counts it, is never worse off than with the equal split",
    "pareto": "no job could be faster without another being slower",
    "monotone_in_capacity": "one more worker never makes the objective worse",
    "strategy_proof": "no job is ever faster for stating a wrong throughput",
}
"""What a policy may promise besides (name -> meaning); each promise is checked where it is made."""


_PER_JOB = ("weight", "steps_remaining", "age_s", "attained_service_s", "isolated_time_s")


class MeasuredPolicy(Policy, Protocol):
    """A policy that says what it optimises."""

    @property
    def order_matters(self) -> bool:
        """Return whether the order of arrival may change the objective."""

    @property
    def promises(self) -> frozenset[str]:
        """Return those of PROMISES that the policy keeps on every problem."""

    def objective(self, problem: AllocationProblem, allocation: Allocation) -> FloatArray:
        """Return what the policy maximises, lexicographically: the first entry first."""


def check_policy(policy: MeasuredPolicy) -> None:
    """Run every check of CHECKS against `policy`."""
    for check in CHECKS:
        try:
            check(policy)
        except Exception as error:
            error.add_note(f"while checking {policy.name}: {check.__name__}")
            raise


def a_small_problem(seed: int = 0, *, jobs: int = 6, types: int = 3) -> AllocationProblem:
    """Return jobs of different kinds, weights, gangs and tiers on a contended cluster, the same for the same seed."""
    draw = np.random.default_rng(seed)
    rates = np.zeros((jobs, 2, types))
    rates[:, 0] = draw.uniform(0.3, 3.0, (jobs, types)) * draw.uniform(1.0, 50.0, (jobs, 1))
    return AllocationProblem(
        now_s=0.0,
        round_duration_s=10.0,
        job_ids=tuple(f"job-{row}" for row in range(jobs)),
        combinations=tuple((row,) for row in range(jobs)),
        accelerator_types=tuple(f"type-{column}" for column in range(types)),
        throughput_steps_per_s=rates,
        capacity_workers=np.full(types, 2, dtype=np.int64),
        price_usd_per_hour=np.ones(types),
        scale_factor=draw.choice([1, 1, 2], jobs).astype(np.int64),
        weight=draw.choice([1.0, 2.0], jobs),
        steps_remaining=draw.uniform(1e3, 1e5, jobs),
        age_s=np.sort(draw.uniform(0.0, 900.0, jobs))[::-1].copy(),
        attained_service_s=np.zeros(jobs),
        isolated_time_s=draw.uniform(0.0, 300.0, jobs),
        deadline_at_s=np.full(jobs, np.inf),
        tiers=(Tier(name="gold", weight=2.0, guarantee=0.25), Tier(name="bronze")),
        tier_of_job=np.arange(jobs, dtype=np.int64) % 2,
        users=tuple(("ann", "bob", "cem")[row % 3] for row in range(jobs)),
    )


def relabelled(problem: AllocationProblem, jobs: list[int], types: list[int]) -> AllocationProblem:
    """Return the problem with its jobs and types in another order and under other names; single jobs only."""
    return replace(
        problem,
        job_ids=tuple(f"renamed-{row}" for row in range(len(jobs))),
        accelerator_types=tuple(f"other-{column}" for column in range(len(types))),
        throughput_steps_per_s=problem.throughput_steps_per_s[jobs][:, :, types],
        capacity_workers=problem.capacity_workers[types],
        price_usd_per_hour=problem.price_usd_per_hour[types],
        deadline_at_s=problem.deadline_at_s[jobs],
        tier_of_job=problem.tier_of_job[jobs],
        users=tuple(problem.users[row] for row in jobs),
        **{name: getattr(problem, name)[jobs] for name in ("scale_factor", *_PER_JOB)},
    )


def _gives_a_valid_allocation(policy: MeasuredPolicy) -> None:
    for seed in range(3):
        _allocated(policy, a_small_problem(seed))


def _is_deterministic(policy: MeasuredPolicy) -> None:
    first, second = (policy.allocate(a_small_problem()) for _ in range(2))
    assert np.array_equal(first.time_fraction, second.time_fraction), "the same problem got two answers"


def _does_not_depend_on_names_or_order(policy: MeasuredPolicy) -> None:
    problem = a_small_problem()
    jobs = list(range(len(problem.job_ids)))
    other = relabelled(problem, jobs if policy.order_matters else jobs[::-1], [2, 0, 1])
    _assert_as_good(policy, problem, other)
    _assert_as_good(policy, other, problem)


def _is_no_worse_than_the_equal_share(policy: MeasuredPolicy) -> None:
    for seed in range(3) if "sharing_incentive" in policy.promises else ():
        problem = a_small_problem(seed)
        ours = policy.objective(problem, _allocated(policy, problem))
        equal = policy.objective(problem, EqualShare().allocate(problem))
        assert _as_good(ours, equal), f"objective {ours} is worse than the equal share's {equal}"


def _leaves_nobody_who_could_be_faster(policy: MeasuredPolicy) -> None:
    for seed in range(3) if "pareto" in policy.promises else ():
        problem = a_small_problem(seed)
        speed = measures.relative_throughput(problem, _allocated(policy, problem).time_fraction)
        program = Program(problem, solver="highs")
        could = cvxpy().multiply(measures.per_best_rate(problem), program.throughput)
        best = program.solve("most", cvxpy().Maximize(cvxpy().sum(could)), [could >= speed * (1 - TOLERANCE)])
        gained = measures.relative_throughput(problem, best.time_fraction) - speed
        assert gained.sum() <= 100 * TOLERANCE, f"jobs could be faster by {gained} without another being slower"


def _does_not_lose_by_one_more_worker(policy: MeasuredPolicy) -> None:
    problem = a_small_problem(1)
    before = policy.objective(problem, _allocated(policy, problem))
    for more in np.eye(len(problem.accelerator_types), dtype=np.int64) if _is_monotone(policy) else ():
        larger = replace(problem, capacity_workers=problem.capacity_workers + more)
        after = policy.objective(larger, _allocated(policy, larger))
        assert _as_good(after, before), f"objective {before} became {after} with one more worker"


def _is_monotone(policy: MeasuredPolicy) -> bool:
    return "monotone_in_capacity" in policy.promises


def _rewards_no_lie(policy: MeasuredPolicy) -> None:
    problem = a_small_problem()
    true_speed = measures.relative_throughput(problem, _allocated(policy, problem).time_fraction)
    for factors in ([9.0, 1.0, 1.0], [1.0, 0.1, 1.0], [0.3, 1.0, 3.0]) if "strategy_proof" in policy.promises else ():
        rates = problem.throughput_steps_per_s.copy()
        rates[1, 0] *= factors
        answer = _allocated(policy, replace(problem, throughput_steps_per_s=rates))
        speed = measures.relative_throughput(problem, answer.time_fraction)
        assert speed[1] <= true_speed[1] + 10 * TOLERANCE, f"a job is faster by stating {factors} times its throughput"


def _gives_nothing_where_a_job_cannot_run(policy: MeasuredPolicy) -> None:
    problem = a_small_problem()
    rates = problem.throughput_steps_per_s.copy()
    rates[0, 0, 1] = 0.0  # one type is closed to one job
    rates[3] = 0.0  # and every type to another, which may not make the others fail
    allocation = _allocated(policy, replace(problem, throughput_steps_per_s=rates))
    assert allocation.time_fraction[0, 1] == 0, "time on a type with zero throughput"
    assert not allocation.time_fraction[3].any(), "time for a job with zero throughput everywhere"
    assert allocation.time_fraction.any(), "a job with zero throughput everywhere left nothing to the others"


def _gives_nothing_where_a_gang_is_too_large(policy: MeasuredPolicy) -> None:
    problem = replace(a_small_problem(), scale_factor=np.asarray([1, 4, 1, 2, 1, 1], dtype=np.int64))
    allocation = _allocated(policy, replace(problem, capacity_workers=np.asarray([2, 4, 2], dtype=np.int64)))
    assert not allocation.time_fraction[1, [0, 2]].any(), "a gang of 4 got time on a type with 2 workers"


def _takes_packed_pairs_among_several_scale_factors(policy: MeasuredPolicy) -> None:
    alone = replace(a_small_problem(), scale_factor=np.asarray([1, 1, 2, 2, 1, 1], dtype=np.int64))
    rates = alone.throughput_steps_per_s[:, 0]
    pairs = {(f"job-{a}", f"job-{b}"): rates[[a, b]] * 0.7 for a, b in ((0, 1), (2, 3), (1, 4), (4, 5))}
    allocation = _allocated(policy, with_pairs(alone, pairs))
    assert allocation.time_fraction.any(), "nothing for jobs that may be packed"


def _takes_empty_and_single_job_problems(policy: MeasuredPolicy) -> None:
    for jobs, types in ((0, 3), (0, 0), (1, 0), (1, 1)):
        allocation = _allocated(policy, a_small_problem(jobs=jobs, types=types))
        assert allocation.time_fraction.shape == (jobs, types), f"wrong shape for {jobs} jobs on {types} types"
    alone = replace(a_small_problem(jobs=1), scale_factor=np.ones(1, dtype=np.int64))
    assert _allocated(policy, alone).time_fraction.sum() > 1 - TOLERANCE, "a job alone does not get all its time"


def _refuses_numbers_it_cannot_use(policy: MeasuredPolicy) -> None:
    for wrong in (np.nan, np.inf, -1.0):
        for name in (*_PER_JOB, "throughput_steps_per_s"):
            problem = a_small_problem()
            values = getattr(problem, name).copy()
            values[(2,) + (0,) * (values.ndim - 1)] = wrong
            _assert_refused(policy, replace(problem, **{name: values}), naming=f"{name}[job-2]")
    problem = replace(a_small_problem(), deadline_at_s=np.asarray([np.inf, np.nan, *[np.inf] * 4]))
    _assert_refused(policy, problem, naming="deadline_at_s[job-1]")


def _has_one_answer_whatever_the_solver(policy: MeasuredPolicy) -> None:
    """For a policy with a parameter `solver`."""
    for seed in range(3) if hasattr(policy, "solver") else ():
        problem = a_small_problem(seed)
        values = []
        for solver in get_args(Solver):
            other = replace(policy, solver=solver)  # type: ignore[type-var]  # policies are dataclasses
            values.append(policy.objective(problem, _allocated(other, problem)))
        assert np.allclose(values[0], values[1], rtol=1e-4, atol=1e-4), f"solvers differ: {values}"


def changed(problem: AllocationProblem, name: str) -> AllocationProblem:
    """Return `problem` with another value of the field `name`; only for fields that `_reads.ALWAYS` does not hold."""
    draw, jobs = np.random.default_rng(7), len(problem.job_ids)
    before = getattr(problem, name)
    if name == "tiers":
        after: Any = tuple(replace(tier, weight=3.0 * tier.weight, guarantee=0.0) for tier in before)
    elif name in ("tier_of_job", "users"):
        after = before[::-1]
    elif name in ("cpu_cores", "memory_bytes", "deadline_at_s", "length_error"):
        after = problem.now_s + draw.uniform(1.0, 1e4, jobs)
    elif name == "staying_workers":
        after = draw.uniform(1.0, 3.0, (len(problem.tiers), len(problem.accelerator_types)))
    elif name.startswith("cluster_"):
        after = 50.0
    else:
        after = before * draw.uniform(1.5, 3.0, np.shape(before)) + 1.0
    return replace(problem, **{name: after})


def check_reads(policy: Policy, problem: AllocationProblem) -> None:
    """Raise AssertionError if the answer to `problem` depends on a field that the policy does not say it reads."""
    read = fields_read(policy, problem)
    expected = policy.allocate(problem).time_fraction
    for name in () if read is None else sorted({each.name for each in fields(problem)} - {*read, "warm_start"}):
        answer = policy.allocate(changed(problem, name)).time_fraction
        assert np.array_equal(answer, expected), f"another {name} gives another answer; add it to `reads`"


def _depends_on_what_it_says_it_reads(policy: MeasuredPolicy) -> None:
    """A policy without the attribute `reads` may depend on everything, and is asked again each time."""
    for seed in range(3):
        problem = a_small_problem(seed)
        check_reads(policy, problem)
        check_reads(policy, replace(changed(problem, "deadline_at_s"), cpu_cores=np.arange(1.0, 7.0)))


def _allocated(policy: Policy, problem: AllocationProblem) -> Allocation:
    """The policy's answer, checked here and not only by the policy."""
    allocation = policy.allocate(problem)
    broken_by = measures.violation(problem, allocation.time_fraction)
    assert broken_by <= MOST_VIOLATION, f"breaks a limit by {broken_by:.1e}"
    assert allocation.accelerator_types == problem.accelerator_types, "wrong types"
    assert [len(jobs) for jobs in allocation.combinations] == [len(jobs) for jobs in problem.combinations], "wrong rows"
    return allocation


def _assert_as_good(policy: MeasuredPolicy, problem: AllocationProblem, other: AllocationProblem) -> None:
    ours, theirs = (policy.objective(each, _allocated(policy, each)) for each in (problem, other))
    assert _as_good(ours, theirs), f"objective {ours} became {theirs} by relabelling"


def _as_good(ours: FloatArray, theirs: FloatArray) -> bool:
    """Whether `ours` is lexicographically at least `theirs`, up to the tolerance."""
    apart = np.flatnonzero(np.abs(ours - theirs) > TOLERANCE * (1.0 + np.abs(theirs)))
    return not apart.size or bool(ours[apart[0]] > theirs[apart[0]])


def _assert_refused(policy: Policy, problem: AllocationProblem, *, naming: str) -> None:
    try:
        policy.allocate(problem)
    except InvalidProblem as error:
        assert error.field == naming, f"the error names {error.field}, not {naming}"
    else:
        raise AssertionError(f"{naming} was not refused")


CHECKS: tuple[Callable[[MeasuredPolicy], None], ...] = (
    _gives_a_valid_allocation,
    _is_deterministic,
    _depends_on_what_it_says_it_reads,
    _does_not_depend_on_names_or_order,
    _is_no_worse_than_the_equal_share,
    _leaves_nobody_who_could_be_faster,
    _does_not_lose_by_one_more_worker,
    _rewards_no_lie,
    _has_one_answer_whatever_the_solver,
    _gives_nothing_where_a_job_cannot_run,
    _gives_nothing_where_a_gang_is_too_large,
    _takes_packed_pairs_among_several_scale_factors,
    _takes_empty_and_single_job_problems,
    _refuses_numbers_it_cannot_use,
)
