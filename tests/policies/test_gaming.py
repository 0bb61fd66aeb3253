"""What a user states moves service among the user's own jobs, not between users: every objective that a tier may have.

A user splits jobs, raises weights and priorities, states deadlines and throughputs at will. `EXCEPTIONS` names every
objective in which one of these takes from others; docs/tiers.md has the reasons. Service is in workers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.policies import measures
from gavel.policies.hierarchical import Hierarchical
from gavel.policies.registry import TIER_OBJECTIVES
from gavel.types import AllocationProblem, Tier
from tests.builders import a_problem
from tests.policies.instances import few_examples

TOLERANCE = 2e-3  # of a worker; curves of finish-time fairness are straight between corners where programs answer
CHEAT = "cheat"


@dataclass(frozen=True)
class Wanted:
    """A job as its user states it."""

    user: str
    rates: tuple[float, ...]
    steps: float
    age_s: float
    weight: float = 1.0
    priority: int = 0
    deadline_at_s: float = np.inf
    isolated_time_s: float = 0.0


UserClaim = Callable[[np.random.Generator, Wanted], Sequence[Wanted]]


def split(draw: np.random.Generator, job: Wanted) -> Sequence[Wanted]:
    parts = int(draw.integers(2, 6))
    return [replace(job, steps=job.steps / parts)] * parts


def split_unevenly(draw: np.random.Generator, job: Wanted) -> Sequence[Wanted]:
    part = float(draw.uniform(0.02, 0.2))
    return [replace(job, steps=job.steps * part), replace(job, steps=job.steps * (1 - part))]


def weights(draw: np.random.Generator, job: Wanted) -> Sequence[Wanted]:
    return [replace(job, weight=float(draw.choice([1e-3, 1.0, 1e3])))]


def priorities(draw: np.random.Generator, job: Wanted) -> Sequence[Wanted]:
    return [replace(job, priority=int(draw.integers(0, 9)))]


def deadlines(draw: np.random.Generator, job: Wanted) -> Sequence[Wanted]:
    alone_s = job.steps / max(job.rates)
    return [replace(job, deadline_at_s=float(draw.choice([0.0, 0.5, 1.0, 1.01, 2.0, 9.0])) * alone_s)]


def throughputs(draw: np.random.Generator, job: Wanted) -> Sequence[Wanted]:
    lies = np.random.default_rng(int(1e6 * job.rates[0])).choice([0.3, 1.0, 3.0], len(job.rates))  # one of its kind
    return [replace(job, rates=tuple((np.asarray(job.rates) * lies).tolist()))]


STATEMENTS = {each.__name__: each for each in (split, split_unevenly, weights, priorities, deadlines, throughputs)}
IN_ORDER = ("fifo", "shortest_job_first", "throughput")
EXCEPTIONS = {
    *((each, "split") for each in IN_ORDER),  # each part has a cap of its own, and comes as early, short, fast as all
    *((each, "split_unevenly") for each in IN_ORDER),
    *(("speed", each) for each in ("split", "split_unevenly", "weights", "priorities")),  # users are not kept apart
    *((each, "throughputs") for each in TIER_OBJECTIVES),  # believed until measured
}

RARE = 3913  # of 1,000 seeds about 5 show that throughputs matter in a FIFO tier; this one does


def problem_of(jobs: Sequence[Wanted], workers: list[int], objective: str) -> AllocationProblem:
    """As the scheduler states it: highest priority first, then by arrival; each step of priority doubles the weight."""
    rows = sorted(jobs, key=lambda job: (-job.priority, -job.age_s))
    return a_problem(
        [job.rates for job in rows],
        workers,
        users=tuple(job.user for job in rows),
        weight=[job.weight * 2.0**job.priority for job in rows],
        steps_remaining=[job.steps for job in rows],
        age_s=[job.age_s for job in rows],
        isolated_time_s=[job.isolated_time_s for job in rows],
        deadline_at_s=[job.deadline_at_s for job in rows],
        tiers=(Tier(name="only", objective=objective),),
    )


def service_of_users(problem: AllocationProblem, truth: dict[str, tuple[float, ...]] | None = None) -> dict[str, float]:
    """What each user's jobs have together; those of a user in `truth` really run at its rates."""
    fractions = Hierarchical().allocate(problem).time_fraction
    if truth:
        rates = problem.throughput_steps_per_s.copy()
        for row, user in enumerate(problem.users):
            rates[row, 0] = truth.get(user, rates[row, 0])
        problem = replace(problem, throughput_steps_per_s=rates)
    got = measures.service(problem, fractions)
    total: dict[str, float] = {}
    for user, each in zip(problem.users, got.tolist(), strict=True):
        total[user] = total.get(user, 0.0) + each
    return total


def a_cluster_of_users(draw: np.random.Generator) -> tuple[list[Wanted], list[int]]:
    """Every user could use the whole cluster; the jobs of a user are of one kind."""
    workers = draw.integers(1, 4, int(draw.integers(1, 4))).tolist()
    jobs: list[Wanted] = []
    for user in (CHEAT, "ann", "bob")[: int(draw.integers(2, 4))]:
        rates = tuple(draw.uniform(0.5, 4.0, len(workers)).tolist())
        for _ in range(sum(workers) + int(draw.integers(1, 3))):
            steps, age_s = float(draw.uniform(100, 5000)), float(draw.uniform(0, 500))
            done_s = float(draw.uniform(0, 100))
            jobs.append(Wanted(user=user, rates=rates, steps=steps, age_s=age_s, isolated_time_s=done_s))
    return jobs, workers


def taken_from_others(objective: str, statement: UserClaim, seed: int) -> float:
    """What a user gains by a statement that makes another one lose; 0 if nobody loses, or the user gains nothing.

    A statement that makes its user's own jobs less efficient may cost everybody; nobody has a reason for it.
    """
    draw = np.random.default_rng(seed)
    jobs, workers = a_cluster_of_users(draw)
    stated = [each for job in jobs for each in (statement(draw, job) if job.user == CHEAT else [job])]
    honest = service_of_users(problem_of(jobs, workers, objective))
    truth = {CHEAT: next(job.rates for job in jobs if job.user == CHEAT)}
    after = service_of_users(problem_of(stated, workers, objective), truth)
    lost = max(honest[user] - after[user] for user in honest if user != CHEAT)
    return max(0.0, min(lost, after[CHEAT] - honest[CHEAT]))


@pytest.mark.parametrize("objective", TIER_OBJECTIVES)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_what_a_user_states_takes_from_other_users_only_where_that_is_known(statement: str, objective: str) -> None:
    if (objective, statement) in EXCEPTIONS:
        seeds = (*range(40), RARE)
        losses = (taken_from_others(objective, STATEMENTS[statement], seed) for seed in seeds)
        assert any(lost > 10 * TOLERANCE for lost in losses), "no exception any more: say so in docs/tiers.md"
        return

    @given(st.integers(0, 10**6))
    @few_examples
    def nobody_loses(seed: int) -> None:
        assert taken_from_others(objective, STATEMENTS[statement], seed) <= TOLERANCE

    nobody_loses()


@pytest.mark.parametrize("objective", ["fairness", "finish_time_fairness"])  # deadlines: docs/tiers.md
@given(seed=st.integers(0, 10**6))
@few_examples
def test_no_statement_takes_a_user_below_an_equal_part(objective: str, seed: int) -> None:
    """Whatever is stated at once, of jobs of any kinds: another user who can use 1/n of the cluster has that."""
    draw = np.random.default_rng(seed)
    jobs, workers = a_cluster_of_users(draw)
    kinds = [draw.uniform(0.5, 4.0, len(workers)) for _ in range(3)]
    jobs = [replace(job, age_s=0.0, isolated_time_s=0.0, rates=tuple(kinds[draw.integers(3)].tolist())) for job in jobs]
    stated: list[Wanted] = []
    for job in jobs:
        claimed = [job]
        for statement in STATEMENTS.values() if job.user == CHEAT else ():
            claimed = [each for one in claimed for each in statement(draw, one)]
        stated += claimed
    users = {job.user for job in jobs}
    got = service_of_users(problem_of(stated, workers, objective))
    assert min(got[user] for user in users - {CHEAT}) >= sum(workers) / len(users) - TOLERANCE


def test_a_weight_of_a_thousand_takes_nothing_from_another_user() -> None:
    for objective in TIER_OBJECTIVES.keys() - {"speed"}:
        plain = Wanted(user="ann", rates=(1.0,), steps=100.0, age_s=2.0)
        jobs = [plain, replace(plain, user=CHEAT, age_s=1.0)]
        loud = [jobs[0], replace(jobs[1], weight=1000.0, priority=9)]
        honest, after = (service_of_users(problem_of(each, [1], objective)) for each in (jobs, loud))
        assert after["ann"] == pytest.approx(honest["ann"], abs=1e-4), objective


@pytest.mark.parametrize("users", [("ann", CHEAT, CHEAT), (CHEAT, "ann", CHEAT)], ids=["neighbours", "apart"])
def test_priority_orders_the_jobs_of_a_user_that_follow_one_another_in_a_fifo_tier(users: tuple[str, ...]) -> None:
    jobs = [Wanted(user=user, rates=(1.0,), steps=100.0, age_s=3.0 - place) for place, user in enumerate(users)]
    problem = problem_of([*jobs[:2], replace(jobs[2], priority=5)], [2], "fifo")
    got = measures.service(problem, Hierarchical().allocate(problem).time_fraction)
    by_age = got[np.argsort(-problem.age_s)]
    assert by_age == pytest.approx([1.0, 0.0, 1.0] if users[0] == "ann" else [1.0, 1.0, 0.0], abs=1e-6)
