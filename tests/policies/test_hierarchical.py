"""Tiers: worked examples, brute force, guarantees, and nothing left idle."""

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gavel.errors import InvalidProblem
from gavel.policies import measures
from gavel.policies.hierarchical import Hierarchical
from gavel.policies.registry import WITHIN_USER
from gavel.policies.tiers.objectives import OBJECTIVES as TIER_OBJECTIVES
from gavel.types import AllocationProblem, Tier
from tests.builders import a_problem
from tests.policies.instances import an_instance, few_examples, idle_pairs, seeds
from tests.policies.oracles import filled_by_tiers

GOLD = Tier(name="gold", weight=2.0, within_user="equal")
BRONZE = Tier(name="bronze", objective="fifo")


def service(problem: AllocationProblem) -> np.ndarray:
    return measures.service(problem, Hierarchical().allocate(problem).time_fraction)


def one_type(
    gold: int, bronze: int, *, workers: int = 6, tiers: tuple[Tier, Tier] = (GOLD, BRONZE), **over: Any
) -> AllocationProblem:
    """Jobs of 1 step/s on one type: service is workers, at most 1 a job."""
    jobs = gold + bronze
    return a_problem([[1.0]] * jobs, [workers], tiers=tiers, tier_of_job=[0] * gold + [1] * bronze, **over)


class TestTheExampleOfTheDocstring:
    def test_shares_follow_weights_and_a_fifo_tier_serves_in_order(self) -> None:
        assert service(one_type(4, 3)) == pytest.approx([1, 1, 1, 1, 1, 1, 0], abs=1e-6)

    def test_what_a_tier_cannot_use_flows_on(self) -> None:
        assert service(one_type(2, 3)) == pytest.approx([1] * 5)

    def test_a_guarantee_comes_before_the_weights(self) -> None:
        problem = one_type(4, 3, tiers=(GOLD, replace(BRONZE, guarantee=0.5)))
        assert service(problem) == pytest.approx([0.75] * 4 + [1] * 3)

    def test_a_guarantee_counts_workers_that_gangs_hold_which_nobody_moves(self) -> None:
        """Of 12 workers gold's gangs stay on 6: half of all 12 is guaranteed to bronze, so the 6 that are left."""
        tiers = (GOLD, replace(BRONZE, guarantee=0.5))
        problem = one_type(4, 6, tiers=tiers, staying_workers=np.array([[6.0], [0.0]]))
        assert service(problem) == pytest.approx([0] * 4 + [1] * 6, abs=1e-6)

    def test_what_a_tier_s_own_gangs_hold_which_nobody_moves_is_part_of_its_guarantee(self) -> None:
        """Of 8 workers bronze's gangs stay on 2: of the other 6 it is guaranteed 2 more, and gold has 4."""
        tiers = (replace(GOLD, weight=1000.0), replace(BRONZE, guarantee=0.5))
        problem = one_type(8, 4, tiers=tiers, staying_workers=np.array([[0.0], [2.0]]))
        assert service(problem) == pytest.approx([0.5] * 8 + [1, 1, 0, 0], abs=1e-6)


def test_two_types_and_two_objectives_worked_by_hand() -> None:
    """gold's two jobs run at 3 and 1 steps/s (service 1.5 and 0.5 a worker), bronze's four at 1 and 1.

    gold belongs on the fast type. With y fast workers for bronze its tier has 2 + y and gold 1.5 (2 - y): equal at
    y = 0.4, so 2.4 each. gold splits evenly, bronze fills its first two jobs and gives its third what is left.
    """
    tiers = (replace(GOLD, weight=1.0), BRONZE)
    problem = a_problem([[3.0, 1.0]] * 2 + [[1.0, 1.0]] * 4, [2, 2], tiers=tiers, tier_of_job=[0, 0, 1, 1, 1, 1])
    assert service(problem) == pytest.approx([1.2, 1.2, 1, 1, 0.4, 0], abs=1e-6)


def test_users_share_a_tier_equally_however_many_jobs_they_have_or_weights_they_claim() -> None:
    problem = a_problem(
        [[1.0]] * 4, [2], users=("ann", "ann", "ann", "bob"), weight=[100.0, 100.0, 200.0, 1.0], tiers=(GOLD,)
    )
    assert service(problem) == pytest.approx([0.25, 0.25, 0.5, 1.0])


def test_a_job_that_is_stuck_leaves_its_tier_s_growth_to_its_siblings() -> None:
    """ann's first job can only use the type with one worker, which bob's tier claims as well."""
    tiers = (Tier(name="a"), Tier(name="b"))
    problem = a_problem(
        [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [1, 3], tiers=tiers, tier_of_job=[0, 0, 1], users=("ann", "ann", "bob")
    )
    allocation = Hierarchical().allocate(problem)
    assert allocation.time_fraction[1, 1] == pytest.approx(1.0)
    assert allocation.time_fraction[:, 0].sum() == pytest.approx(1.0)


@pytest.mark.parametrize("objective", TIER_OBJECTIVES)
def test_every_objective_of_a_tier_uses_its_whole_share(objective: str) -> None:
    problem = an_instance(3, jobs=8)
    tiers = (replace(problem.tiers[0], objective=objective), problem.tiers[1])
    problem = replace(problem, tiers=tiers)
    assert not idle_pairs(problem, Hierarchical().allocate(problem)).any()


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        ("fairness", [2 / 3, 2 / 3, 2 / 3]),
        ("fifo", [1, 1, 0]),
        ("shortest_job_first", [0, 1, 1]),
        ("finish_time_fairness", [2 / 3, 2 / 3, 2 / 3]),
    ],
)
def test_an_objective_spreads_a_tier_s_share_its_own_way(objective: str, expected: list[float]) -> None:
    problem = a_problem([[1.0]] * 3, [2], tiers=(replace(GOLD, objective=objective),), age_s=[0.0] * 3)
    if objective == "shortest_job_first":
        problem = replace(problem, steps_remaining=np.asarray([30.0, 20.0, 10.0]))
    assert service(problem) == pytest.approx(expected, abs=1e-4)


def test_a_throughput_tier_serves_first_the_job_that_gains_most_from_its_best_type() -> None:
    problem = a_problem([[2.0, 1.0], [8.0, 1.0]], [1, 1], tiers=(Tier(name="only", objective="throughput"),))
    assert Hierarchical().allocate(problem).time_fraction == pytest.approx(np.asarray([[0, 1], [1, 0]]), abs=1e-6)


def test_jobs_of_a_finish_time_fair_tier_that_waited_longer_get_more() -> None:
    tier = Tier(name="only", objective="finish_time_fairness")
    problem = a_problem([[1.0], [1.0]], [1], age_s=[1000.0, 0.0], tiers=(tier,))
    assert service(problem)[0] == pytest.approx((np.sqrt(5) - 1) / 2, abs=0.01)  # as cluster-wide; corners in between


@pytest.mark.parametrize("seed", seeds(15, 150))
def test_fairness_and_fifo_tiers_with_guarantees_agree_with_brute_force(seed: int) -> None:
    problem = an_instance(seed, jobs=3 + seed % 6, types=2 + seed % 2)
    own_user = tuple(problem.tiers[tier].name for tier in problem.tier_of_job)
    assert service(replace(problem, users=own_user)) == pytest.approx(filled_by_tiers(problem), abs=1e-4)


@few_examples
@given(
    seed=st.integers(0, 10**6),
    jobs=st.integers(1, 14),
    types=st.integers(1, 4),
    objectives=st.tuples(st.sampled_from(sorted(TIER_OBJECTIVES)), st.sampled_from(sorted(TIER_OBJECTIVES))),
    within_user=st.sampled_from(sorted(WITHIN_USER)),
)
def test_any_tiers_leave_no_worker_idle_and_break_no_limit(
    seed: int, jobs: int, types: int, objectives: tuple[str, str], within_user: str
) -> None:
    problem = an_instance(seed, jobs=jobs, types=types)
    tiers = tuple(
        replace(tier, objective=chosen, within_user=within_user)
        for tier, chosen in zip(problem.tiers, objectives, strict=True)
    )
    users = tuple(["ann", "bob", "cem"][(seed + row) % 3] for row in range(jobs))
    problem = replace(problem, tiers=tiers, users=users)
    allocation = Hierarchical().allocate(problem)
    assert measures.violation(problem, allocation.time_fraction) <= 1e-6
    assert not idle_pairs(problem, allocation).any()


@few_examples
@given(
    seed=st.integers(0, 10**6),
    jobs=st.integers(2, 10),
    users=st.integers(1, 3),
    objective=st.sampled_from(sorted(TIER_OBJECTIVES)),
)
@example(seed=39, jobs=9, users=1, objective="fairness")  # alone, rearranging its jobs gives the tier 4 % more service,
@example(seed=39, jobs=9, users=1, objective="speed")  # here it speeds up jobs of the other tier more
def test_a_tier_never_falls_below_what_its_guarantee_gives_it_alone(
    seed: int, jobs: int, users: int, objective: str
) -> None:
    """Half of 4 workers of each type is a cluster of 2 workers of each type: its curve there ends at the floor.

    Jobs that are rearranged keep together what each of them has on the curve, where jobs of a user share alike.
    """
    draw = np.random.default_rng(seed)
    safe = Tier(name="safe", weight=0.1, objective=objective, guarantee=0.5)
    tiers, tier_of_job = (Tier(name="big", weight=50.0), safe), draw.integers(0, 2, jobs)
    tier_of_job[0] = 1
    owner = draw.integers(0, users, jobs)
    problem = a_problem(
        draw.uniform(0.2, 5, (jobs, 3)), [4] * 3, tiers=tiers, tier_of_job=tier_of_job, users=tuple(map(str, owner))
    )
    own = np.flatnonzero(tier_of_job == 1)
    alone = a_problem(
        problem.throughput_steps_per_s[own, 0],
        [2] * 3,
        tiers=(replace(on_its_curve(safe), guarantee=0.0),),
        age_s=problem.age_s[own],
        users=tuple("all" if objective == "speed" else problem.users[job] for job in own),
    )
    got, floor = service(problem)[own], service(alone)
    assert got.sum() >= floor.sum() * (1 - 1e-5)
    if objective == "fairness":
        for user in range(users):
            assert got[owner[own] == user].sum() >= floor[owner[own] == user].sum() * (1 - 1e-5)


def on_its_curve(tier: Tier) -> Tier:
    """The tier with its target curve and no more: jobs that it would rearrange have what each of them rises to."""
    return replace(tier, objective="fairness" if tier.objective == "speed" else tier.objective, within_user="equal")


def test_a_tier_with_no_jobs_leaves_its_guarantee_to_the_others() -> None:
    tiers = (GOLD, replace(BRONZE, guarantee=0.9))
    assert service(one_type(3, 0, workers=2, tiers=tiers)) == pytest.approx([2 / 3] * 3)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"objective": "makespan"}, "tiers[bronze].objective"),
        ({"within_user": "makespan"}, "tiers[bronze].within_user"),
        ({"weight": 0.0}, "tiers[bronze].weight"),
        ({"guarantee": 1.5}, "tiers[bronze].guarantee"),
        ({"guarantee": 0.8}, "tiers.guarantee"),
    ],
)
def test_a_tier_that_no_allocation_can_satisfy_is_refused_by_name(wrong: dict[str, object], field: str) -> None:
    tiers = (replace(GOLD, guarantee=0.4), replace(BRONZE, **wrong))  # type: ignore[arg-type]
    with pytest.raises(InvalidProblem) as refusal:
        Hierarchical().allocate(one_type(1, 1, tiers=tiers))
    assert refusal.value.field == field


def test_a_tier_s_service_does_not_depend_on_how_it_is_split_among_identical_jobs() -> None:
    got = service(one_type(5, 8, workers=4))
    by_tier = defaultdict(float)
    for tier, each in zip([0] * 5 + [1] * 8, got, strict=True):
        by_tier[tier] += each
    assert by_tier[0] == pytest.approx(8 / 3)
    assert by_tier[1] == pytest.approx(4 / 3)


class TestDeadlines:
    """One type, 2 workers, jobs of 1 step/s with 100 steps to go: service is workers, needed = 100 / seconds left."""

    TIERS = (Tier(name="due", objective="deadline"),)

    def served(self, *deadline_at_s: float, now_s: float = 0.0) -> list[float]:
        problem = a_problem(
            [[1.0]] * len(deadline_at_s),
            [2],
            tiers=self.TIERS,
            deadline_at_s=list(deadline_at_s),
            steps_remaining=[100.0] * len(deadline_at_s),
            now_s=now_s,
        )
        return service(problem).tolist()

    def test_what_is_needed_comes_first_and_the_rest_is_shared(self) -> None:
        """0.8 and 0.5 are needed; of the 0.7 left the others are raised to 0.6, the first has more already."""
        assert self.served(125.0, 200.0, np.inf) == pytest.approx([0.8, 0.6, 0.6])

    def test_the_earliest_deadline_goes_first_when_not_all_can_be_met(self) -> None:
        assert self.served(250.0, 110.0, 120.0) == pytest.approx([2 - 1 / 1.1 - 1 / 1.2, 1 / 1.1, 1 / 1.2])

    @pytest.mark.parametrize(("due_s", "now_s"), [(50.0, 60.0), (99.0, 0.0)], ids=["past", "out of reach"])
    def test_a_deadline_that_cannot_be_met_takes_nothing(self, due_s: float, now_s: float) -> None:
        assert self.served(due_s, np.inf, np.inf, now_s=now_s) == pytest.approx([2 / 3] * 3)
        assert self.served(due_s, due_s, now_s + 100.0, now_s=now_s) == pytest.approx([0.5, 0.5, 1.0])

    def test_deadlines_that_do_not_fit_beside_others_go_after_those_that_do(self) -> None:
        """Thrice 100 s of work are too much for 2 workers until 110 s: the one that came last is given up."""
        assert self.served(110.0, 105.0, 105.0) == pytest.approx([1 / 1.1, 1 / 1.05, 2 - 1 / 1.05 - 1 / 1.1])

    def test_a_deadline_takes_nothing_from_another_user(self) -> None:
        problem = a_problem(
            [[1.0]] * 4, [2], tiers=self.TIERS, users=("ann", "ann", "bob", "bob"),
            deadline_at_s=[100.0, 100.0, np.inf, np.inf], steps_remaining=[100.0] * 4,
        )  # fmt: skip
        assert service(problem) == pytest.approx([1.0, 0.0, 0.5, 0.5])
