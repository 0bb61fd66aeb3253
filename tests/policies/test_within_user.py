"""Fair between users, fast within one: what the jobs of a user do with the user's part, and that nobody else pays."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.errors import SolveFailed
from gavel.linear.part_cuts import lowest_of_parts
from gavel.policies import measures
from gavel.policies.fast import rearranged, rearranged_alike, rearranged_prices
from gavel.policies.fast.envelope import SizeColumns
from gavel.policies.fast.rearranged_places import placed
from gavel.policies.fast.rearranged_question import Asked
from gavel.policies.fast.reduction import SOLVER
from gavel.policies.hierarchical import Hierarchical
from gavel.policies.rank_weighted_speed import RankWeightedSpeed
from gavel.types import Allocation, AllocationProblem, Tier
from tests.builders import a_problem
from tests.policies.instances import few_examples, idle_pairs, seeds

FAST = Tier(name="only")
USERS = ("ann", "bob", "cem")
TOLERANCE = 1e-5  # of a worker


def a_cluster(seed: int, *, tiers: Sequence[Tier] = (FAST,)) -> AllocationProblem:
    """Jobs of three users on a contended cluster; some are late, some can run on few types or nowhere."""
    draw = np.random.default_rng(seed)
    jobs, types = int(draw.integers(2, 13)), int(draw.integers(1, 4))
    rates = draw.uniform(0.2, 5.0, (jobs, types)) * draw.uniform(0.5, 40.0, (jobs, 1))
    rates[draw.random((jobs, types)) < 0.2] = 0.0
    return a_problem(
        rates,
        draw.integers(1, 5, types),
        scale_factor=draw.choice([1, 1, 1, 2], jobs),
        weight=draw.choice([1.0, 2.0, 5.0], jobs),
        steps_remaining=draw.uniform(1.0, 1e5, jobs) * (draw.random(jobs) < 0.9),
        age_s=np.sort(draw.uniform(0.0, 9000.0, jobs))[::-1],
        isolated_time_s=draw.uniform(0.0, 500.0, jobs),
        tiers=tuple(tiers),
        tier_of_job=draw.integers(0, len(tiers), jobs),
        users=tuple(str(user) for user in draw.choice(USERS, jobs)),
    )


def solved(problem: AllocationProblem) -> Allocation:
    return Hierarchical().allocate(problem)


def service(problem: AllocationProblem) -> np.ndarray:
    return measures.service(problem, solved(problem).time_fraction)


def as_alike(problem: AllocationProblem) -> AllocationProblem:
    """The same where jobs of a user share alike: what their users have together is what they keep."""
    tiers = tuple(replace(tier, within_user="equal", objective="fairness") for tier in problem.tiers)
    return replace(problem, tiers=tiers, weight=np.ones(len(problem.job_ids)))


def of_users(problem: AllocationProblem, got: np.ndarray) -> dict[tuple[int, str], float]:
    """What the jobs of each user have together in each tier."""
    total: dict[tuple[int, str], float] = {}
    for tier, user, each in zip(problem.tier_of_job.tolist(), problem.users, got.tolist(), strict=True):
        total[tier, user] = total.get((tier, user), 0.0) + each
    return total


def claims(problem: AllocationProblem, allocation: Allocation) -> float:
    """The total of claims times relative speeds, of a cluster whose jobs are all of one user."""
    claim = RankWeightedSpeed().claim(problem)
    return float(claim @ measures.relative_throughput(problem, allocation.time_fraction))


def ends(*steps: float, within_user: str = "fast", **fields: object) -> AllocationProblem:
    """Jobs of one user, of these lengths, at one step a second on two workers."""
    given: dict[str, object] = {"users": ("ann",) * len(steps), "steps_remaining": list(steps), **fields}
    return a_problem([[1.0]] * len(steps), [2], tiers=(replace(FAST, within_user=within_user),), **given)


class TestOneUserWithFourJobsOnTwoWorkers:
    @pytest.mark.parametrize(
        ("within_user", "expected"),
        [
            ("fast", [0, 1, 0, 1]),
            ("equal", [0.5] * 4),
            ("fifo", [1, 1, 0, 0]),
            ("shortest_job_first", [0, 1, 0, 1]),
        ],
    )
    def test_each_order_serves_its_own_way(self, within_user: str, expected: list[float]) -> None:
        problem = ends(4000.0, 10.0, 3000.0, 20.0, within_user=within_user)
        assert service(problem) == pytest.approx(expected, abs=TOLERANCE)

    def test_of_jobs_of_one_length_the_earlier_ones_go_first(self) -> None:
        assert service(ends(70.0, 70.0, 70.0, 70.0)) == pytest.approx([1, 1, 0, 0], abs=TOLERANCE)

    def test_a_weight_counts_against_a_length(self) -> None:
        weighted = ends(4000.0, 10.0, 3000.0, 20.0, weight=[9.0, 1.0, 1.0, 1.0])
        assert service(weighted) == pytest.approx([1, 1, 0, 0], abs=TOLERANCE)

    def test_a_late_job_keeps_what_a_slice_of_its_own_would_give_it(self) -> None:
        late = ends(4000.0, 10.0, 3000.0, 20.0, age_s=[5000.0, 0.0, 0.0, 0.0])
        assert service(late)[0] == pytest.approx(0.5, abs=TOLERANCE)
        assert service(late)[1] == pytest.approx(1.0, abs=TOLERANCE)

    def test_jobs_whose_lengths_ran_out_go_first_and_nobody_fails(self) -> None:
        assert service(ends(0.0, 50.0, 0.0, 60.0)) == pytest.approx([1, 0, 1, 0], abs=TOLERANCE)


@few_examples
@given(seed=st.integers(0, 10**6), orders=st.tuples(*[st.sampled_from(["fast", "equal"])] * 3))
def test_no_user_has_less_for_the_order_that_any_tier_chooses(seed: int, orders: tuple[str, ...]) -> None:
    tiers = [Tier(name=str(place), within_user=order) for place, order in enumerate(orders)]
    problem = a_cluster(seed, tiers=tiers)
    problem = replace(problem, weight=np.ones(len(problem.weight)))
    after = of_users(problem, service(problem))
    for user, before in of_users(problem, service(as_alike(problem))).items():
        assert after[user] >= before - TOLERANCE, user


@few_examples
@given(seed=st.integers(0, 10**6), order=st.sampled_from(["fifo", "shortest_job_first"]))
def test_users_of_a_tier_rise_together_where_their_jobs_go_one_after_the_other(seed: int, order: str) -> None:
    """Nobody who could use more has less than another: jobs at one step a second, more than there are workers."""
    draw = np.random.default_rng(seed)
    jobs, users = int(draw.integers(4, 13)), int(draw.integers(2, 4))
    problem = a_problem(
        [[1.0]] * jobs * users,
        [int(draw.integers(1, jobs))],
        steps_remaining=draw.uniform(1.0, 1e4, jobs * users),
        users=USERS[:users] * jobs,
        tiers=(replace(FAST, within_user=order),),
    )
    got = list(of_users(problem, service(problem)).values())
    assert got == pytest.approx([problem.capacity_workers[0] / users] * users, abs=TOLERANCE)


@few_examples
@given(seed=st.integers(0, 10**6), within_user=st.sampled_from(["fast", "equal"]))
def test_on_one_type_every_user_s_service_is_the_same_whatever_the_order(seed: int, within_user: str) -> None:
    draw = np.random.default_rng(seed)
    jobs = int(draw.integers(2, 13))
    problem = a_problem(
        draw.uniform(0.5, 9.0, (jobs, 1)),
        [int(draw.integers(1, 5))],
        steps_remaining=draw.uniform(1.0, 1e4, jobs),
        users=tuple(str(user) for user in draw.choice(USERS, jobs)),
        tiers=(replace(FAST, within_user=within_user),),
    )
    expected = of_users(problem, service(as_alike(problem)))
    assert of_users(problem, service(problem)) == pytest.approx(expected, abs=TOLERANCE)


@few_examples
@given(seed=st.integers(0, 10**6))
def test_who_understates_lengths_takes_nothing_from_another_user(seed: int) -> None:
    problem = a_cluster(seed)
    least = of_users(problem, service(as_alike(problem)))
    of_ann = np.asarray([user == "ann" for user in problem.users])
    lie = replace(problem, steps_remaining=np.where(of_ann, 1.0, problem.steps_remaining))
    for user, got in of_users(lie, service(lie)).items():
        assert got >= least[user] - TOLERANCE, user


@few_examples
@given(seed=st.integers(0, 10**6), weight=st.sampled_from([1e-9, 1e-3, 1e3, 1e9]))
def test_a_weight_however_large_takes_nothing_from_another_user(seed: int, weight: float) -> None:
    problem = a_cluster(seed)
    problem = replace(problem, weight=np.append(weight, problem.weight[1:]))
    least = of_users(problem, service(as_alike(problem)))
    allocation = solved(problem)
    assert not idle_pairs(problem, allocation).any()
    got = of_users(problem, measures.service(problem, allocation.time_fraction))
    others = [user for user in got if user[1] != problem.users[0]]
    assert all(got[user] >= least[user] - TOLERANCE for user in others)


@few_examples
@given(seed=st.integers(0, 10**6))
def test_a_late_job_never_falls_below_its_part_or_its_isolated_rate(seed: int) -> None:
    problem = a_cluster(seed)
    alike, got = service(as_alike(problem)), service(problem)
    share = measures.even_share(problem)
    isolated = measures.isolated_rate(problem, share) * measures.service_per_step(problem)
    far_behind = problem.age_s - problem.isolated_time_s >= 0.25 * measures.isolated_finish_s(problem, share)
    assert (got >= np.where(far_behind, np.minimum(alike, isolated), 0.0) - TOLERANCE).all()


@pytest.mark.parametrize("seed", seeds(12, 120))
def test_the_answer_by_prices_is_as_good_as_the_program_s(seed: int) -> None:
    tiers = (
        FAST,
        Tier(name="tight", cap=0.6, guarantee=0.2),
        Tier(name="together", objective="speed"),
        Tier(name="alike", within_user="equal", weight=2.0),
    )
    problem = a_cluster(seed, tiers=tiers)
    ours, theirs = solved(problem), Hierarchical().program(problem)
    assert (ours.certificate.dual_gap or 0.0) <= 1e-6 and (theirs.certificate.dual_gap or 0.0) <= 1e-6
    got = [measures.service(problem, each.time_fraction) for each in (ours, theirs)]
    assert got[0] == pytest.approx(got[1], rel=1e-3, abs=1e-3)


def test_many_jobs_are_placed_from_a_sample_as_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(5)
    jobs = 160
    problem = a_problem(
        draw.uniform(0.5, 9.0, (jobs, 3)),
        [9, 12, 15],
        steps_remaining=draw.uniform(1.0, 1e4, jobs),
        users=tuple(str(user) for user in draw.choice(USERS, jobs)),
        tiers=(FAST,),
    )
    at_once = solved(problem)
    monkeypatch.setattr(rearranged, "AT_ONCE", 20)
    sampled = solved(problem)
    assert at_once.solver == sampled.solver == SOLVER
    assert sampled.time_fraction == pytest.approx(at_once.time_fraction, abs=1e-6)


def arrays(jobs: int, seed: int = 7) -> AllocationProblem:
    """Jobs of a few arrays and users, alike but for what one user's tier keeps for each of its own."""
    draw = np.random.default_rng(seed)
    array = np.sort(draw.integers(0, max(2, jobs // 40), jobs))
    kinds = draw.uniform(0.5, 9.0, (6, 3))
    return a_problem(
        kinds[array % 6],
        np.maximum(1, np.asarray([3, 4, 5]) * jobs // 120),
        scale_factor=np.asarray([1, 1, 2])[array % 3],
        steps_remaining=draw.uniform(1.0, 1e4, array.max() + 1)[array],
        age_s=np.full(jobs, 100.0),
        isolated_time_s=np.full(jobs, 100.0),
        users=tuple(USERS[each % 3] for each in array),
        tiers=(FAST, Tier(name="alike", objective="finish_time_fairness"), Tier(name="line", objective="fifo")),
        tier_of_job=array % 4 % 3,
    )


def test_many_jobs_alike_are_placed_from_classes_as_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = arrays(240)
    at_once = solved(problem)
    monkeypatch.setattr(rearranged, "AT_ONCE", 20)
    from_classes = solved(problem)
    assert at_once.solver == from_classes.solver == SOLVER
    gains = [claims(problem, each) for each in (at_once, from_classes)]
    assert gains[1] == pytest.approx(gains[0], rel=1e-6)


def keepers(seed: int) -> Asked:
    """Jobs of few kinds, some of which keep what a valid allocation gives them: between nothing and all their time."""
    draw = np.random.default_rng(seed)
    jobs = int(draw.integers(4, 60))
    kind = draw.integers(0, 3, jobs)
    service = draw.uniform(0.2, 6.0, (3, 3))[kind]
    valid = draw.dirichlet(np.ones(3), jobs) * draw.random(jobs)[:, None] ** draw.choice([1, 6])
    least = np.where(draw.random(jobs) < 0.8, (valid * service).sum(axis=1), 0.0)
    return Asked(
        columns=SizeColumns.of_one(3),
        gain=draw.random((3, 3))[kind],
        service=service,
        scale=np.ones(jobs),
        group=np.full(jobs, -1),
        least=least,
        workers=valid.sum(axis=0) + 0.01,
        together=np.zeros(0),
        among=np.zeros((0, jobs), dtype=bool),
        capped=np.zeros((0, 3)),
    )


@pytest.mark.parametrize("seed", seeds(40, 1_000))
def test_what_a_class_has_is_dealt_out_so_that_each_job_keeps_its_own_within_its_time(seed: int) -> None:
    asked = keepers(seed)
    kinds = rearranged_alike.alike(asked)
    answer = placed(rearranged_alike.of_classes(asked, kinds))
    assert answer is not None
    dealt = rearranged_alike.expanded(asked, kinds, answer[0])
    assert dealt.min() >= 0.0 and dealt.sum(axis=1).max() <= 1 + 1e-9
    assert ((asked.service * dealt).sum(axis=1) >= asked.least - 1e-9).all()
    assert (dealt.sum(axis=0) <= asked.workers + 1e-9).all()


@pytest.mark.parametrize("seed", seeds(10, 200))
def test_classes_in_parts_come_to_the_greatest_total_of_all_jobs_by_themselves(seed: int) -> None:
    """Users' groups with gains that fall from job to job, and jobs that keep some, in a group or not; few kinds."""
    draw, asked = np.random.default_rng(seed), keepers(seed)
    group = np.where(draw.random(len(asked.least)) < 0.5, -1, draw.integers(0, 2, len(asked.least)))
    share = draw.random(len(group))[:, None] / len(group) * asked.workers * 0.5
    served = (asked.service * np.minimum(share, 1.0)).sum(axis=1)
    asked = replace(
        asked,
        gain=asked.service * draw.exponential(1.0, len(group))[:, None],
        group=group,
        together=np.bincount(group[group >= 0], served[group >= 0], minlength=2),
        workers=asked.workers + share.sum(axis=0),
    )
    answer, whole = rearranged_alike.by_classes(asked, rearranged_alike.alike(asked)), placed(asked)
    assert answer is not None and whole is not None
    fractions, apart, _ = answer
    assert apart <= 1e-8 and fractions.min() >= 0.0 and fractions.sum(axis=1).max() <= 1 + 1e-9
    assert (asked.gain * fractions).sum() == pytest.approx((asked.gain * whole[0]).sum(), rel=1e-7)


def fails(*_: object) -> None:
    raise SolveFailed("highs answered unknown")


@pytest.mark.parametrize("improved", [lowest_of_parts, fails])
def test_many_different_jobs_are_placed_by_prices_as_all_at_once(
    improved: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the prices of a sample cannot be improved: then more jobs are left to the linear program."""
    problem, draw = arrays(240), np.random.default_rng(1)
    rates = problem.throughput_steps_per_s * draw.lognormal(0.0, 0.3, 240)[:, None, None]
    problem = replace(problem, throughput_steps_per_s=rates)
    at_once = solved(problem)
    monkeypatch.setattr(rearranged, "AT_ONCE", 20)
    monkeypatch.setattr(rearranged_prices, "SAMPLE", 60)
    monkeypatch.setattr(rearranged_prices, "lowest_of_parts", improved)
    by_prices = solved(problem)
    assert by_prices.solver == at_once.solver == SOLVER
    assert claims(problem, by_prices) == pytest.approx(claims(problem, at_once), rel=1e-7)


def test_ten_thousand_jobs_are_rearranged_without_the_program() -> None:
    """The program takes minutes for so many, and a round would fall back on equal shares."""
    assert solved(arrays(12_000)).solver == SOLVER


def test_a_user_alone_on_the_cluster_has_the_order_of_rank_weighted_speed() -> None:
    """On one type, where service and speed are the same, nothing but the order is left to choose."""
    draw = np.random.default_rng(3)
    problem = replace(ends(*draw.uniform(1.0, 1e4, 9).tolist()), age_s=np.zeros(9))
    best = RankWeightedSpeed().allocate(problem)
    assert claims(problem, solved(problem)) == pytest.approx(claims(problem, best), rel=1e-3)


def test_users_of_a_speed_tier_are_not_kept_apart() -> None:
    both = ends(10.0, 20.0, 3000.0, 4000.0, users=("ann", "ann", "bob", "bob"))
    assert service(both) == pytest.approx([1, 0, 1, 0], abs=TOLERANCE)
    together = replace(both, tiers=(replace(FAST, objective="speed"),))
    assert service(together) == pytest.approx([1, 1, 0, 0], abs=TOLERANCE)
