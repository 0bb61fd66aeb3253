"""A round that is amended, compared whole: which leases are cut, go on, start early, or are given to who waits."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gavel.errors import InvariantViolated
from gavel.mechanism.cluster.placement import Layout
from gavel.mechanism.planning.backfill import Gap, backfill, live_leases
from gavel.simulator.oracle import OracleThroughputs
from gavel.types import Cluster, GangState, Job, JobState, Lease, Needs, Node, Worker
from tests.builders import a_cluster, a_job
from tests.mechanism.test_backfill import a_gang, a_gap, a_lease, a_plan
from tests.mechanism.test_plans import planned, plans

ONE, TWO = a_cluster(fast=1), a_cluster(fast=2)


def on(cluster: Cluster, leases: Sequence[Lease] = (), **over: Any) -> Gap:
    """A gap of a round [0, 10) at 4 s on this cluster."""
    fields: dict[str, Any] = {"cluster": cluster, "whole": cluster, "waiting": ()}
    return a_gap(list(leases), **fields | over)


def given(job_id: str, generation: int, *workers: str, **over: Any) -> Lease:
    """A lease from now on."""
    return a_lease(job_id, generation, *workers, starts_at_s=4.0, **over)


def leased(job_id: str, generation: int = 1, **over: Any) -> Job:
    return a_job(job_id, state=JobState.LEASED, generation=generation, **over)


def ahead(*leases: Lease) -> Any:
    """The round after."""
    return a_plan([replace(each, round_index=4, expires_at_s=20.0) for each in leases], starts_at_s=10.0, index=4)


def after(gap: Gap) -> list[Lease] | None:
    plan = backfill(gap)
    if plan is not None:
        assert replace(plan, leases=()) == replace(gap.plan, leases=())
    return list(plan.leases) if plan else None


# --- who gets what is free ----------------------------------------------------------------------------------------


def test_those_that_wait_get_a_lease_to_the_end_of_the_round_each_on_its_fastest_free_type() -> None:
    waiting = [a_job("a"), a_job("b"), a_job("c", generation=7), a_job("d")]
    assert after(on(a_cluster(fast=3, slow=3), waiting=waiting)) == [
        given("a", 1, "fast-0"),
        given("b", 1, "fast-1"),
        given("c", 8, "fast-2"),
        given("d", 1, "slow-0"),
    ]


def test_a_gang_is_given_whole_under_the_plan_of_its_job_and_small_ones_take_what_it_leaves() -> None:
    large = a_job("a", spec={"scale_factor": 2, "plan": "", "kind": "mlp"})
    waiting = [large, replace(large, id="b"), a_job("c")]
    assert after(on(a_cluster(fast=3, slow=3), waiting=waiting)) == [
        given("a", 1, "fast-0", "fast-1"),
        given("c", 1, "fast-2"),
    ]


@pytest.mark.parametrize(
    "gap",
    [
        on(ONE),
        on(ONE, waiting=[leased("a")]),
        on(ONE, [a_lease("a", 1, "fast-0")], waiting=[a_job("b")], jobs=[leased("a")]),
        on(ONE, waiting=[a_job("b")], gangs=(a_gang("a", 1, ["fast-0"]),)),
        on(ONE, waiting=[a_job("b", spec={"scale_factor": 2})]),
        on(ONE, waiting=[a_job("b", spec={"kind": "cnn"})]),
        on(a_cluster(), waiting=[a_job("b")]),
        on(TWO, [a_lease("a", 1, "fast-0")], waiting=[a_job("a")]),
    ],
    ids=[
        "nobody waits",
        "who waits has been leased meanwhile",
        "all is leased",
        "a gang lingers",
        "too large",
        "of no known speed",
        "no workers",
        "who waits is about to start",
    ],
)
def test_a_round_stays_as_it_is_where_nothing_can_be_given(gap: Gap) -> None:
    assert backfill(gap) is None


def test_a_gang_that_has_ended_holds_no_worker() -> None:
    gang = replace(a_gang("a", 1, ["fast-0"]), state=GangState.ENDED)
    assert after(on(ONE, waiting=[a_job("b")], gangs=(gang,))) == [given("b", 1, "fast-0")]


@pytest.mark.parametrize(
    ("lag", "first"),
    [({}, "a"), ({("b", "fast"): 0.5}, "b"), ({("b", "slow"): 0.5}, "b"), ({("b", "fast"): -0.5}, "a")],
)
def test_who_lags_on_any_type_goes_first(lag: dict[tuple[str, str], float], first: str) -> None:
    assert after(on(ONE, waiting=[a_job("a"), a_job("b")], lag=lag)) == [given(first, 1, "fast-0")]


def test_among_those_that_lag_the_one_that_lags_more_on_the_type_gets_it() -> None:
    lag = {("a", "fast"): 0.5, ("b", "fast"): 0.75, ("c", "fast"): 0.25}
    waiting = [a_job("a"), a_job("b"), a_job("c")]
    assert after(on(TWO, waiting=waiting, lag=lag)) == [given("a", 1, "fast-0"), given("b", 1, "fast-1")]
    assert after(on(ONE, waiting=waiting, lag=lag)) == [given("b", 1, "fast-0")]


def test_the_speeds_are_those_of_the_kind_that_applies_to_a_job() -> None:
    estimate = OracleThroughputs({("of a", 1, "slow"): 3.0, ("mlp", 1, "fast"): 5.0}).estimate
    gap = on(a_cluster(fast=1, slow=1), waiting=[a_job("a"), a_job("b")], estimate=estimate)
    own = replace(gap, spec_of=lambda job: replace(job.spec, kind="of a") if job.id == "a" else job.spec)
    assert after(own) == [given("a", 1, "slow-0"), given("b", 1, "fast-0")]


@pytest.mark.parametrize(
    ("lag", "targets", "expected"),
    [
        ({}, {}, "a"),
        ({}, {("b", "fast"): 0.5}, "b"),
        ({("a", "fast"): 0.75}, {("b", "fast"): 0.5}, "a"),
        ({("b", "fast"): 0.5, ("a", "fast"): 0.75}, {("b", "fast"): 0.5}, "b"),
        ({("a", "fast"): -0.5, ("b", "fast"): -0.75}, {}, "a"),
    ],
    ids=["by arrival", "by what the policy gives", "by what they lag", "by both", "none is behind"],
)
def test_where_one_waits_that_may_not_be_preempted_the_policy_is_asked_who_goes(
    lag: dict[tuple[str, str], float], targets: dict[tuple[str, str], float], expected: str
) -> None:
    asked: list[tuple[list[str], list[str]]] = []

    def of_policy(jobs: Sequence[Job], layout: Layout) -> dict[tuple[str, str], float]:
        asked.append(([job.id for job in jobs], list(layout.type_of)))
        return targets

    jobs = [leased("z"), a_job("a"), a_job("b", spec={"preemptible": False})]
    gap = on(TWO, [a_lease("z", 1, "fast-1")], waiting=jobs[1:], jobs=jobs[:1], lag=lag, targets=of_policy)
    assert after(gap) == [a_lease("z", 1, "fast-1"), given(expected, 1, "fast-0")]
    assert asked == [(["a", "b"], ["fast-0"])]


def test_the_largest_claim_of_a_job_counts_and_that_of_the_furthest_goes_first() -> None:
    """Those that go first are looked at in groups of 64, so that the last one of many has to be among the first."""
    jobs = [a_job(f"j{row}", spec={"preemptible": row > 0, "scale_factor": 1}) for row in range(70)]
    lag = {("j69", "slow"): 0.5, ("j68", "slow"): 0.25, ("j69", "fast"): 0.1, ("j68", "fast"): 0.1}
    for others in ({}, {(job.id, "fast"): 0.1 for job in jobs[:68]}):
        gap = on(a_cluster(fast=1, slow=1), waiting=jobs, lag=lag | others)
        assert after(gap) == [given("j69", 1, "slow-0"), given("j68", 1, "fast-0")]


def test_those_of_a_later_group_are_given_what_the_first_ones_left() -> None:
    """Of 66 jobs nobody has a speed."""
    unknown = [a_job(f"u{row}", spec={"kind": "cnn"}) for row in range(66)]
    amended = after(on(TWO, waiting=[a_job("a"), *unknown, a_job("b")]))
    assert amended == [given("a", 1, "fast-0"), given("b", 1, "fast-1")]


def test_a_gang_is_given_the_plan_that_its_job_has() -> None:
    job = planned("a", plans("one", "two"))
    estimate = OracleThroughputs({("net[one]", 1, "fast"): 5.0}).estimate
    assert after(on(ONE, waiting=[job], estimate=estimate)) == [given("a", 1, "fast-0", plan="one")]


# --- leases that are over, go on, or have been given before -------------------------------------------------------


def test_a_lease_whose_gang_has_ended_is_cut_now_and_its_worker_given_to_the_next() -> None:
    """Of one that was cut before, the end stays."""
    leases = [a_lease("a", 1, "fast-0", expires_at_s=2.0), a_lease("b", 1, "fast-0", starts_at_s=2.0)]
    gap = on(ONE, leases, waiting=[a_job("c")], jobs=[a_job("b", generation=2)])
    assert after(gap) == [leases[0], replace(leases[1], expires_at_s=4.0), given("c", 1, "fast-0")]


@pytest.mark.parametrize(
    ("job", "is_live"),
    [
        (leased("a"), True),
        (a_job("a", generation=1), False),
        (a_job("a"), True),
        (a_job("a", cancel_requested=True), False),
        (leased("a", generation=2), False),
        (leased("a", cancel_requested=True), True),
        (None, False),
    ],
    ids=["it runs", "it ended", "it may start", "it is cancelled", "a newer one runs", "it stops", "it is gone"],
)
def test_a_lease_holds_its_workers_while_its_gang_runs_or_may_start(job: Job | None, is_live: bool) -> None:
    lease = a_lease("a", 1, "fast-0")
    jobs = {"a": job} if job else {}
    assert live_leases(a_plan([lease]), jobs, ONE, 4.0) == ([lease] if is_live else [])
    assert live_leases(a_plan([lease]), jobs, ONE, 10.0) == []


def test_a_lease_that_has_yet_to_start_holds_nothing_where_one_of_its_workers_is_gone() -> None:
    """One whose gang runs holds the others until it has ended."""
    lease = a_lease("a", 1, "fast-0", "fast-1")
    spec = {"scale_factor": 2}
    assert live_leases(a_plan([lease]), {"a": a_job("a", spec=spec)}, ONE, 4.0) == []
    assert live_leases(a_plan([lease]), {"a": a_job("a", spec=spec)}, TWO, 4.0) == [lease]
    assert live_leases(a_plan([lease]), {"a": leased("a", spec=spec)}, ONE, 4.0) == [lease]


def test_leases_on_a_node_that_was_lost_do_not_keep_the_others_from_being_given() -> None:
    gap = on(ONE, [a_lease("a", 1, "fast-7")], waiting=[a_job("b")], jobs=[leased("a")])
    assert after(gap) == [a_lease("a", 1, "fast-7"), given("b", 1, "fast-0")]


def test_a_gang_that_was_given_a_lease_before_gets_a_higher_generation() -> None:
    """Its first lease is over, the second is in the next round, and neither was under the number of the job."""
    first, second = {"expires_at_s": 1.0}, {"starts_at_s": 1.0, "expires_at_s": 2.0}
    leases = [a_lease("a", 3, "fast-0", **second), a_lease("a", 2, "fast-0", **first)]
    job = a_job("a", generation=1)
    assert after(on(ONE, leases, waiting=[job])) == [*leases, given("a", 4, "fast-0")]
    other = a_lease("b", 9, "fast-0", starts_at_s=2.0, expires_at_s=3.0)
    assert after(on(ONE, [*leases, other], waiting=[job], jobs=[a_job("b")])) == [
        *leases,
        other,
        given("a", 4, "fast-0"),
    ]
    stale = ahead(a_lease("a", 1, "fast-0"))
    assert after(on(ONE, leases, waiting=[job], ahead=stale)) == [*leases, given("a", 4, "fast-0")]
    assert after(on(ONE, waiting=[job], ahead=stale)) == [given("a", 2, "fast-0")]


@pytest.mark.parametrize(
    ("leases", "invariant"),
    [
        ([a_lease("a", 1, "fast-0"), a_lease("b", 1, "fast-0")], "one_combination_per_worker"),
        ([a_lease("a", 1, "fast-0", "fast-1")], "whole_gangs_of_one_type"),
    ],
)
def test_an_amended_plan_that_breaks_an_invariant_is_refused(leases: list[Lease], invariant: str) -> None:
    gap = on(a_cluster(fast=3), leases, waiting=[a_job("c")], jobs=[leased("a"), leased("b")])
    with pytest.raises(InvariantViolated, match=invariant):
        backfill(gap)


# --- who has a place in the next round ----------------------------------------------------------------------------


def test_a_job_of_the_next_round_starts_early_on_its_workers_under_the_same_generation() -> None:
    gap = on(TWO, waiting=[a_job("a"), a_job("b")], ahead=ahead(a_lease("b", 5, "fast-0", plan="")))
    assert after(gap) == [given("b", 5, "fast-0"), given("a", 1, "fast-1")]


def test_a_job_of_the_next_round_waits_while_one_of_its_workers_is_held_and_gets_no_other() -> None:
    spec = {"scale_factor": 2}
    jobs = [a_job("a", spec=spec), leased("z")]
    gap = on(
        a_cluster(fast=3),
        [a_lease("z", 1, "fast-0")],
        waiting=jobs[:1],
        jobs=jobs,
        ahead=ahead(a_lease("a", 1, "fast-0", "fast-1")),
    )
    assert after(gap) is None
    assert after(replace(gap, waiting=[*gap.waiting, a_job("b")], jobs={**gap.jobs, "b": a_job("b")})) == [
        a_lease("z", 1, "fast-0"),
        given("b", 1, "fast-1"),
    ]


def test_of_two_leases_in_the_next_round_the_last_one_counts() -> None:
    leases = [a_lease("a", 3, "fast-1"), a_lease("a", 2, "fast-0")]
    assert after(on(TWO, waiting=[a_job("a", generation=1)], ahead=ahead(*leases))) == [given("a", 3, "fast-1")]


def test_a_lease_of_the_next_round_for_a_gang_that_has_ended_is_not_waited_for() -> None:
    assert after(on(ONE, waiting=[a_job("a", generation=2)], ahead=ahead(a_lease("a", 2, "fast-0")))) == [
        given("a", 3, "fast-0")
    ]
    gone = ahead(a_lease("b", 1, "fast-0"))
    assert after(on(ONE, waiting=[a_job("a")], ahead=gone)) == [given("a", 1, "fast-0")]


PAIR = [a_lease(job_id, 1, "fast-0", combination=("a", "b")) for job_id in ("a", "b")]


@pytest.mark.parametrize(
    ("waiting", "leases", "expected"),
    [
        ("ab", PAIR, [replace(each, starts_at_s=4.0) for each in PAIR]),
        ("a", PAIR, None),
        ("ab", PAIR[:1], [given("b", 1, "fast-0")]),
    ],
    ids=["both wait", "one waits", "one has a lease"],
)
def test_two_jobs_that_are_to_share_workers_start_early_together_or_not(
    waiting: str, leases: list[Lease], expected: list[Lease] | None
) -> None:
    jobs = [a_job("a"), a_job("b")]
    gap = on(ONE, waiting=[job for job in jobs if job.id in waiting], jobs=jobs, ahead=ahead(*leases))
    assert after(gap) == expected


# --- cores and memory of nodes ------------------------------------------------------------------------------------

NODE = Cluster(
    nodes=(Node(name="n0", cpu_cores=4),),
    workers=tuple(Worker(id=f"fast-{index}", node="n0", accelerator_type="fast") for index in range(4)),
)


def cores(job_id: str, count: int, *, generation: int = 0, state: JobState = JobState.QUEUED) -> Job:
    return a_job(job_id, spec={"cpu_cores": count}, generation=generation, state=state)


def test_the_spec_says_what_a_rank_needs() -> None:
    assert cores("a", 3).spec.needs == Needs(cpu_cores=3)


@pytest.mark.parametrize(
    ("holder", "expected"),
    [
        ({"jobs": [cores("z", 2, generation=1, state=JobState.LEASED)], "leases": [a_lease("z", 1, "fast-0")]}, "b"),
        ({"jobs": [leased("z")], "leases": [a_lease("z", 1, "fast-0")]}, "a"),
        ({"jobs": [cores("z", 2, generation=1)], "gangs": (a_gang("z", 1, ["fast-0"]),)}, "b"),
        ({"jobs": [], "gangs": (a_gang("z", 1, ["fast-0"]),)}, "a"),
        ({"jobs": [], "gangs": (replace(a_gang("z", 1, ["fast-0"]), state=GangState.ENDED),)}, "a"),
    ],
    ids=["a lease", "a lease for workers only", "a gang that lingers", "a gang of nobody", "a gang that has ended"],
)
def test_who_needs_more_cores_than_the_gangs_that_are_there_leave_waits(holder: dict[str, Any], expected: str) -> None:
    """Job a needs three of the four cores, b two."""
    fields = dict(holder)
    leases = fields.pop("leases", [])
    waiting = [cores("a", 3), cores("b", 2)]
    amended = after(on(NODE, leases, waiting=waiting, **fields)) or []
    assert [lease.job_id for lease in amended if lease.starts_at_s is not None] == [expected]


def test_one_that_needs_only_a_worker_waits_where_the_others_hold_all_cores() -> None:
    holder = cores("z", 4, generation=1, state=JobState.LEASED)
    gap = on(NODE, [a_lease("z", 1, "fast-0")], waiting=[a_job("c")], jobs=[holder])
    assert after(gap) is None


def test_what_is_given_now_counts_for_those_that_come_after() -> None:
    """In an earlier group, too: only jobs that some node can hold are looked at."""
    waiting = [*(cores(f"large{row}", 5) for row in range(70)), cores("a", 3), cores("b", 2), a_job("c")]
    amended = after(on(NODE, waiting=waiting)) or []
    assert [lease.job_id for lease in amended] == ["a", "c"]


def test_those_of_the_next_round_start_early_where_the_cores_are_free_and_count_for_the_others() -> None:
    waiting = [cores("a", 3), cores("b", 2), cores("c", 2), a_job("d")]
    leases = [a_lease("b", 1, "fast-3"), a_lease("a", 1, "fast-2")]
    amended = after(on(NODE, waiting=waiting, ahead=ahead(*leases))) or []
    assert amended == [given("b", 1, "fast-3"), given("c", 1, "fast-0")]


def test_two_that_share_workers_start_early_where_what_both_need_is_free() -> None:
    jobs = [cores("a", 2), cores("b", 2)]
    assert after(on(NODE, waiting=jobs, ahead=ahead(*PAIR))) == [replace(each, starts_at_s=4.0) for each in PAIR]
    more = [cores("a", 3), cores("b", 2)]
    assert after(on(NODE, waiting=more, ahead=ahead(*PAIR))) is None
