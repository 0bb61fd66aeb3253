"""Who stays whatever is planned: jobs that cannot be preempted, as far as their workers and windows go."""

from typing import Any

from gavel.mechanism.planning.non_preemptible import staying, without_ended
from gavel.mechanism.tick import Tick
from gavel.ports import Snapshot
from gavel.types import Job, JobState, Lease, NodeState, NodeStatus, Observation
from tests.builders import a_cluster, a_job
from tests.mechanism.test_backfill import a_lease, a_plan
from tests.mechanism.world import World

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


def test_it_is_never_measured_in_a_lease_that_ends_with_its_round() -> None:
    world = World(cluster=a_cluster(fast=2, slow=2))
    stays = [world.submit(900, preemptible=False) for _ in range(4)]
    world.run(lambda: all(world.job(each).state.is_terminal for each in stays))
    leases = [lease for each in stays for lease in world.leases_of(each)]
    assert leases and not any(lease.is_profiling for lease in leases)
    assert [world.job(each).preemptions for each in stays] == [0] * len(stays)
