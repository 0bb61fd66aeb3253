"""Tiers below tiers, and caps: the worked example, brute force, prices against the program, and what always holds."""

import os
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.policies import CONTENDED
from benchmarks.policies import a_problem as unequal
from benchmarks.policies_hierarchical import in_teams
from gavel.errors import InvalidProblem
from gavel.mechanism.planning.caps import capped
from gavel.policies import measures
from gavel.policies.fast.reduction import SOLVER
from gavel.policies.hierarchical import Hierarchical
from gavel.policies.tiers.tree import Node, tree
from gavel.types import Allocation, AllocationProblem, Tier, workers_promised
from tests.builders import a_problem
from tests.policies.instances import a_tree, an_instance, few_examples, idle_pairs, seeds
from tests.policies.oracles import filled_by_tiers

CURVES = ("fairness", "fifo", "shortest_job_first", "throughput", "deadline")


def service(problem: AllocationProblem, allocation: Allocation | None = None) -> np.ndarray:
    return measures.service(problem, (allocation or Hierarchical().allocate(problem)).time_fraction)


class TestDepartmentsTeamsAndUsers:
    """The worked example of docs/tiers.md: one type, 12 workers, every job 1 step/s on one of them."""

    TIERS: Mapping[str, Tier] = {
        "research": Tier(name="research", weight=2.0),
        "vision": Tier(name="vision", parent="research", weight=3.0, within_user="equal"),
        "language": Tier(name="language", parent="research", objective="fifo"),
        "product": Tier(name="product", within_user="equal"),
    }

    def served(
        self, *, ann: int = 2, bob: int = 6, product: int = 8, **changed: Mapping[str, float]
    ) -> dict[str, list[float]]:
        """Service of the jobs of ann and bob (vision), of language's three, and of product's."""
        tiers = tuple(replace(tier, **changed.get(name, {})) for name, tier in self.TIERS.items())  # type: ignore[arg-type]
        who = ["ann"] * ann + ["bob"] * bob + ["language"] * 3 + ["product"] * product
        of = {"ann": 1, "bob": 1, "language": 2, "product": 3}
        problem = a_problem(
            [[1.0]] * len(who), [12], tiers=tiers, tier_of_job=[of[each] for each in who], users=tuple(who)
        )
        got = service(problem)
        return {name: [each for each, owner in zip(got, who, strict=True) if owner == name] for name in of}

    def test_departments_share_by_weight_then_teams_then_users(self) -> None:
        got = self.served()
        assert got["ann"] == pytest.approx([1, 1])
        assert got["bob"] == pytest.approx([2 / 3] * 6)
        assert got["language"] == pytest.approx([1, 1, 0], abs=1e-6)
        assert got["product"] == pytest.approx([1 / 2] * 8)

    def test_what_a_team_cannot_use_is_its_sibling_s_first_and_then_another_department_s(self) -> None:
        got = self.served(bob=0)
        assert got["ann"] == pytest.approx([1, 1])
        assert got["language"] == pytest.approx([1, 1, 1])
        assert got["product"] == pytest.approx([7 / 8] * 8)

    def test_what_a_department_cannot_use_goes_up_and_down_again_by_weight(self) -> None:
        got = self.served(product=3)
        assert got["product"] == pytest.approx([1, 1, 1])
        assert got["ann"] == pytest.approx([1, 1])
        assert got["bob"] == pytest.approx([4.75 / 6] * 6)
        assert got["language"] == pytest.approx([1, 1, 1 / 4])

    def test_a_team_s_guarantee_is_part_of_its_department_s(self) -> None:
        got = self.served(research={"guarantee": 0.25}, language={"guarantee": 0.25})
        assert got["language"] == pytest.approx([1, 1, 1])
        assert got["ann"] == pytest.approx([1, 1])
        assert got["bob"] == pytest.approx([1 / 2] * 6)
        assert got["product"] == pytest.approx([1 / 2] * 8)

    def test_what_a_team_may_not_have_flows_on_as_what_it_cannot_use(self) -> None:
        got = self.served(vision={"cap": 0.25})
        assert got["ann"] == pytest.approx([3 / 4] * 2)
        assert got["bob"] == pytest.approx([1 / 4] * 6)
        assert got["language"] == pytest.approx([1, 1, 1])
        assert got["product"] == pytest.approx([3 / 4] * 8)

    def test_jobs_of_a_department_itself_are_one_more_team_of_weight_one(self) -> None:
        tiers = tuple(self.TIERS.values())
        problem = a_problem([[1.0]] * 20, [10], tiers=tiers, tier_of_job=[0] * 10 + [1] * 10)
        got = service(problem)
        assert (got[:10].sum(), got[10:].sum()) == pytest.approx((2.5, 7.5))


@pytest.mark.parametrize("caps", [False, True])
@pytest.mark.parametrize("seed", seeds(3, 60))
def test_trees_of_fairness_and_fifo_tiers_agree_with_brute_force(seed: int, caps: bool) -> None:
    problem = a_tree(seed, ("fairness", "fifo"), depth=2, caps=caps, jobs=3 + seed % 5)
    own_user = tuple(problem.tiers[tier].name for tier in problem.tier_of_job)
    assert service(replace(problem, users=own_user)) == pytest.approx(filled_by_tiers(problem), abs=1e-4)


@pytest.mark.parametrize(("caps", "by_prices"), [(False, 0.9), (True, 0.6)])
def test_trees_are_served_by_prices_as_by_the_program(caps: bool, by_prices: float) -> None:
    own, problems = (
        0,
        [a_tree(seed, CURVES, depth=1 + seed % 3, caps=caps, jobs=4 + seed % 12) for seed in seeds(8, 400)],
    )
    for problem in problems:
        ours, theirs = Hierarchical().allocate(problem), Hierarchical().program(problem)
        own += ours.solver == SOLVER
        assert service(problem, ours) == pytest.approx(service(problem, theirs), rel=1e-3, abs=1e-3)
    assert own >= by_prices * len(problems)


@pytest.mark.parametrize("caps", [False, True])
def test_beside_gangs_that_stay_guarantees_are_kept_on_each_type_by_prices_as_by_the_program(caps: bool) -> None:
    by_prices, problems = 0, [with_gangs_that_stay(seed, caps=caps) for seed in seeds(15, 200)]
    for problem in problems:
        ours, theirs = Hierarchical().allocate(problem), Hierarchical().program(problem)
        by_prices += ours.solver == SOLVER
        assert service(problem, ours) == pytest.approx(service(problem, theirs), rel=1e-3, abs=1e-3)
        assert measures.violation(problem, ours.time_fraction) <= 1e-6
    assert by_prices >= 0.6 * len(problems)


@few_examples
@given(seed=st.integers(0, 10**6))
def test_a_tier_that_can_use_it_has_its_guarantee_beside_gangs_that_stay(seed: int) -> None:
    """On one type, where a worker is worth the same to all: its part of all workers, less those of its own gangs."""
    draw = np.random.default_rng(seed)
    tiers = tuple(Tier(name=f"t{i}", guarantee=float(draw.uniform(0, 1 / 3)), weight=float(2**i)) for i in range(3))
    stay = np.floor(draw.uniform(0, 4, (3, 1)))
    every = int(sum(max(held, 12 * tier.guarantee) for held, tier in zip(stay[:, 0], tiers, strict=True))) + 12
    left = every - int(stay.sum())
    problem = a_problem(
        [[1.0]] * 3 * left, [left], tiers=tiers, tier_of_job=np.repeat([0, 1, 2], left), staying_workers=stay
    )
    got = service(problem).reshape(3, left).sum(axis=1)
    due = np.array([tier.guarantee * every for tier in tiers]) - stay[:, 0]
    assert (got >= np.maximum(0, due) * min(1.0, left / max(1e-9, np.maximum(0, due).sum())) - 1e-6).all()


def with_gangs_that_stay(seed: int, *, caps: bool) -> AllocationProblem:
    """A tree of tiers some of which have gangs that stay, on other workers than those of the problem."""
    problem = a_tree(seed, CURVES, depth=1 + seed % 3, caps=caps, jobs=4 + seed % 12)
    draw = np.random.default_rng(seed)
    held = draw.integers(0, 3, (len(problem.tiers), len(problem.accelerator_types)))
    return replace(problem, staying_workers=(held * (draw.random(held.shape) < 0.5)).astype(float))


def test_the_program_ends_where_a_promise_leaves_nothing_but_rounding_to_raise() -> None:
    """A job that is stuck asks for 1e-8 more: its price is so steep that the bound it gives is the point itself."""
    problem = a_tree(175, CURVES, depth=2, caps=True, jobs=11)
    ours, theirs = Hierarchical().allocate(problem), Hierarchical().program(problem)
    assert service(problem, ours) == pytest.approx(service(problem, theirs), rel=1e-3, abs=1e-3)


@few_examples
@given(seed=st.integers(0, 10**6), depth=st.integers(1, 3), jobs=st.integers(1, 12))
def test_no_tree_leaves_a_worker_idle_that_some_job_could_use(seed: int, depth: int, jobs: int) -> None:
    problem = a_tree(seed, CURVES, depth=depth, caps=False, jobs=jobs)
    allocation = Hierarchical().allocate(problem)
    assert measures.violation(problem, allocation.time_fraction) <= 1e-6
    assert not idle_pairs(problem, allocation).any()


@few_examples
@given(seed=st.integers(0, 10**6), depth=st.integers(1, 3), jobs=st.integers(1, 12))
def test_no_tier_holds_more_than_its_cap_of_any_type(seed: int, depth: int, jobs: int) -> None:
    problem = a_tree(seed, CURVES, depth=depth, caps=True, jobs=jobs)
    allocation = Hierarchical().allocate(problem)
    assert measures.violation(problem, allocation.time_fraction) <= 1e-6
    for node in tree(problem).from_below():
        held = problem.scale_factor[node.jobs] @ allocation.time_fraction[node.jobs]
        assert (held <= node.tier.cap * problem.capacity_workers * (1 + 2e-6)).all()
    kept = capped(allocation, problem)  # what the service does with the answer of any policy
    assert kept.time_fraction == pytest.approx(allocation.time_fraction, abs=1e-5)


def on_one_type(seed: int, *, depth: int, jobs: int) -> AllocationProblem:
    """A tree on one type without promises or caps, where a worker is worth the same to everybody."""
    problem = a_tree(seed, CURVES, depth=depth, caps=False, jobs=jobs)
    tiers = tuple(replace(tier, guarantee=0.0) for tier in problem.tiers)
    return a_problem([[1.0]] * jobs, [max(1, jobs // 2)], tiers=tiers, tier_of_job=problem.tier_of_job)


@few_examples
@given(seed=st.integers(0, 10**6), depth=st.integers(1, 3), jobs=st.integers(1, 16))
def test_nobody_who_could_use_more_envies_a_sibling_and_all_shares_are_handed_out(
    seed: int, depth: int, jobs: int
) -> None:
    problem = on_one_type(seed, depth=depth, jobs=jobs)
    got = service(problem)
    assert got.sum() == pytest.approx(min(jobs, problem.capacity_workers[0]))
    for node in tree(problem).from_below():
        _check_no_envy(node, got)


def _check_no_envy(node: Node, got: np.ndarray) -> None:
    for own in node.below:
        if got[own.jobs].sum() < len(own.jobs) - 1e-6:
            most = max(got[each.jobs].sum() / each.tier.weight for each in node.below)
            assert got[own.jobs].sum() / own.tier.weight == pytest.approx(most, abs=1e-6)


@few_examples
@given(seed=st.integers(0, 10**6), depth=st.integers(1, 3))
def test_names_and_order_of_tiers_and_types_do_not_matter(seed: int, depth: int) -> None:
    problem = a_tree(seed, CURVES, depth=depth, caps=True, jobs=8)
    draw = np.random.default_rng(seed)
    order, types = draw.permutation(len(problem.tiers)), draw.permutation(len(problem.accelerator_types))
    renamed = {tier.name: f"x{draw.integers(10**9)}" for tier in problem.tiers} | {None: None}
    tiers = [replace(tier, name=renamed[tier.name], parent=renamed[tier.parent]) for tier in problem.tiers]
    other = replace(
        problem,
        tiers=tuple(tiers[index] for index in order),
        tier_of_job=np.argsort(order)[problem.tier_of_job],
        throughput_steps_per_s=problem.throughput_steps_per_s[:, :, types],
        capacity_workers=problem.capacity_workers[types],
    )
    assert service(other) == pytest.approx(service(problem), rel=1e-3, abs=1e-3)


@few_examples
@given(seed=st.integers(0, 10**6), jobs=st.integers(1, 12))
def test_a_tier_above_all_that_has_the_whole_cluster_changes_nothing(seed: int, jobs: int) -> None:
    flat = an_instance(seed, jobs=jobs)
    above = (Tier(name="company", parent="world", guarantee=1.0, weight=7.0), Tier(name="world", guarantee=1.0))
    below = replace(flat, tiers=tuple(replace(tier, parent="company") for tier in flat.tiers) + above)
    assert service(below) == pytest.approx(service(flat), rel=1e-3, abs=1e-3)


def test_a_tier_never_falls_below_what_it_and_those_below_it_reach_alone() -> None:
    """Half of 4 workers of each type is a cluster of 2 of each: there the curves end at the floor (jobs alike)."""
    for seed in (*seeds(8, 60), 84, 389):  # in the last two the tier has more service alone once it is rearranged
        draw = np.random.default_rng(seed)
        rates, tier_of_job = draw.uniform(0.2, 5, (8, 3)), np.asarray([0, 0, 0, 0, 2, 2, 3, 3])
        inside = (Tier(name="safe", weight=0.1, guarantee=0.5), Tier(name="a", parent="safe", weight=2.0))
        tiers = (Tier(name="big", weight=50.0), *inside, Tier(name="b", parent="safe", objective="fifo", guarantee=0.2))
        got = service(a_problem(rates, [4] * 3, tiers=tiers, tier_of_job=tier_of_job))
        halved = (*tiers[:3], replace(tiers[3], guarantee=0.4))
        alone = a_problem(rates[4:], [2] * 3, tiers=halved, tier_of_job=tier_of_job[4:], age_s=[4.0, 3.0, 2.0, 1.0])
        freed = (tiers[0], replace(tiers[1], guarantee=1.0), replace(halved[2], within_user="equal"), halved[3])
        assert got[4:].sum() >= service(replace(alone, tiers=freed)).sum() * (1 - 1e-5)


ROUND = (Tier(name="a", parent="b"), Tier(name="b", parent="a"))
TEAM = Tier(name="team", parent="top", guarantee=0.4)


@pytest.mark.parametrize(
    ("tiers", "field", "message"),
    [
        (ROUND, "tiers[b].parent", "is a, which is below it"),
        ((Tier(name="a", parent="a"),), "tiers[a].parent", "which is below it"),
        ((Tier(name="a", parent="gone"),), "tiers[a].parent", "is gone, which is no tier"),
        ((TEAM, Tier(name="top", guarantee=0.3)), "tiers.guarantee", "sums to 0.4 over team; lower it to at most 0.3"),
        ((Tier(name="a", cap=1.5),), "tiers[a].cap", "give a fraction in [0, 1]"),
        ((Tier(name="a", cap=0.2, guarantee=0.3),), "tiers[a].cap", "not below its guarantee"),
        ((Tier(name="a"), Tier(name="a")), "tiers", "two tiers are named a"),
    ],
)
def test_a_tree_that_no_allocation_can_satisfy_is_refused_by_name(
    tiers: tuple[Tier, ...], field: str, message: str
) -> None:
    with pytest.raises(InvalidProblem) as refusal:
        Hierarchical().allocate(a_problem([[1.0]], [1], tiers=tiers, tier_of_job=[0]))
    assert refusal.value.field == field
    assert message in refusal.value.message


def test_tiers_of_which_nobody_has_jobs_may_be_anything() -> None:
    tiers = (Tier(name="a"), Tier(name="b", parent="gone", guarantee=0.9))
    assert service(a_problem([[1.0]], [1], tiers=tiers, tier_of_job=[0])) == pytest.approx([1.0])


def test_a_packed_pair_counts_half_for_the_cap_of_each() -> None:
    """Beside the other the capped job keeps its speed: packed all the time it holds the half worker that it may."""
    tiers = (Tier(name="a", cap=0.25), Tier(name="b"))
    problem = a_problem([[1.0], [1.0]], [2], tiers=tiers, tier_of_job=[0, 1])
    colocated = np.asarray([[[1.0], [1.0]]])
    packed = replace(
        problem,
        combinations=(*problem.combinations, (0, 1)),
        throughput_steps_per_s=np.concatenate([problem.throughput_steps_per_s, colocated]),
    )
    allocation = Hierarchical().allocate(packed)
    assert workers_promised(allocation, packed)[0].sum() == pytest.approx(0.5)
    assert (allocation.time_fraction[0] + allocation.time_fraction[2]).sum() == pytest.approx(1.0)


@pytest.mark.full
@pytest.mark.skipif("GAVEL_DATA" not in os.environ, reason="needs the published throughputs: GAVEL_DATA")
def test_many_unclear_jobs_are_rearranged_by_prices() -> None:
    """Of 16,384 jobs so many lie between two choices that the program, which would answer instead, takes minutes."""
    problem = in_teams(unequal(16_384, CONTENDED, unique=True))
    answer = Hierarchical().allocate(problem)
    assert answer.solver == SOLVER
    assert answer.certificate.dual_gap is not None and answer.certificate.dual_gap <= 1e-6
