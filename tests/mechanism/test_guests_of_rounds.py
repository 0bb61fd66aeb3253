"""Which trainings are guests beside which sessions of a round: who may, who fits, who goes first and where."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from gavel.mechanism.planning.guests import LOOKED_AT, TRIED_AGAIN_ROUNDS, GuestInputs, guests_of, hosts_of
from gavel.mechanism.tick import Tick
from gavel.ports import ThroughputEstimator
from gavel.ports.estimator import ColocatedEstimate
from gavel.simulator.oracle import OracleThroughputs
from gavel.types import Check, DiskState, ExecutionPlan, Job, JobState, Lease, ReplicaSpec, RoundPlan, Serving, Tier
from tests.builders import a_job
from tests.mechanism.test_backfill import a_plan
from tests.mechanism.test_sessions_that_join import HOST, a_machine, a_tick, on, running

RATES = {("mlp", 1, "fast"): 10.0, ("mlp", 1, "slow"): 4.0, ("cnn", 1, "fast"): 20.0, ("mlp", 2, "fast"): 15.0}
Kept = Mapping[tuple[str, str], float]
"""What a job keeps of its speed beside another, by the names of both; 1 for others."""


class Estimator:
    """Knows what each job keeps beside each other one, and what it needs of memory."""

    estimate = OracleThroughputs(RATES).estimate

    def __init__(self, kept: Kept, needed: Mapping[str, int], measured: bool) -> None:
        self.kept, self.needed, self.measured = kept, needed, measured

    def colocated_estimates(self, pairs: Sequence[tuple[Job, Job]], name: str) -> tuple[ColocatedEstimate, ...]:
        return tuple(
            ColocatedEstimate(
                kept_fraction=self.kept.get((job.id, partner.id), 1.0) if name in ("fast", "slow") else 0.0,
                is_measured=self.measured,
                needed_bytes=self.needed.get(job.id, 4),
            )
            for job, partner in pairs
        )


def training(job_id: str, size: int = 1, **over: Any) -> Job:
    return a_job(job_id, spec={"user": "bob", "scale_factor": size} | over.pop("spec", {}), **over)


def guests(
    tick: Tick,
    *waiting: Job,
    hosts: Sequence[Lease] = (HOST,),
    kept: Kept | None = None,
    needed: Mapping[str, int] | None = None,
    measured: bool = True,
    **over: Any,
) -> list[Lease]:
    """Of a round [10, 20)."""
    fields: dict[str, Any] = {
        "plan": a_plan(hosts, starts_at_s=10.0, index=4),
        "hosts": hosts,
        "waiting": waiting,
        "behind": (),
        "parent": None,
        "estimator": cast(ThroughputEstimator, Estimator(kept or {}, needed or {}, measured)),
        "switch_cost_s": {},
    }
    return list(guests_of(tick, GuestInputs(**fields | over)))


def guest(job_id: str, host: Lease = HOST, generation: int = 1) -> Lease:
    return replace(host, job_id=job_id, generation=generation, combination=(host.job_id, job_id))


# --- hosts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("session", "lease", "over", "is_host"),
    [
        (running("h"), HOST, {}, True),
        (running("h"), HOST, {"disk": DiskState(low="full")}, False),
        (running("h"), replace(HOST, combination=("h", "w")), {}, False),
        (running("h", state=JobState.QUEUED), HOST, {}, False),
        (running("h", longest_s=10.0), HOST, {}, False),
        (running("h", longest_s=10.1), HOST, {}, True),
        (running("h", started_at_s=None), HOST, {}, True),
        (running("h", share=1.0), HOST, {}, False),
        (running("h", spec={"accelerator_memory_bytes": 0}), HOST, {}, False),
        (running("h", spec={"accelerator_memory_bytes": 1}), HOST, {}, True),
    ],
    ids=[
        "a session that shares",
        "the disk is full",
        "another session is there",
        "it has yet to start",
        "it ends as the round begins",
        "it ends after that",
        "it has not begun to count",
        "it keeps its accelerators",
        "it does not say what it holds",
        "it says so",
    ],
)
def test_a_session_may_have_a_guest_that_runs_alone_shares_and_says_what_it_holds(
    session: Job, lease: Lease, over: dict[str, Any], is_host: bool
) -> None:
    other = on("i", "n0-1")
    plan = a_plan([lease, other], starts_at_s=10.0)
    expected = [lease, other] if is_host else [] if over else [other]
    assert hosts_of(a_tick(session, running("i"), **over), plan) == expected


# --- who may be a guest -------------------------------------------------------------------------------------------


def test_a_training_that_waits_is_a_pair_with_the_session_whose_workers_it_gets() -> None:
    job = training("a", generation=3)
    assert guests(a_tick(running("h"), job), job) == [guest("a", generation=4)]


SERVING = Serving(port=0, readiness=Check())


@pytest.mark.parametrize(
    ("job", "over"),
    [
        (training("a", spec={"longest_s": 9.0}), {}),
        (training("a", spec={"replica": ReplicaSpec(service="s", version=1, serving=SERVING)}), {}),
        (training("a", spec={"preemptible": False}), {}),
        (training("a", spec={"sizes": (1, 2), "global_batch": 4}), {}),
        (training("a", spec={"plans": (ExecutionPlan(name="p", kind="mlp", sizes=(1,)),), "plan": "p"}), {}),
        (training("a", spec={"topology_label": "rack"}), {}),
        (training("a", spec={"tier": "capped"}), {}),
        (training("a", 2), {}),
        (training("a"), {"switch_cost_s": {"mlp": 5.1}}),
        (training("a"), {"needed": {"a": 9, "h": 8}}),
        (training("a"), {"needed": {"a": 0, "h": 8}}),
        (training("a"), {"kept": {("a", "h"): 0.49}}),
        (training("a"), {"kept": {("h", "a"): 0.49}}),
        (training("a", spec={"accelerator_types": ("slow",)}), {}),
        (training("a", spec={"accelerator_memory_bytes": 9}), {}),
        (training("a", spec={"cpu_cores": 4}), {"cores": 4}),
    ],
    ids=[
        "a session",
        "a replica",
        "not preemptible",
        "elastic",
        "plans",
        "nodes of one label",
        "a tier with a cap",
        "another size",
        "a start takes most of the round",
        "not enough memory",
        "nobody knows what it needs",
        "too slow",
        "the session would be too slow",
        "not on this type",
        "not enough memory as it says",
        "not enough cores",
    ],
)
def test_a_training_that_may_not_be_a_guest_waits_and_the_next_one_goes(job: Job, over: dict[str, Any]) -> None:
    host = running("h", spec={"cpu_cores": 2})
    other = training("z", spec={"kind": "cnn"}, submitted_at_s=1.0)
    own = {name: value for name, value in over.items() if name != "cores"}
    cluster = a_machine(2, cores=over.get("cores", 0))
    tick = a_tick(host, job, other, tiers=[Tier(name="capped", cap=0.5)], cluster=cluster)
    assert guests(tick, job, other, **own) == [guest("z")]


@pytest.mark.parametrize(
    "over",
    [
        {"switch_cost_s": {"mlp": 5.0, "": 9.0}},
        {"needed": {"a": 8, "h": 8}},
        {"needed": {"a": 1, "h": 8}},
        {"kept": {("a", "h"): 0.5}},
        {"kept": {("h", "a"): 0.5}},
        {"kept": {("h", "a"): 0.1}, "measured": False},
    ],
    ids=[
        "a start takes half",
        "just enough memory",
        "hardly any memory",
        "half of its speed",
        "half of the session's",
        "nobody has seen it",
    ],
)
def test_a_training_is_a_guest_where_each_keeps_its_part(over: dict[str, Any]) -> None:
    """The session keeps half of its accelerators for itself."""
    job = training("a")
    assert guests(a_tick(running("h"), job), job, **over) == [guest("a")]


@pytest.mark.parametrize(("share", "kept", "does"), [(0.75, 0.25, True), (0.75, 0.24, False), (0.25, 0.74, False)])
def test_a_training_must_keep_what_the_session_leaves(share: float, kept: float, does: bool) -> None:
    job = training("a")
    answer = guests(a_tick(running("h", share=share), job), job, kept={("a", "h"): kept})
    assert answer == ([guest("a")] if does else [])


@pytest.mark.parametrize(("index", "does"), [(TRIED_AGAIN_ROUNDS, True), (TRIED_AGAIN_ROUNDS + 1, False), (0, True)])
def test_pairs_that_are_too_slow_are_tried_again_once_in_a_while(index: int, does: bool) -> None:
    job = training("a")
    plan = replace(a_plan([HOST], starts_at_s=10.0), round_index=index)
    answer = guests(a_tick(running("h"), job), job, plan=plan, kept={("a", "h"): 0.01})
    assert answer == ([guest("a")] if does else [])


# --- who goes first, and where ------------------------------------------------------------------------------------


def before(*leases: Lease) -> RoundPlan:
    return a_plan(leases)


@pytest.mark.parametrize(
    ("jobs", "over", "expected"),
    [
        ([training("a"), training("b")], {}, "a"),
        ([training("a"), training("b", spec={"priority": 1})], {}, "b"),
        ([training("a"), training("b")], {"behind": {"b"}}, "b"),
        ([training("a", spec={"priority": 1}), training("b")], {"behind": {"b"}}, "a"),
        (
            [training("a"), training("b", generation=1, state=JobState.LEASED)],
            {"behind": {"a"}, "parent": before(on("b", "n0-0"))},
            "b",
        ),
        (
            [training("a", spec={"priority": 1}), training("b", generation=1, state=JobState.LEASED)],
            {"parent": before(on("b", "n0-0"))},
            "a",
        ),
        (
            [training("a"), training("b", generation=1, state=JobState.LEASED)],
            {"parent": before(on("b", "n0-1"))},
            "a",
        ),
        (
            [training("a"), training("b", generation=1, state=JobState.LEASED)],
            {"parent": before(on("b", "n0-0")), "switch_cost_s": {"mlp": 9.0}},
            "b",
        ),
        ([training("a"), training("b", generation=1)], {"parent": before(on("b", "n0-0"))}, "a"),
    ],
    ids=[
        "by arrival",
        "priority",
        "who lags",
        "priority before lag",
        "who is there",
        "priority before who is there",
        "who is elsewhere",
        "who is there needs no start",
        "whose gang ended there",
    ],
)
def test_trainings_have_their_turn_by_priority_by_who_is_there_and_by_lag(
    jobs: list[Job], over: dict[str, Any], expected: str
) -> None:
    assert [lease.job_id for lease in guests(a_tick(running("h"), *jobs), *jobs, **over)] == [expected]


def test_a_guest_goes_on_under_its_generation() -> None:
    job = training("a", generation=2, state=JobState.LEASED)
    answer = guests(a_tick(running("h"), job), job, parent=before(on("z", "n0-1"), on("a", "n0-0", generation=2)))
    assert answer == [guest("a", generation=2)]


SECOND = on("i", "n0-1")


def test_each_training_goes_to_the_session_beside_which_it_is_fastest_and_stays_where_it_is() -> None:
    jobs = [training("a"), training("b"), training("c")]
    tick = a_tick(running("h"), running("i"), *jobs)
    slower = {("a", "h"): 0.6, ("b", "h"): 0.7}
    assert guests(tick, *jobs, hosts=[HOST, SECOND], kept=slower) == [guest("a", SECOND), guest("b")]
    assert guests(tick, *jobs, hosts=[HOST, SECOND]) == [guest("a"), guest("b", SECOND)]
    there = [replace(jobs[0], generation=1, state=JobState.LEASED), *jobs[1:]]
    parent = before(on("a", "n0-0"))
    tick = a_tick(running("h"), running("i"), *there)
    assert guests(tick, *there, hosts=[HOST, SECOND], kept=slower, parent=parent)[0] == guest("a")


def test_speeds_are_those_of_the_types_that_the_sessions_have() -> None:
    cluster = a_machine(2)
    workers = (cluster.workers[0], replace(cluster.workers[1], accelerator_type="slow"))
    job, slow = training("a"), replace(SECOND, accelerator_type="slow")
    tick = a_tick(running("h"), running("i"), job, cluster=replace(cluster, workers=workers))
    assert guests(tick, job, hosts=[slow, HOST], kept={("a", "h"): 0.6}) == [guest("a")]


def test_one_for_which_no_node_has_cores_beside_those_that_came_before_waits() -> None:
    """The node has four cores."""
    jobs = [training("a", spec={"cpu_cores": 3}), training("b", spec={"cpu_cores": 3}), training("c")]
    tick = a_tick(running("h"), running("i"), *jobs, cluster=a_machine(2, cores=4))
    given = [lease.job_id for lease in guests(tick, *jobs, hosts=[HOST, SECOND])]
    assert given == ["a", "c"]


def test_only_the_first_64_that_fit_are_looked_at() -> None:
    small = [training(f"s{row}", 1) for row in range(LOOKED_AT)]
    late = training("late")
    tick = a_tick(running("h"), *small, late)
    slow = {(job.id, "h"): 0.1 for job in small}
    assert guests(tick, *small, late, kept=slow) == []
    assert guests(tick, *small[1:], late, kept=slow) == [guest("late")]
    unfit = [replace(job, spec=replace(job.spec, accelerator_types=("slow",))) for job in small]
    assert guests(a_tick(running("h"), *unfit, late), *unfit, late) == [guest("late")]


def test_memory_is_that_of_the_smallest_accelerator_of_the_session() -> None:
    cluster = a_machine(2)
    workers = (cluster.workers[0], replace(cluster.workers[1], memory_bytes=11))
    job = training("a", 2)
    host = on("h", "n0-0", "n0-1")
    tick = a_tick(running("h", spec={"scale_factor": 2}), job, cluster=replace(cluster, workers=workers))
    assert guests(tick, job, hosts=[host], needed={"a": 3, "h": 8}) == [guest("a", host)]
    assert guests(tick, job, hosts=[host], needed={"a": 4, "h": 8}) == []
    small = training("b")
    other = a_tick(running("h"), small, cluster=replace(cluster, workers=workers))
    assert guests(other, small, needed={"b": 8, "h": 8}) == [guest("b")]
