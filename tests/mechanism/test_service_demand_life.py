"""Services that follow a demand in a whole scheduler: on a virtual cluster, beside jobs that want all that is free."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gavel.mechanism.services.demand import PARTS, part_s
from gavel.types import Cluster, DemandSpec, DemandStatus, Load, Observation
from gavel.types.services import ANY_TYPE
from tests.mechanism.test_service_life import DRAIN_S, GOOD, LOADS_S, ServiceWorld, ServingCluster, four_nodes
from tests.mechanism.world import a_cluster_of_nodes

DOWN_AFTER_S = 60.0


class CountingCluster(ServingCluster):
    """The replicas that are ready share `demand` requests per second, and count them."""

    demand = 0.0

    def observe(self) -> Observation:
        seen = super().observe()
        ready = sum(bool(gang.endpoint) for gang in seen.gangs)
        load = Load(requests_per_s=self.demand / ready) if ready else None
        gangs = tuple(replace(gang, load=load if gang.endpoint else None) for gang in seen.gangs)
        self.seen = replace(seen, gangs=gangs)
        return self.seen


class DemandWorld(ServiceWorld):
    """A service with a demand of 10 requests a second, which is stated unless `is_measured`."""

    def __init__(
        self, rates: Mapping[str, float], cluster: Cluster | None = None, *, is_measured: bool = False, **fields: Any
    ) -> None:
        demand = DemandSpec(rates=rates, stated=None if is_measured else 10.0, down_after_s=DOWN_AFTER_S)
        super().__init__(cluster or four_nodes(), **({"replicas": 1, "demand": demand, "replicas_max": 6} | fields))
        self.world.backend.__class__ = CountingCluster

    @property
    def demand(self) -> DemandStatus:
        assert self.status.demand
        return self.status.demand

    @property
    def types(self) -> Counter[str]:
        return Counter(job.spec.accelerator_types[0] for job in self.endpoints)

    def measure(self, requests_per_s: float) -> None:
        assert isinstance(self.world.backend, CountingCluster)
        self.world.backend.demand = requests_per_s


def test_the_number_follows_a_stated_demand_and_the_job_says_why() -> None:
    there = DemandWorld({ANY_TYPE: 5.0})
    there.run(lambda: len(there.endpoints) == 3)
    assert there.job.message == (
        "3 of 3 replicas are ready. It is asked for 10 requests/s; with headroom that needs 12, "
        "and 3 replicas answer 15."
    )
    assert there.demand.lead_s >= LOADS_S
    there.edit(demand=2.0)
    changed_s = there.world.clock.now_s()
    there.run(lambda: len(there.replicas) < 3)
    assert there.world.clock.now_s() - changed_s >= DOWN_AFTER_S
    there.run(lambda: len(there.replicas) == 1)
    assert there.world.clock.now_s() - changed_s <= DOWN_AFTER_S * (1 + 2 / PARTS) + DRAIN_S + 10.0


def test_no_replicas_without_a_demand_and_some_again_with_one() -> None:
    there = DemandWorld({ANY_TYPE: 5.0}, replicas_min=0)
    there.edit(demand=0.0)
    there.run(lambda: not there.replicas)
    there.edit(demand=1.0)
    there.run(lambda: len(there.endpoints) == 1)


def test_the_number_follows_what_replicas_count() -> None:
    there = DemandWorld({ANY_TYPE: 5.0}, is_measured=True, replicas_min=1)
    there.run(lambda: len(there.endpoints) == 1)
    there.measure(20.0)
    there.run(lambda: len(there.endpoints) == 5)
    there.measure(3.0)
    there.run(lambda: len(there.replicas) == 1)
    assert there.demand.level == 3.0


def test_replicas_are_of_the_types_on_which_training_loses_least() -> None:
    """A job makes 10 steps on a fast worker and 5 on a slow one: a slow one costs half as much and answers as much."""
    cluster = a_cluster_of_nodes(n0="fast fast fast fast", n1="slow slow slow slow")
    there = DemandWorld({"fast": 5.0, "slow": 4.0}, cluster, others=12, replicas_min=0)
    there.edit(demand=0.0)
    there.run(lambda: any(there.world.job(each).steps_done for each in there.others))
    there.edit(demand=5.0)
    there.run(lambda: there.types == {"slow": 2})
    there.edit(demand=20.0)
    there.run(lambda: there.demand.replicas == dict(there.types))
    assert there.service.demand
    assert there.service.demand.answered(there.types) >= 20.0 * 1.2
    assert there.types["slow"] == 4


def test_a_new_version_takes_no_more_replicas_than_the_demand_and_one() -> None:
    there = DemandWorld({ANY_TYPE: 5.0})
    there.run(lambda: len(there.endpoints) == 3 and there.status.stable == 1)
    there.edit(program={"argv": GOOD})
    most = 0

    def watch() -> None:
        nonlocal most
        most = max(most, sum(job.leaving_at_s is None for job in there.replicas))
        assert len(there.endpoints) >= there.service.available_of(3)

    there.run(lambda: there.status.stable == 2, watch)
    assert most == 4
    assert there.demand.replicas == {ANY_TYPE: 3}


def test_a_demand_that_never_changes_is_not_stored_at_every_tick() -> None:
    there = DemandWorld({ANY_TYPE: 5.0}, others=0)
    there.run(lambda: len(there.endpoints) == 3)
    before, from_s = there.job.version, there.world.clock.now_s()
    there.world.run_until_s(from_s + 10 * DOWN_AFTER_S)
    assert there.job.version - before <= 10 * PARTS + 5


def test_a_demand_that_goes_up_and_down_a_little_is_stored_a_few_times_in_each_part() -> None:
    there = DemandWorld({ANY_TYPE: 5.0}, others=0, is_measured=True)
    there.measure(10.0)
    there.run(lambda: len(there.endpoints) == 3)
    before, from_s, most = there.job.version, there.world.clock.now_s(), 0.0
    for tick in range(600):
        there.measure(10.0 + 0.5 * ((tick * 7919) % 13) / 13)
        there.world.driver.tick()
        there.world.clock.wait(there.world.clock.now_s() + 0.25)
        assert there.demand.recent
        most = max(most, there.demand.recent[-1][1])
    passed_s = there.world.clock.now_s() - from_s
    assert there.job.version - before <= 4 * passed_s / part_s(DOWN_AFTER_S) + 5
    assert most >= 10.4, "the largest is not lost"


def test_another_rate_headroom_or_bound_changes_the_number_from_then_on() -> None:
    there = DemandWorld({ANY_TYPE: 5.0}, others=0)
    there.run(lambda: len(there.endpoints) == 3)
    there.edit(rates={ANY_TYPE: 3.0})
    there.run(lambda: len(there.endpoints) == 4)
    there.edit(headroom=0.6)
    there.run(lambda: len(there.endpoints) == 6)  # 10 * 1.6 / 3
    there.edit(replicas_max=2)
    there.run(lambda: len(there.replicas) == 2)
    assert there.demand.bound == "replicas_max"
    there.edit(replicas_min=5, replicas_max=8, rates={ANY_TYPE: 20.0})
    there.run(lambda: len(there.endpoints) == 5)
    assert (there.demand.bound, there.service.replicas) == ("replicas_min", 5)


def test_a_type_that_gets_no_rate_any_more_is_left_without_a_gap() -> None:
    cluster = a_cluster_of_nodes(n0="fast fast fast fast", n1="slow slow slow slow")
    there = DemandWorld({"fast": 5.0}, cluster, others=0)
    there.run(lambda: there.types == {"fast": 3})

    def watch() -> None:
        assert len(there.endpoints) >= there.service.available_of(3)

    there.edit(rates={"slow": 4.0})
    there.run(lambda: there.types == {"slow": 3} and len(there.replicas) == 3, watch)
    there.edit(rates={ANY_TYPE: 5.0})
    there.run(
        lambda: len(there.replicas) == 3 and all(not job.spec.accelerator_types for job in there.endpoints), watch
    )
