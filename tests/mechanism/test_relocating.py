"""Jobs in several regions under the production driver, on a virtual cluster."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.clock import ManualClock
from gavel.config import RegionsSection, Settings
from gavel.mechanism.cluster.configured import in_regions
from gavel.mechanism.driver import Driver
from gavel.mechanism.planning.regions import Homes, MoveTerms, RegionProblem, choose_homes
from gavel.mechanism.planning.relocating import Relocation
from gavel.mechanism.tick import Tick
from gavel.policies.equal_share import EqualShare
from gavel.policies.inline import InlineRunner
from gavel.ports import Snapshot
from gavel.simulator.cluster import VirtualCluster
from gavel.simulator.oracle import OracleThroughputs
from gavel.simulator.simulation import LEASE_GRACE_S, World
from gavel.types import Cluster, Job, JobSpec, JobState, Node, Observation, Reason, Residence, Tier, Worker
from gavel.types.regions import LinkCopies
from tests.builders import a_job
from workloads.traces.job import TraceJob

GB = 10**9
ROUND_S = 60.0
RATES = {("k", size, name): rate * size for size in (1, 2) for name, rate in (("v100", 4.0), ("k80", 1.0))}


def cluster(**workers: Sequence[str]) -> Cluster:
    """A cluster with a node for each region: `eu=("v100", "v100")`."""
    return Cluster(
        nodes=tuple(Node(name=f"n-{region}", region=region) for region in workers),
        workers=tuple(
            Worker(id=f"{region}-{index}", node=f"n-{region}", accelerator_type=name)
            for region, types in workers.items()
            for index, name in enumerate(types)
        ),
    )


def job(name: str, *, at_s: float = 0.0, hours: float = 1.0, size: int = 1, **other: Any) -> TraceJob:
    """A job that takes so long on one v100."""
    spec = JobSpec(kind="k", user="ann", tier="default", argv=(), name=name, total_steps=int(hours * 4 * 3600))
    return TraceJob(submitted_at_s=at_s, spec=replace(spec, scale_factor=size, **other))


class Run:
    """A run, and what was seen in it: the last form of each job, and its states over time."""

    def __init__(self, where: Cluster, regions: RegionsSection | None, **overrides: Any) -> None:
        self.clock = ManualClock()
        chosen = Settings(
            policy="max_min_fairness",
            round_duration_s=ROUND_S,
            planning_lead_fraction=0.0,
            prices_usd_per_hour={},
            space_sharing=False,
            regions=regions,
            **overrides,
        )
        self.backend = VirtualCluster(where, RATES, self.clock, 0.0, LEASE_GRACE_S, checkpoint_bytes=GB)
        self.world = World(self.backend, self.clock, chosen, OracleThroughputs(RATES))
        self.world.add_tiers([Tier(name="default")])
        self.chosen = chosen

    def regions(self, section: RegionsSection) -> None:
        """Let another service take over, which tells regions apart."""
        self.driver = Driver(
            store=self.world.store,
            backend=self.backend,
            runner=InlineRunner(),
            estimator=OracleThroughputs(RATES),
            fallback=EqualShare(),
            clock=self.clock,
            settings=self.chosen.model_copy(update={"regions": section}),
        )

    def jobs(self, workload: Sequence[TraceJob]) -> Iterator[tuple[float, dict[str, Job]]]:
        """Yield the instant of each tick and all jobs by name."""
        for now_s in self.world.ticks(workload):
            yield now_s, self.now()

    def now(self) -> dict[str, Job]:
        """Return the jobs so far by name."""
        jobs = [self.world.store.job(job_id) for job_id in self.world.submitted]
        return {each.spec.name: each for each in jobs}

    def end(self, workload: Sequence[TraceJob]) -> dict[str, Job]:
        """Run until all jobs have ended."""
        for _ in self.jobs(workload):
            pass
        return self.now()


def test_a_job_stays_with_its_data_where_both_regions_are_free() -> None:
    ended = Run(cluster(eu=["v100"], us=["v100"]), RegionsSection()).end(
        [job("a", data_region="us", data_bytes=100 * GB)]
    )
    residence = ended["a"].residence
    assert (residence.region, residence.moves, residence.egress_bytes) == ("us", 0, 0)
    assert list(ended["a"].received_s) == ["v100@us"]
    assert "stays in us" in residence.why


def test_a_job_moves_once_the_region_is_crowded_and_waits_for_its_copy() -> None:
    run = Run(cluster(eu=["v100"], us=["v100"]), RegionsSection(gbit_s=8.0, usd_per_gb=0.001))
    waited: set[float] = set()
    for now_s, jobs in run.jobs([job(name, data_region="eu", data_bytes=100 * GB, hours=4) for name in "ab"]):
        for each in jobs.values():
            if each.residence.arrives_at_s > now_s:
                waited.add(each.residence.arrives_at_s)
                assert each.spec.home == each.residence.region == "us"
                assert each.state is JobState.QUEUED and each.reason is Reason.MOVING
    ended = run.now()
    moved = [each for each in ended.values() if each.residence.moves]
    (one,) = moved
    assert waited == {100.0}  # 100 GB at 8 Gbit/s
    assert (one.residence.egress_bytes, one.residence.egress_usd) == (100 * GB, pytest.approx(0.1))
    assert set(one.residence.copies) == {"eu", "us"}
    assert all(each.state is JobState.COMPLETED for each in ended.values())
    assert any(event.kind == "job.moved" for event in run.world.store.events(one.id))


def test_a_running_job_takes_its_checkpoint_along_and_copies_only_that_where_its_data_are() -> None:
    """1. Two jobs fill eu, which has the only worker. 2. A second region comes: one of them goes there."""
    run = Run(cluster(eu=["v100"], us=["v100"]), RegionsSection(gbit_s=8.0, interval_s=0.0))
    run.backend.drain_node("n-us")
    began, sizes = False, set[int]()
    for now_s, jobs in run.jobs([job(name, hours=3) for name in "ab"]):
        if now_s > 10 * ROUND_S and not began:
            began = True
            run.backend.return_node("n-us")
        sizes |= {each.residence.egress_bytes for each in jobs.values()}
    ended = run.now()
    assert sizes == {0, GB}
    assert sorted(each.residence.region for each in ended.values()) == ["eu", "us"]
    assert all(each.steps_done == each.total_steps for each in ended.values())


def test_a_clock_that_is_set_back_an_hour_holds_nobody_longer_than_the_copy_takes() -> None:
    """1 a job waits for a copy of 100 s, 2 the clock goes back an hour, 3 it looks at moves and waits for 100 s."""
    now_s, moving = 10_000.0, Residence(region="eu", moved_from="us", arrives_at_s=10_100.0, copy_s=100.0)
    jobs = {name: a_job(name, residence=own) for name, own in (("a", moving), ("b", Residence(region="eu")))}
    looks: list[int] = []

    def choose(problem: RegionProblem, terms: MoveTerms) -> Homes:
        looks.append(int(problem.may_move.sum()))
        return choose_homes(problem, terms)

    relocation = Relocation(RegionsSection(), choose)
    for at_s in (now_s, now_s + 1, now_s - 3600):
        seen = Observation(observed_at_s=at_s, cluster=in_regions(cluster(eu=["v100"], us=["v100"])))
        tick = Tick.of(at_s, seen, Snapshot(version=1, jobs=jobs, tiers={"default": Tier(name="default")}))
        tick.held = {"a": (Reason.MOVING, "")}
        relocation.settle(tick, OracleThroughputs(RATES))
        jobs = dict(tick.jobs)
    assert jobs["a"].residence.arrives_at_s == now_s - 3600 + 100
    assert looks == [1, 1], "at the first tick, and once the clock has gone back"


def test_a_pinned_job_stays_in_its_regions() -> None:
    pinned = [job(name, regions=("eu",), data_region="eu", data_bytes=GB) for name in "abc"]
    ended = Run(cluster(eu=["v100"], us=["v100", "v100"]), RegionsSection(interval_s=0.0)).end(pinned)
    assert {each.residence.region for each in ended.values()} == {"eu"}
    assert {name for each in ended.values() for name in each.received_s} == {"v100@eu"}


def test_a_job_that_may_not_be_where_its_data_are_takes_them_along() -> None:
    ended = Run(cluster(eu=["v100"], us=["v100"]), RegionsSection()).end(
        [job("a", regions=("us",), data_region="eu", data_bytes=GB)]
    )
    assert (ended["a"].residence.region, ended["a"].residence.egress_bytes) == ("us", GB)


def test_a_job_whose_data_nobody_can_reach_waits_for_them() -> None:
    run = Run(cluster(eu=["v100"], us=["v100"]), RegionsSection(interval_s=0.0))
    run.backend.drain_node("n-us")
    for now_s, jobs in run.jobs([job("a", data_region="us", data_bytes=GB), job("b", hours=0.5)]):
        if now_s < 1000:
            assert not jobs["a"].received_s and jobs["a"].spec.home == "us"
        elif "n-us" not in {node.name for node in run.backend.observe().cluster.nodes}:
            run.backend.return_node("n-us")
    assert list(run.now()["a"].received_s) == ["v100@us"]


@pytest.mark.parametrize("data_bytes", [0, GB])
def test_a_job_leaves_a_region_that_is_gone_for_long_if_its_data_are_not_there(data_bytes: int) -> None:
    """1 it runs in us, 2 us is lost, 3 after half an hour it goes on in eu; with data in us it waits for us."""
    run = Run(cluster(eu=["v100"], us=["v100"]), RegionsSection(interval_s=0.0, leave_after_s=1800.0))
    wanted = [job("a", data_region="us" if data_bytes else "", data_bytes=data_bytes, hours=2, regions=("us", "eu"))]
    lost, homes = False, dict[float, str]()
    run.backend.drain_node("n-eu")
    for now_s, jobs in run.jobs(wanted):
        if now_s >= 600 and not lost:
            lost = True
            assert jobs["a"].spec.home == "us" and jobs["a"].received_s
            run.backend.drain_node("n-us")
            run.backend.return_node("n-eu")
        homes[now_s] = jobs["a"].spec.home
        if now_s > 4000 and data_bytes:
            break
    assert {home for at_s, home in homes.items() if at_s < 600 + 1800} <= {"us", ""}
    after = run.now()["a"]
    assert after.spec.home == ("us" if data_bytes else "eu")
    assert (after.state is JobState.COMPLETED) is not bool(data_bytes)


def test_a_copy_takes_as_long_as_the_last_ones_did() -> None:
    """8 Gbit/s is stated, and 99 GB took 99 times 8 s: with the stated speed for 1 GB that is 100 GB in 793 s."""
    jobs = {"a": a_job("a", spec={"regions": ("us",), "data_region": "eu", "data_bytes": 100 * GB, "kind": "k"})}
    measured = LinkCopies(origin="eu", target="us", copies=9, gigabytes=99.0, seconds=792.0)
    for copies, seconds in (((), 100.0), ((measured,), 793.0)):
        where = in_regions(cluster(eu=["v100"], us=["v100"]))
        seen = Observation(observed_at_s=0.0, cluster=where, link_copies=copies)
        tick = Tick.of(0.0, seen, Snapshot(version=1, jobs=jobs, tiers={"gold": Tier(name="gold")}))
        Relocation(RegionsSection(gbit_s=8.0)).settle(tick, OracleThroughputs(RATES))
        assert tick.jobs["a"].residence.copy_s == pytest.approx(seconds)


def test_losing_a_region_leaves_the_others_as_they_are() -> None:
    run = Run(cluster(eu=["v100"], us=["v100"]), RegionsSection(interval_s=0.0))
    lost = back = False
    for now_s, jobs in run.jobs([job("a", data_region="eu", data_bytes=GB), job("b", data_region="us", data_bytes=GB)]):
        if now_s >= 600 and not lost:
            lost = True
            run.backend.drain_node("n-us")
        if now_s >= 1500 and not back:
            back = True
            assert jobs["b"].spec.home == "us" and jobs["b"].state is JobState.QUEUED
            assert jobs["a"].state is JobState.LEASED and jobs["a"].preemptions == 0
            run.backend.return_node("n-us")
    assert {name: list(each.received_s) for name, each in run.now().items()} == {"a": ["v100@eu"], "b": ["v100@us"]}


def test_without_the_setting_regions_make_no_difference() -> None:
    ended = Run(cluster(eu=["v100"], us=["v100"]), None).end([job("a"), job("b", size=2)])
    assert all(not each.residence.region for each in ended.values())
    assert list(ended["b"].received_s) == ["v100"]


def test_a_cluster_in_regions_names_each_type_by_its_region_once() -> None:
    named = in_regions(cluster(eu=["v100"], us=["v100", "k80"]))
    assert named.capacity_workers() == {"k80@us": 1, "v100@eu": 1, "v100@us": 1}
    assert in_regions(named) == named


@st.composite
def workloads(draw: st.DrawFn) -> tuple[Cluster, list[TraceJob]]:
    """Two or three regions with a few workers, and jobs, some of them gangs of two, with data and pins."""
    regions = draw(st.sampled_from((("eu", "us"), ("ap", "eu", "us"))))
    there = {region: draw(st.lists(st.sampled_from(("v100", "k80")), min_size=2, max_size=4)) for region in regions}
    there = {region: [*types, types[0]] for region, types in there.items()}  # a gang of two fits everywhere
    jobs = []
    for index in range(draw(st.integers(1, 8))):
        place, pins = draw(st.sampled_from(("", *regions))), draw(st.sets(st.sampled_from(regions)))
        size = {"data_bytes": draw(st.sampled_from((GB, 30 * GB, 200 * GB)))} if place else {}
        at_s, hours = draw(st.floats(0, 3000)), draw(st.sampled_from((0.1, 0.5, 1.0)))
        pinned = tuple(sorted(pins))
        gang = draw(st.sampled_from((1, 2)))
        jobs.append(job(f"j{index}", at_s=at_s, hours=hours, size=gang, data_region=place, regions=pinned, **size))
    return cluster(**there), jobs


@given(drawn=workloads(), usd=st.sampled_from((0.0, 0.02)))
@settings(max_examples=15, deadline=None)
def test_every_gang_is_in_one_region_that_is_its_home_and_allowed(
    drawn: tuple[Cluster, list[TraceJob]], usd: float
) -> None:
    where, workload = drawn
    region_of = {worker.id: worker.node.removeprefix("n-") for worker in where.workers}
    run = Run(where, RegionsSection(gbit_s=4.0, usd_per_gb=usd, interval_s=ROUND_S))
    for _, jobs in run.jobs(workload):
        by_id = {each.id: each for each in jobs.values()}
        for record in run.world.store.snapshot().round_records[-1:]:
            for lease in record.plan.leases:
                places = {region_of[worker] for worker in lease.worker_ids}
                assert len(places) == 1
                pins = by_id[lease.job_id].spec.regions
                assert not pins or places <= set(pins)
    assert all(each.state is JobState.COMPLETED for each in run.now().values())


def test_gangs_that_run_when_regions_are_told_apart_first_go_on_where_they_are() -> None:
    """1. A service without the section runs two jobs. 2. Another one with it takes over, on the same cluster."""
    run = Run(cluster(eu=["v100"], us=["v100"]), None)
    workload = [job("a", hours=1), job("b", hours=1)]
    for now_s, jobs in run.jobs(workload):
        if now_s >= 600:
            before = {name: each.steps_done for name, each in jobs.items()}
            break
    run.regions(RegionsSection())
    where: dict[str, set[str]] = {"a": set(), "b": set()}
    while run.world.store.snapshot().jobs:
        run.clock.wait(min(run.driver.tick(), run.backend.next_event_at_s()))
        for name, each in run.now().items():
            where[name].add(each.residence.region)
    assert all(each.state is JobState.COMPLETED for each in run.now().values())
    assert all(each.steps_done > before[name] for name, each in run.now().items())
    assert sorted(regions.difference({""}).pop() for regions in where.values()) == ["eu", "us"]
    assert all(each.residence.moves == 0 for each in run.now().values())
