"""The lean simulation decides like the driver whatever the policy: each registered one, with all of a problem."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gavel.policies import registry
from gavel.policies.registry import PolicyInfo
from gavel.types import Cluster, Node, Tier, Worker
from tests.simulator.test_lean import BESIDE, PUBLISHED, a_scenario, a_trace_job, assert_same
from tests.simulator.test_simulation import FULL
from workloads.traces.job import TraceJob

POLICIES = registry.available()
RULES: list[dict[str, Any]] = [
    {},
    {"backfill": True},
    {"solve_on": "event"},
    {"solve_on": "event", "allocation_interval_s": 35.0, "backfill": True},
    PUBLISHED,
]


def variants(policy: PolicyInfo) -> Iterator[str]:
    """The policy with its defaults, and with each other choice of each parameter that has choices."""
    yield policy.name
    for parameter in policy.parameters:
        others = [choice for choice in parameter.choices if choice != parameter.default]
        yield from (f"{policy.name}?{parameter.name}={choice}" for choice in others)


@dataclass(frozen=True)
class Drawn:
    """A job as it was drawn; its place in the trace makes its weight like no other's, so that no two are equal."""

    kind: str
    steps: int
    at_s: int
    size: int
    priority: int
    tier: str
    user: str
    cores: int
    deadline_after_s: int | None

    def job(self, index: int) -> TraceJob:
        after_s = self.deadline_after_s
        return a_trace_job(
            index,
            self.kind,
            self.steps,
            float(self.at_s),
            self.size,
            priority=self.priority,
            tier=self.tier,
            user=self.user,
            weight=1.0 + 0.0137 * index,
            cpu_cores=self.cores,
            memory_bytes=1000 * self.cores + 37 * index,
            deadline_at_s=None if after_s is None else self.at_s + after_s + 0.5,
        )


drawn_jobs = st.lists(
    st.builds(
        Drawn,
        kind=st.sampled_from(["steep", "flat"]),
        steps=st.integers(1, 300),
        at_s=st.integers(0, 90),
        size=st.sampled_from([1, 1, 1, 2]),
        priority=st.sampled_from([0, 0, 0, 1, 4, -2]),
        tier=st.sampled_from(["default", "gold", "lab", "team"]),
        user=st.sampled_from(["ann", "bob", "cem"]),
        cores=st.integers(1, 6),
        deadline_after_s=st.one_of(st.none(), st.integers(1, 200)),
    ),
    min_size=1,
    max_size=9,
)
objectives = st.sampled_from(sorted(registry.TIER_OBJECTIVES))
drawn_tiers = st.builds(
    lambda one, two, three, four, cap, weight: (
        Tier(name="default", objective=one),
        Tier(name="gold", objective=two, weight=weight, guarantee=0.25),
        Tier(name="lab", objective=three, cap=cap),
        Tier(name="team", objective=four, parent="lab", weight=2.0),
    ),
    objectives,
    objectives,
    objectives,
    objectives,
    st.sampled_from([1.0, 0.5]),
    st.sampled_from([1.0, 2.3]),
)


def a_cluster_with_memory(fast: int, slow: int) -> Cluster:
    workers = tuple(
        Worker(id=f"{name}-{i}", node=f"{name}-node-{i // 2}", accelerator_type=name, price_usd_per_hour=price)
        for name, count, price in (("fast", fast, 2.0), ("slow", slow, 0.7))
        for i in range(count)
    )
    names = dict.fromkeys(worker.node for worker in workers)
    nodes = tuple(Node(name=name, cpu_cores=8 + place, memory_bytes=9000) for place, name in enumerate(names))
    return Cluster(nodes=nodes, workers=workers)


@pytest.mark.small("hierarchical", "max_min_fairness", "equal_share", "fair_by_memory", "smallest_gang_first")
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@settings(max_examples=25 if FULL else 4, phases=(Phase.explicit, Phase.generate))
@given(drawn=drawn_jobs, tiers=drawn_tiers, rules=st.sampled_from(RULES), is_packed=st.booleans(), data=st.data())
def test_every_policy_plans_the_rounds_that_the_driver_plans(
    policy: PolicyInfo,
    drawn: list[Drawn],
    tiers: tuple[Tier, ...],
    rules: dict[str, Any],
    is_packed: bool,
    data: st.DataObject,
) -> None:
    spec = data.draw(st.sampled_from(list(variants(policy))))
    arrivals = sorted(drawn, key=lambda job: job.at_s)
    jobs = [each.job(index) for index, each in enumerate(arrivals)]
    scenario = a_scenario(a_cluster_with_memory(fast=2, slow=4), spec, space_sharing=is_packed, **rules)
    assert_same(jobs, replace(scenario, tiers=tiers, colocated=BESIDE if is_packed else None))


def jobs_of(rows: list[tuple[Any, ...]]) -> list[TraceJob]:
    return [
        a_trace_job(i, kind, steps, at_s, size, cpu_cores=cores, memory_bytes=memory, user=user, tier=tier, priority=p)
        for i, (at_s, kind, steps, size, cores, memory, user, tier, p) in enumerate(rows)
    ]


GANGS_THAT_DO_NOT_FIT: list[tuple[Any, ...]] = [
    (7, "flat", 220, 1, 5, 5000, "cem", "default", 0),
    (32, "steep", 160, 2, 6, 6037, "cem", "default", 0),
    (33, "flat", 236, 1, 2, 2074, "cem", "team", 0),
    (40, "flat", 300, 1, 5, 5111, "cem", "default", 1),
    (49, "steep", 221, 1, 5, 5148, "bob", "default", 0),
    (59, "steep", 69, 2, 3, 3185, "bob", "default", 0),
    (77, "steep", 230, 1, 2, 2222, "bob", "default", -2),
    (85, "flat", 151, 2, 2, 2259, "ann", "gold", -2),
    (89, "steep", 119, 1, 5, 5296, "bob", "team", 0),
]


def test_where_gangs_are_left_out_for_want_of_memory_the_order_of_types_stays() -> None:
    jobs = jobs_of(GANGS_THAT_DO_NOT_FIT)
    tiers = [Tier(name=name, objective="shortest_job_first") for name in ("default", "gold", "team")]
    cluster = a_cluster_with_memory(fast=2, slow=4)
    rules = {"planner": "published", "solve_on": "event"}
    assert_same(jobs, replace(a_scenario(cluster, "shortest_job_first?backfill=false", **rules), tiers=tuple(tiers)))


LEFT_TO_A_GANG_NOT_CHOSEN: list[tuple[Any, ...]] = [
    (6, "flat", 118, 1, 4, 4000, "cem", "lab", 0),
    (28, "steep", 120, 1, 6, 6037, "ann", "default", 1),
    (47, "steep", 300, 1, 1, 1074, "cem", "lab", -2),
    (51, "flat", 256, 1, 3, 3111, "bob", "gold", 4),
    (62, "flat", 115, 1, 4, 4148, "bob", "gold", 0),
    (62, "flat", 143, 2, 6, 6185, "bob", "default", 0),
    (72, "flat", 24, 1, 1, 1222, "cem", "team", 1),
    (75, "steep", 231, 1, 5, 5259, "ann", "lab", 1),
    (88, "flat", 83, 1, 5, 5296, "cem", "team", 0),
]


def test_what_a_round_leaves_free_for_want_of_memory_is_filled_at_its_start() -> None:
    jobs = jobs_of(LEFT_TO_A_GANG_NOT_CHOSEN)
    tiers = tuple(Tier(name=name) for name in ("default", "gold", "lab", "team"))
    rules = {"solve_on": "event", "allocation_interval_s": 35.0, "backfill": True, "space_sharing": True}
    scenario = a_scenario(a_cluster_with_memory(fast=2, slow=4), "max_min_fairness?agnostic=true", **rules)
    assert_same(jobs, replace(scenario, tiers=tiers, colocated=BESIDE))
