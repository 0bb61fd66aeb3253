"""Which sessions join another one on its accelerators, compared by the leases of whole rounds."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gavel.mechanism.planning.shared_sessions import generation_beside, nodes_have_room, shares, with_sessions_that_join
from gavel.mechanism.tick import Tick
from gavel.types import (
    Cluster,
    Job,
    JobState,
    Lease,
    Needs,
    Node,
    NodeState,
    NodeStatus,
    Reason,
    RoundPlan,
    Tier,
    Worker,
)
from tests.builders import a_job
from tests.mechanism.test_backfill import a_lease, a_plan
from tests.mechanism.ticks import GOLD, tick_at

MEMORY = 16


def a_machine(*nodes: int, cores: int = 0, memory: int = MEMORY, **tiers: Any) -> Cluster:
    """Nodes with so many workers of type fast each: n0-0, n0-1 .. n1-0 .."""
    workers = tuple(
        Worker(id=f"n{row}-{index}", node=f"n{row}", accelerator_type="fast", memory_bytes=memory)
        for row, count in enumerate(nodes)
        for index in range(count)
    )
    return Cluster(nodes=tuple(Node(name=f"n{row}", cpu_cores=cores) for row in range(len(nodes))), workers=workers)


def a_session(job_id: str, share: float = 0.5, longest_s: float | None = 100.0, **over: Any) -> Job:
    spec = {"preemptible": False, "longest_s": longest_s, "accelerator_share": share, "accelerator_memory_bytes": 8}
    return a_job(job_id, spec=spec | over.pop("spec", {}), **over)


def running(job_id: str, **over: Any) -> Job:
    given: dict[str, Any] = {"state": JobState.LEASED, "generation": 1, "started_at_s": 0.0}
    return a_session(job_id, **given | over)


def on(job_id: str, *workers: str, generation: int = 1, **over: Any) -> Lease:
    """A lease of the round [10, 20)."""
    fields: dict[str, Any] = {"accelerator_type": "fast", "round_index": 4, "expires_at_s": 20.0}
    return a_lease(job_id, generation, *workers, **fields | over)


def a_tick(
    *jobs: Job, cluster: Cluster | None = None, tiers: Sequence[Tier] = (), now_s: float = 8.0, **over: Any
) -> Tick:
    return tick_at(now_s, cluster or a_machine(2), jobs, tiers=(GOLD, *tiers), **over)


def joined(tick: Tick, *kept: Lease, parent: RoundPlan | None = None) -> list[Lease]:
    return list(with_sessions_that_join(tick, parent, kept, round_duration_s=10.0))


HOST = on("h", "n0-0")


def pair_of(job_id: str, host: Lease = HOST, generation: int = 1, **over: Any) -> list[Lease]:
    """The leases of the host and of the one that joins it."""
    both = (host.job_id, job_id)
    return [
        replace(host, combination=both),
        replace(host, job_id=job_id, generation=generation, combination=both, **over),
    ]


# --- who joins ----------------------------------------------------------------------------------------------------


def test_a_session_that_waits_joins_one_that_runs_to_the_end_of_the_round() -> None:
    jobs = [running("h"), a_session("w", generation=3), running("x")]
    other = on("x", "n0-1", generation=2)
    assert joined(a_tick(*jobs), HOST, other) == [pair_of("w")[0], other, pair_of("w", generation=4)[1]]
    assert joined(a_tick(running("h")), HOST) == [HOST] and joined(a_tick(a_session("w"))) == []


@pytest.mark.parametrize(
    ("waits", "host", "over"),
    [
        (a_session("w", 1.0), running("h"), {}),
        (a_session("w"), running("h", share=1.0), {}),
        (a_session("w", spec={"topology_label": "rack"}), running("h"), {}),
        (a_session("w"), running("h", spec={"topology_label": "rack"}), {}),
        (a_session("w", longest_s=None), running("h"), {}),
        (a_session("w", state=JobState.LEASED, generation=1), running("h"), {}),
        (a_session("w", pause_requested=True), running("h"), {}),
        (a_session("w", retry_at_s=8.1), running("h"), {}),
        (a_session("w"), running("h"), {"held": {"w": (Reason.QUOTA_EXCEEDED, "")}}),
        (a_session("w", spec={"scale_factor": 2}), running("h"), {}),
        (a_session("w", spec={"accelerator_memory_bytes": 9}), running("h"), {}),
        (a_session("w", spec={"accelerator_types": ("slow",)}), running("h"), {}),
        (a_session("w", spec={"node_labels": {"gpu": "new"}}), running("h"), {}),
        (
            a_session("w", spec={"cpu_cores": 3}),
            running("h", spec={"cpu_cores": 2}),
            {"cluster": a_machine(2, cores=4)},
        ),
        (
            a_session("w"),
            running("h"),
            {"nodes": {"n0": NodeStatus(name="n0", state=NodeState.CORDONED, is_cordoned=True)}},
        ),
        (a_session("w"), running("h"), {"tiers": (Tier(name="gold", non_preemptible_workers=0),)}),
    ],
    ids=[
        "it keeps accelerators for itself",
        "the other one does",
        "it wants nodes of one label",
        "the other one does too",
        "it is no session",
        "it has a gang",
        "it is paused",
        "it waits for its next try",
        "it is held",
        "it is larger",
        "not enough memory of accelerators for both",
        "not on this type",
        "not on this node",
        "not enough cores",
        "the node is closed",
        "the limit of its tier",
    ],
)
def test_a_session_waits_on_where_it_may_not_join(waits: Job, host: Job, over: dict[str, Any]) -> None:
    """Without what is in the way it would."""
    assert joined(a_tick(host, waits, **over), HOST) == [HOST]
    assert len(joined(a_tick(running("h"), a_session("w")), HOST)) == 2


@pytest.mark.parametrize(
    "over",
    [
        {"held": {"w": (Reason.NON_PREEMPTIBLE_LIMIT, "")}},
        {"held": {"h": (Reason.QUOTA_EXCEEDED, "")}},
        {"tiers": (Tier(name="gold", non_preemptible_workers=1),)},
        {"tiers": (Tier(name="low", guarantee=0.5),)},
        {"cluster": a_machine(2, cores=3)},
    ],
)
def test_a_limit_for_whole_workers_leaves_half_of_some(over: dict[str, Any]) -> None:
    assert joined(a_tick(running("h"), a_session("w"), **over), HOST) == pair_of("w")


def test_those_that_wait_longest_go_first_and_each_session_is_joined_by_one() -> None:
    jobs = [running("h"), a_session("late", submitted_at_s=2.0), a_session("early", submitted_at_s=1.0)]
    assert joined(a_tick(*jobs), HOST) == pair_of("early")
    urgent = a_session("urgent", submitted_at_s=3.0, spec={"priority": 1})
    assert joined(a_tick(*jobs, urgent), HOST) == pair_of("urgent")
    second = on("i", "n0-1")
    one, other = pair_of("early"), pair_of("late", second)
    assert joined(a_tick(*jobs, running("i")), HOST, second) == [one[0], other[0], one[1], other[1]]


def test_one_that_could_not_join_the_first_joins_no_other_but_those_after_it_do() -> None:
    """The first has no room for its cores, and it is looked at for the first only."""
    host, large = running("h", spec={"cpu_cores": 2}), a_session("large", spec={"cpu_cores": 3})
    jobs = [host, large, a_session("small", submitted_at_s=1.0)]
    assert joined(a_tick(*jobs, cluster=a_machine(2, cores=4)), HOST) == pair_of("small")


def test_gangs_of_several_workers_share_all_of_them() -> None:
    host = on("h", "n0-0", "n1-0")
    size = {"scale_factor": 2}
    jobs = [running("h", spec=size), a_session("w", spec=size)]
    assert joined(a_tick(*jobs, cluster=a_machine(1, 1)), host) == pair_of("w", host)


# --- limits and reservations --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workers", "does"),
    [(2, True), (1, False)],
)
def test_each_of_two_that_share_counts_half_and_others_whole(workers: int, does: bool) -> None:
    """Beside one more gang that may not be preempted; one that may does not count."""
    low = Tier(name="gold", non_preemptible_workers=workers)
    jobs = [running("h"), running("x", share=1.0), a_session("w"), running("p", share=1.0)]
    jobs[3] = replace(jobs[3], spec=replace(jobs[3].spec, preemptible=True, longest_s=None))
    others = [on("x", "n0-1"), on("p", "n0-2")]
    answer = joined(a_tick(*jobs, tiers=(low,), cluster=a_machine(3)), HOST, *others)
    assert (len(answer) == 4) is does


@pytest.mark.parametrize(("workers", "does"), [(6, True), (5, False)])
def test_the_two_that_share_count_all_their_workers_together(workers: int, does: bool) -> None:
    size, limit = {"scale_factor": 6}, Tier(name="gold", non_preemptible_workers=workers)
    host = on("h", *(f"n0-{index}" for index in range(6)))
    tick = a_tick(running("h", spec=size), a_session("w", spec=size), tiers=(limit,), cluster=a_machine(6))
    assert joined(tick, host) == (pair_of("w", host) if does else [host])


def test_two_more_gangs_count_whole() -> None:
    limit = Tier(name="gold", non_preemptible_workers=2)
    jobs = [running("h"), a_session("w"), running("x", share=1.0), running("y", share=1.0)]
    others = [on("x", "n0-1"), on("y", "n0-2")]
    assert joined(a_tick(*jobs, tiers=(limit,), cluster=a_machine(3)), HOST, *others) == [HOST, *others]


def test_pairs_that_are_there_already_count_half() -> None:
    low = Tier(name="gold", non_preemptible_workers=2)
    jobs = [running("h"), running("a"), running("b"), a_session("w")]
    pair = [on(name, "n0-1", combination=("a", "b")) for name in "ab"]
    assert joined(a_tick(*jobs, tiers=(low,)), HOST, *pair) == [pair_of("w")[0], *pair, pair_of("w")[1]]


@pytest.mark.parametrize(
    ("longest_s", "host_longest_s", "does"),
    [(60.0, 90.0, True), (90.0, 60.0, False), (60.0, 110.0, False)],
    ids=["both end before", "the one that joins lasts", "the host lasts"],
)
def test_nobody_joins_who_would_be_in_the_way_of_a_reservation(
    longest_s: float, host_longest_s: float, does: bool
) -> None:
    """All workers are reserved from 100 s on; one that joins now may start within two rounds of ten seconds."""
    spec = {"reserved_at_s": 100.0, "reserved_type": "fast", "scale_factor": 2}
    jobs = [running("h", longest_s=host_longest_s), a_session("w", longest_s=longest_s), a_session("r", 1.0, spec=spec)]
    assert (len(joined(a_tick(*jobs), HOST)) == 2) is does


def test_what_others_that_share_claim_later_is_that_of_the_one_that_ends_last() -> None:
    """Half of the workers are reserved. The pair that is there ends before, but for one of the two."""
    spec = {"reserved_at_s": 100.0, "reserved_type": "fast", "scale_factor": 1}
    pair = [on(name, "n0-1", combination=("a", "b")) for name in "ab"]
    short = [running("h", longest_s=50.0), a_session("w", longest_s=50.0), a_session("r", 1.0, spec=spec)]
    jobs = [*short, running("a", longest_s=50.0), running("b", longest_s=500.0)]
    assert len(joined(a_tick(*jobs), HOST, *pair)) == 4
    lasting = [replace(short[0], spec=replace(short[0].spec, longest_s=500.0)), *jobs[1:]]
    assert len(joined(a_tick(*lasting), HOST, *pair)) == 3
    three = a_machine(3)
    assert len(joined(a_tick(*lasting, cluster=three), HOST, *pair)) == 4


# --- generations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "before", "expected"),
    [
        (a_session("w"), None, 1),
        (a_session("w", generation=3), None, 4),
        (running("w", generation=3), on("w", "n0-0", generation=3), 3),
        (a_session("w", generation=3), on("w", "n0-0", generation=3), 4),
        (a_session("w", generation=2), on("w", "n0-0", generation=3), 3),
        (running("w", generation=4), on("w", "n0-0", generation=3), 5),
        (running("w", generation=3), on("w", "n0-1", generation=3), 4),
        (a_session("w", generation=2), on("w", "n0-1", generation=5), 6),
        (running("w", generation=3), on("w", "n0-0", "n0-1", generation=3), 4),
    ],
    ids=["first", "next", "runs", "ended", "is to start", "newer", "elsewhere", "planned elsewhere", "more"],
)
def test_a_gang_beside_another_goes_on_under_its_generation_if_it_was_there(
    job: Job, before: Lease | None, expected: int
) -> None:
    assert generation_beside(job, before, ["n0-0"]) == expected


def test_one_that_is_to_start_there_already_keeps_its_generation() -> None:
    before = a_plan([on("x", "n0-1"), on("w", "n0-0", generation=7)])
    jobs = [running("h"), a_session("w", generation=4)]
    assert joined(a_tick(*jobs), HOST, parent=before) == pair_of("w", generation=7)


def test_sessions_that_share_are_those_that_say_so() -> None:
    assert shares(a_session("a")) and shares(a_session("a", 0.99)) and not shares(a_session("a", 1.0))
    batch = a_job("b")
    assert not shares(batch)


def test_nodes_have_room_where_cores_are_left_beside_all_leases() -> None:
    jobs = [running("h", spec={"cpu_cores": 2}), running("x", spec={"cpu_cores": 1})]
    tick = a_tick(*jobs, cluster=a_machine(2, 2, cores=4))
    leases = [HOST, on("x", "n0-1")]
    assert nodes_have_room(tick, ["n0-0"], Needs(cpu_cores=1), leases)
    assert not nodes_have_room(tick, ["n0-0"], Needs(cpu_cores=2), leases)
    assert nodes_have_room(tick, ["n0-0"], Needs(cpu_cores=2), leases[:1])
    assert nodes_have_room(tick, ["n1-0"], Needs(cpu_cores=4), leases)
    assert not nodes_have_room(tick, ["n1-0", "n0-0"], Needs(cpu_cores=2), leases)
