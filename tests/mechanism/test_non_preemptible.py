"""Who stays whatever is planned: jobs that cannot be preempted, as far as their workers and windows go."""

from typing import Any

import pytest

from gavel.mechanism.planning.non_preemptible import staying, without_ended
from gavel.mechanism.tick import Tick
from gavel.ports import Snapshot
from gavel.types import Job, JobState, Lease, NodeState, NodeStatus, Observation
from tests.builders import a_cluster, a_job
from tests.mechanism.test_backfill import a_lease, a_plan
from tests.mechanism.world import World, a_cluster_of_nodes

DRAINING = NodeStatus(name="node-0", state=NodeState.DRAINING, is_cordoned=True, drain_by_s=14.0)


def holding(job_id: str, generation: int = 1, *, preemptible: bool = False, **over: Any) -> Job:
    return a_job(job_id, spec={"preemptible": preemptible}, generation=generation, state=JobState.LEASED, **over)


def stay(jobs: list[Job], leases: list[Lease], *nodes: NodeStatus) -> tuple[Lease, ...]:
    """Of a round [0, 10) into the next."""
    tick = Tick(
        now_s=8.0,
        seen=Observation(observed_at_s=8.0, cluster=a_cluster(fast=3)),
        snapshot=Snapshot(version=0, jobs={}, tiers={}),
        jobs={job.id: job for job in jobs},
        nodes={node.name: node for node in nodes},
    )
    return staying(tick, a_plan(leases), starts_at_s=10.0, ends_at_s=20.0)


def test_a_gang_stays_on_its_workers_under_its_token_to_the_end_of_the_round() -> None:
    (lease,) = stay(
        [holding("a"), holding("b", preemptible=True)], [a_lease("a", 1, "fast-0"), a_lease("b", 1, "fast-1")]
    )
    assert (lease.job_id, lease.generation, lease.worker_ids) == ("a", 1, ("fast-0",))
    assert (lease.round_index, lease.expires_at_s, lease.starts_at_s) == (4, 20.0, None)


def test_it_stays_no_longer_than_the_window_of_a_drain() -> None:
    assert [lease.expires_at_s for lease in stay([holding("a")], [a_lease("a", 1, "fast-0")], DRAINING)] == [14.0]


def test_who_is_not_wanted_not_there_or_only_measured_does_not_stay() -> None:
    assert stay([holding("a", cancel_requested=True)], [a_lease("a", 1, "fast-0")]) == ()
    assert stay([holding("a", pause_requested=True)], [a_lease("a", 1, "fast-0")]) == ()
    assert stay([holding("a", generation=2)], [a_lease("a", 1, "fast-0")]) == ()
    assert stay([holding("a")], [a_lease("a", 1, "fast-7")]) == ()
    assert stay([holding("a")], [a_lease("a", 1, "fast-0", is_profiling=True)]) == ()


def test_a_packed_gang_stays_with_its_partner_only_if_both_stay() -> None:
    pair = [a_lease(job_id, 1, "fast-0", combination=("a", "b")) for job_id in ("a", "b")]
    both = stay([holding("a"), holding("b")], pair)
    assert [lease.combination for lease in both] == [("a", "b")] * 2
    (alone,) = stay([holding("a"), holding("b", preemptible=True)], pair)
    assert (alone.job_id, alone.combination) == ("a", ("a",))


def test_leases_that_were_cut_are_no_part_of_the_plan_to_go_on_from() -> None:
    cut, live = a_lease("a", 1, "fast-0", expires_at_s=4.0), a_lease("b", 1, "fast-0", starts_at_s=4.0)
    assert without_ended(a_plan([cut, live]), 8.0).leases == (live,)


def test_a_drain_that_is_taken_back_leaves_it_its_workers() -> None:
    """Its lease had been cut at the end of the window, and the next round gave its worker to somebody else."""
    world = World(cluster=a_cluster_of_nodes(n0="fast", n1="fast"))
    session = world.submit(10_000, preemptible=False)
    world.run(lambda: world.job(session).has_reported)
    others = [world.submit(10_000, user="bob") for _ in range(3)]
    node = next(name for name in ("n0", "n1") if session in world.holding(name))
    next_round_s = world.store.snapshot().round_records[-1].plan.ends_at_s
    world.ask("node.drain", f"node/{node}", window_s=next_round_s + 4.0 - world.clock.now_s())
    world.run_until_s(next_round_s + 2.0)
    world.ask("node.uncordon", f"node/{node}")
    world.run_until_s(next_round_s + 40.0)
    job = world.job(session)
    assert (job.state, job.generation, job.preemptions) == (JobState.LEASED, 1, 0)
    assert all(world.job(each).losses == 0 for each in others)


@pytest.mark.parametrize("others", [0, 3])
def test_a_drain_that_is_taken_back_after_the_next_round_was_planned_leaves_it_there(others: int) -> None:
    """1 the drain would end it with the round, 2 the next one is planned without it, or with it on the other node, 3
    the node is opened again before the round ends."""
    world = World(cluster=a_cluster_of_nodes(n0="fast", n1="fast"))
    session = world.submit(10_000, preemptible=False)
    world.run(lambda: world.job(session).has_reported)
    later = [world.submit(10_000, user="bob") for _ in range(others)]
    node = next(name for name in ("n0", "n1") if session in world.holding(name))
    force = world.store.snapshot().round_records[-1].plan
    world.ask("node.drain", f"node/{node}", window_s=force.ends_at_s - world.clock.now_s())
    world.run(lambda: world.store.snapshot().round_records[-1].plan.round_index > force.round_index)
    assert world.clock.now_s() < force.ends_at_s
    world.ask("node.uncordon", f"node/{node}")
    world.run_until_s(force.ends_at_s + 40.0)
    job = world.job(session)
    assert (job.state, job.generation, job.preemptions) == (JobState.LEASED, 1, 0)
    assert all(world.job(each).losses == 0 for each in later)


def test_it_is_never_measured_in_a_lease_that_ends_with_its_round() -> None:
    world = World(cluster=a_cluster(fast=2, slow=2))
    stays = [world.submit(900, preemptible=False) for _ in range(4)]
    world.run(lambda: all(world.job(each).state.is_terminal for each in stays))
    leases = [lease for each in stays for lease in world.leases_of(each)]
    assert leases and not any(lease.is_profiling for lease in leases)
    assert [world.job(each).preemptions for each in stays] == [0] * len(stays)
