"""The lean simulation decides like the driver: the same rounds, gangs, workers and completion times."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from gavel.clock import ManualClock
from gavel.config import Settings
from gavel.errors import InvalidRequest, SolveFailed
from gavel.mechanism.planning.problem import problem_of
from gavel.policies.inline import InlineRunner
from gavel.simulator.cluster import VirtualCluster
from gavel.simulator.lean import LeanWorld, simulate
from gavel.simulator.oracle import OracleThroughputs
from gavel.simulator.outcome import Scenario, SimulationOutcome
from gavel.simulator.simulation import LEASE_GRACE_S, World
from gavel.types import Allocation, AllocationProblem, Cluster, Node, Tier, Worker
from tests.builders import a_spec
from tests.simulator.test_simulation import FULL
from workloads.traces.job import TraceJob

Plan = tuple[float, dict[str, tuple[str, tuple[str, ...]]]]
RATES = {  # odd ones, so that no job ends at the very boundary of a round, where the driver's lease grace would show
    (kind, size, name): rate * 1.00371 * size**0.9
    for kind, rates in {"steep": {"fast": 4.0, "slow": 1.0}, "flat": {"fast": 1.0, "slow": 1.1}}.items()
    for size in (1, 2, 4)
    for name, rate in rates.items()
}
RATES["flat", 4, "slow"] = 0.0
RUNNER = InlineRunner()  # one for all, as it takes a while to get warm
PUBLISHED = {"planner": "published", "solve_on": "event", "allocation_interval_s": 40.0}


def a_cluster_of_nodes(per_node: int = 2, **workers: int) -> Cluster:
    placed = tuple(
        Worker(id=f"{name}-{i}", node=f"{name}-node-{i // per_node}", accelerator_type=name)
        for name, count in workers.items()
        for i in range(count)
    )
    return Cluster(nodes=tuple(Node(name=each) for each in dict.fromkeys(w.node for w in placed)), workers=placed)


def a_trace_job(index: int, kind: str, steps: int, at_s: float = 0.0, size: int = 1, **over: Any) -> TraceJob:
    fields = {"kind": kind, "name": f"job-{index}", "total_steps": steps, "scale_factor": size, "tier": "default"}
    return TraceJob(submitted_at_s=at_s, spec=a_spec(**fields | over))


def a_scenario(cluster: Cluster, policy: str, **over: Any) -> Scenario:
    fields = {"round_duration_s": 10.0, "planning_lead_fraction": 0.0, "backfill": False, **over}
    return Scenario(cluster=cluster, throughput=RATES, settings=Settings(policy=policy, **fields))


def rounds_of_driver(jobs: list[TraceJob], scenario: Scenario) -> tuple[list[Plan], dict[str, float | None]]:
    """The plans that the production driver commits, by job name, and when each job ended."""
    clock = ManualClock()
    colocated = scenario.colocated or {}
    costs_s, rates = scenario.switch_cost_s, scenario.throughput
    backend = VirtualCluster(scenario.cluster, rates, clock, costs_s, LEASE_GRACE_S, colocated=colocated)
    world = World(backend, clock, scenario.settings, OracleThroughputs(rates, colocated), runner=RUNNER)
    world.add_tiers(scenario.tiers)
    ended, _ = world.run(jobs, 100_000)
    name_of = {job.id: job.spec.name for job in ended}
    plans: list[Plan] = []
    for index in range(1, world.rounds() + 1):
        plan = world.store.round(index).plan
        begun = [lease for lease in plan.leases if lease.starts_at_s is None]  # not in the middle of the round
        plans.append((plan.starts_at_s, {name_of[x.job_id]: (x.accelerator_type, x.worker_ids) for x in begun}))
    return plans, {job.spec.name: job.finished_at_s for job in ended}


def rounds_of_lean(jobs: list[TraceJob], scenario: Scenario) -> tuple[list[Plan], dict[str, float | None]]:
    is_elastic = any(job.spec.has_choice for job in jobs)
    world = LeanWorld(jobs, replace(scenario, is_elastic=is_elastic), RUNNER)
    plans = [(plan[0], {f"job-{index}": gang for index, gang in world.named(plan).items()}) for plan in world.rounds()]
    result = world.result()
    assert result.tally.failed_solves == 0  # else fallbacks were compared, and not what the policy answers
    return plans, {row.name: row.finished_at_s for row in result.rows}


def assert_same(jobs: list[TraceJob], scenario: Scenario) -> None:
    plans, ended = rounds_of_lean(jobs, scenario)
    expected_plans, expected_ended = rounds_of_driver(jobs, scenario)
    for (at_s, gangs), (expected_at_s, expected) in zip(plans, expected_plans, strict=False):
        assert at_s == pytest.approx(expected_at_s, abs=1e-5)
        assert gangs == expected, f"at {at_s} s"
    assert len(plans) == len(expected_plans)
    assert ended == pytest.approx(expected_ended, abs=1e-5)


trace_jobs = st.lists(
    st.tuples(
        st.sampled_from(["steep", "flat"]), st.integers(1, 300), st.integers(0, 90), st.sampled_from([1, 1, 1, 2, 4])
    ),
    min_size=1,
    max_size=9,
)


RULES = [
    {},
    {"backfill": True},
    PUBLISHED,
    PUBLISHED | {"backfill": True},
    PUBLISHED | {"planner": "published_shuffled"},
]
OWED_ON_ANOTHER_TYPE = [  # workers of one type get free while jobs wait whose lag is on the other
    ("steep", 219, 41, 2),
    ("flat", 182, 89, 2),
    ("flat", 276, 86, 1),
    ("steep", 219, 31, 1),
    ("steep", 73, 39, 2),
    ("flat", 299, 8, 4),
    ("flat", 182, 89, 2),
    ("steep", 73, 39, 2),
    ("flat", 299, 8, 4),
]
SLOWED_DOWN_WITHIN_A_STEP = [  # a partner comes in the middle of a step: its time is no cost of the gang's stop
    ("flat", 214, 5, 1),
    ("flat", 228, 24, 2),
    ("flat", 2, 28, 4),
    ("flat", 228, 24, 2),
    ("flat", 51, 73, 2),
    ("flat", 38, 2, 4),
    ("flat", 260, 68, 1),
    ("flat", 228, 24, 2),
    ("steep", 125, 80, 2),
]


@pytest.mark.parametrize("over", RULES, ids=str)
@settings(
    max_examples=60 if FULL else 8,
    phases=(Phase.explicit, Phase.generate),  # to shrink a whole run takes minutes
)
@example(drawn=OWED_ON_ANOTHER_TYPE, policy="fifo")
@given(drawn=trace_jobs, policy=st.sampled_from(["max_min_fairness?water_filling=false", "equal_share", "fifo"]))
def test_it_plans_the_rounds_that_the_driver_plans(
    over: dict[str, Any], drawn: list[tuple[str, int, int, int]], policy: str
) -> None:
    arrivals = sorted(drawn, key=lambda job: job[2])
    jobs = [a_trace_job(i, kind, steps, float(at_s), size) for i, (kind, steps, at_s, size) in enumerate(arrivals)]
    assert_same(jobs, a_scenario(a_cluster_of_nodes(fast=4, slow=4), policy, **over))


@pytest.mark.parametrize("backfill", [False, True])
@settings(max_examples=60 if FULL else 8, phases=(Phase.explicit, Phase.generate))
@given(drawn=trace_jobs, is_capped=st.lists(st.booleans(), min_size=9, max_size=9))
def test_it_keeps_the_jobs_of_a_capped_tier_from_what_is_left_as_the_driver_does(
    backfill: bool, drawn: list[tuple[str, int, int, int]], is_capped: list[bool]
) -> None:
    """The tier under the one with the cap is held to it too."""
    arrivals = sorted(drawn, key=lambda job: job[2])
    tiers = (Tier(name="default"), Tier(name="half", cap=0.5), Tier(name="part", parent="half"))
    jobs = [
        a_trace_job(i, kind, steps, float(at_s), min(size, 2), tier="part" if capped else "default")
        for i, ((kind, steps, at_s, size), capped) in enumerate(zip(arrivals, is_capped, strict=False))
    ]
    scenario = a_scenario(a_cluster_of_nodes(fast=4, slow=4), "max_min_fairness?water_filling=false", backfill=backfill)
    assert_same(jobs, replace(scenario, tiers=tiers))


@pytest.mark.parametrize("over", [{}, {"start_limit_s": 45.0}, PUBLISHED, {"colocated": True}], ids=str)
@settings(max_examples=60 if FULL else 3, phases=(Phase.explicit, Phase.generate))
@given(drawn=trace_jobs, steep=st.integers(1, 39), flat=st.integers(1, 39))
def test_it_keeps_the_gangs_that_still_start_as_the_driver_does(
    over: dict[str, Any], drawn: list[tuple[str, int, int, int]], steep: int, flat: int
) -> None:
    """Few workers, and starts of up to four rounds, odd ones again: without the rule some jobs would never train."""
    rules = {**over}
    is_packed = rules.pop("colocated", False)
    arrivals = sorted((job for job in drawn if job[3] < 4), key=lambda job: job[2])
    jobs = [
        a_trace_job(i, kind, min(steps, 99), float(at_s), size, weight=1.0 + 0.0137 * i)
        for i, (kind, steps, at_s, size) in enumerate(arrivals)
    ]
    policy = PACKED if is_packed else "equal_share"
    rules |= {"space_sharing": True} if is_packed else {}
    scenario = a_scenario(a_cluster_of_nodes(fast=2, slow=2), policy, price_moves=False, **rules)
    scenario = replace(scenario, switch_cost_s={"steep": steep * 1.00371, "flat": flat * 1.00371})
    assert_same(jobs, replace(scenario, colocated=BESIDE) if is_packed else scenario)


PACKED = "max_total_relative_speed?ageing=none"
BESIDE = {
    (one, other, size, name): share * RATES[one, size, name]
    for one, other, share in (("steep", "flat", 0.81), ("flat", "steep", 0.67), ("flat", "flat", 0.59))
    for size in (1, 2)
    for name in ("fast", "slow")
}


@settings(
    max_examples=60 if FULL else 8,
    phases=(Phase.explicit, Phase.generate),
)
@example(drawn=SLOWED_DOWN_WITHIN_A_STEP, over={"backfill": True})
@given(drawn=trace_jobs, over=st.sampled_from([{}, {"solve_on": "event"}, {"backfill": True}]))
def test_it_packs_the_pairs_that_the_driver_packs(drawn: list[tuple[str, int, int, int]], over: dict[str, Any]) -> None:
    """Few workers, so that pairs pay; ages do not count, so that the answers do not hang on the last digit."""
    small = sorted((job for job in drawn if job[3] < 4), key=lambda job: job[2])
    jobs = [
        a_trace_job(i, kind, steps, float(at_s), size, weight=1.0 + 0.0137 * i)
        for i, (kind, steps, at_s, size) in enumerate(small)
    ]
    scenario = a_scenario(a_cluster_of_nodes(fast=2, slow=4), PACKED, space_sharing=True, **over)
    assert_same(jobs, replace(scenario, colocated=BESIDE))


def test_two_jobs_that_pay_to_pack_share_the_only_worker() -> None:
    """Side by side each makes 0.59 of its speed; when the short one ends, the long one has the worker for itself."""
    jobs = [a_trace_job(0, "flat", 30), a_trace_job(1, "flat", 60)]
    scenario = replace(a_scenario(a_cluster_of_nodes(fast=1), PACKED, space_sharing=True), colocated=BESIDE)
    rate, together = RATES["flat", 1, "fast"], BESIDE["flat", "flat", 1, "fast"]
    first_s = 30 / together
    result = simulate(jobs, scenario)
    assert [row.jct_s for row in result.rows] == [pytest.approx(first_s), pytest.approx(first_s + 30 / rate)]
    assert [row.packed_s for row in result.rows] == [pytest.approx(first_s)] * 2
    assert result.tally.packed > 0 and result.utilisation == pytest.approx(1.0)
    assert_same(jobs, scenario)


@pytest.mark.parametrize(("backfill", "starts_at_s"), [(False, [0.0, 10.0, 10.0]), (True, [0.0, 3.99, 6.0])])
def test_workers_that_are_free_within_a_round_are_given_at_once_if_that_is_wanted(
    backfill: bool, starts_at_s: list[float]
) -> None:
    """Rounds of 10 s, four workers, a gang of two on two of them: two jobs arrive in the middle of the first round."""
    rate, pair_rate = RATES["flat", 1, "fast"], RATES["flat", 2, "fast"]
    jobs = [
        a_trace_job(0, "flat", 200, size=2),
        a_trace_job(1, "flat", 4),
        a_trace_job(2, "flat", 50),
        a_trace_job(3, "flat", 50, at_s=6.0),
    ]
    scenario = a_scenario(a_cluster_of_nodes(4, fast=4), "fifo", backfill=backfill)
    rows = simulate([jobs[0], jobs[1], replace(jobs[2], submitted_at_s=4 / rate), jobs[3]], scenario).rows
    begun_s = [row.finished_at_s - row.fastest_s for row in rows]  # type: ignore[operator]
    assert begun_s[0] == pytest.approx(0.0) and rows[0].fastest_s == pytest.approx(200 / pair_rate)
    assert begun_s[1:] == pytest.approx(starts_at_s, abs=0.01)


def a_simulation(*jobs: TraceJob, policy: str = "equal_share", **over: Any) -> SimulationOutcome:
    measure, cost = over.pop("measure", None), over.pop("switch_cost_s", {})
    base = a_scenario(a_cluster_of_nodes(fast=1, slow=1), policy, **over)
    return simulate(
        jobs,
        Scenario(cluster=base.cluster, throughput=RATES, settings=base.settings, measure=measure, switch_cost_s=cost),
    )


def test_only_measured_jobs_count_and_arrivals_end_with_them() -> None:
    """Three jobs are measured; the endless stream behind them is not read to its end."""
    read: list[int] = []

    def endless() -> Any:
        for index in range(10_000):
            read.append(index)
            yield a_trace_job(index, "steep", 60, at_s=15.0 * index)

    result = simulate(
        endless(),
        Scenario(
            cluster=a_cluster_of_nodes(fast=1, slow=1),
            throughput=RATES,
            settings=Settings(policy="equal_share", round_duration_s=10.0),
            measure=(2, 5),
        ),
    )
    assert [row.name for row in result.rows] == ["job-2", "job-3", "job-4"]
    assert len(read) < 20


def test_a_start_costs_what_its_kind_costs() -> None:
    (row,) = a_simulation(a_trace_job(0, "steep", 100), switch_cost_s={"steep": 3.0}, policy="fifo").rows
    assert row.jct_s == pytest.approx(3.0 + 100 / RATES["steep", 1, "fast"])
    assert row.lost_s == 3.0


def test_a_gang_over_two_nodes_runs_at_the_rate_of_spread_gangs() -> None:
    """One worker a node: a gang of two has to talk over the network."""
    spread = {("steep", 2, "fast"): 0.5}
    for per_node, rate in ((2, RATES["steep", 2, "fast"]), (1, 0.5)):
        scenario = Scenario(
            cluster=a_cluster_of_nodes(per_node, fast=2),
            throughput=RATES,
            settings=Settings(policy="fifo", round_duration_s=10.0),
            spread=spread,
        )
        (row,) = simulate([a_trace_job(0, "steep", 100, size=2)], scenario).rows
        assert row.jct_s == pytest.approx(100 / rate)


def test_a_job_that_runs_nowhere_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match=r"job job-0 \(steep, 2 workers\) runs on none of fast, slow"):
        a_simulation(a_trace_job(0, "steep", 10, size=2))


def test_an_idle_cluster_waits_for_the_next_arrival() -> None:
    result = a_simulation(a_trace_job(0, "steep", 40), a_trace_job(1, "steep", 40, at_s=1234.5), policy="fifo")
    assert [row.jct_s for row in result.rows] == [pytest.approx(40 / RATES["steep", 1, "fast"])] * 2


class FailsAtFirst(InlineRunner):
    """A runner whose first solves fail."""

    left = 2

    def allocate(self, policy: str, problem: AllocationProblem, time_limit_s: float) -> Allocation:
        if self.left:
            self.left -= 1
            raise SolveFailed("not yet")
        return super().allocate(policy, problem, time_limit_s)


def test_a_solve_that_fails_costs_no_round_and_is_tried_again() -> None:
    scenario = a_scenario(a_cluster_of_nodes(fast=1, slow=1), "fifo", solve_on="event")
    result = simulate([a_trace_job(i, "steep", 400) for i in range(3)], scenario, runner=FailsAtFirst())
    assert result.tally.failed_solves == 2 and result.tally.solves >= 1
    assert len(result.rows) == 3 and result.tally.rounds < 40


@pytest.mark.parametrize(("policy", "made"), [("max_min_fairness", 2), ("finish_time_fairness", 11)])
def test_a_problem_is_made_only_where_its_answer_may_differ(
    policy: str, made: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. Two jobs arrive. 2. One ends in round 2 of 11. 3. Least attained service asks nothing but who is there."""
    problems: list[AllocationProblem] = []

    def counted(*args: Any, **fields: Any) -> AllocationProblem:
        problems.append(problem_of(*args, **fields))
        return problems[-1]

    monkeypatch.setattr("gavel.simulator.lean.problem_of", counted)
    scenario = a_scenario(a_cluster_of_nodes(fast=2), policy)
    world = LeanWorld([a_trace_job(0, "steep", 430), a_trace_job(1, "steep", 60)], scenario, RUNNER)
    assert len(list(world.rounds())) == 11
    assert len(problems) == made and len(problems[-1].job_ids) == 1
