"""When a round in force has something to fill, and for whom: who waits, what is left, and what is free."""

from dataclasses import replace
from typing import Any, cast

import pytest

from gavel.mechanism.planning.backfill import Gap, gap_of
from gavel.mechanism.tick import Tick
from gavel.simulator.oracle import OracleThroughputs
from gavel.types import (
    GangState,
    Job,
    JobState,
    Lease,
    NodeState,
    NodeStatus,
    RoundPlan,
    Tier,
)
from tests.builders import a_cluster, a_job
from tests.mechanism.test_backfill import a_gang, a_lease, a_plan
from tests.mechanism.ticks import GOLD, a_record, tick_at
from tests.mechanism.world import RATES

CLUSTER = a_cluster(fast=2)
LAG = {("a", "fast"): 0.5}
WAITS, SESSION = a_job("a"), a_job("s", spec={"preemptible": False})
HELD = a_lease("z", 1, "fast-0")
RUNNING = a_job("z", state=JobState.LEASED, generation=1)


class OfOwnKinds(OracleThroughputs):
    """Each job has a kind of its own."""

    def kind_of(self, job: Job) -> str:
        return f"{job.spec.kind}#{job.id}"


ESTIMATOR = OfOwnKinds(RATES)


NOW = a_plan([HELD])
NEXT = a_plan([a_lease("s", 1, "fast-1", expires_at_s=20.0)], starts_at_s=10.0, index=4)


def no_targets(jobs: Any, layout: Any) -> dict[tuple[str, str], float]:
    return {}


def a_tick(
    *waiting: Job, plans: tuple[RoundPlan, ...] = (NOW,), now_s: float = 4.0, gangs: Any = (), **over: Any
) -> Tick:
    records = [a_record(plan, lag_rounds=LAG) for plan in plans]
    tiers, jobs = (GOLD, Tier(name="capped", cap=0.5)), (*waiting, RUNNING)
    given: dict[str, Any] = {"wanting": list(waiting)} | over
    return tick_at(now_s, CLUSTER, jobs, records=records, tiers=tiers, gangs=gangs, **given)


def gap(tick: Tick, **over: Any) -> Gap | None:
    settings: dict[str, Any] = {"minimum_lease_fraction": 0.0, "switch_cost_s": {}, "planner": "lag"}
    return gap_of(tick, ESTIMATOR, targets=no_targets, **(settings | over))


def who(tick: Tick, **over: Any) -> list[str]:
    """Those that a gap is for; [] if there is none."""
    gap_now = gap(tick, **over)
    return [job.id for job in gap_now.waiting] if gap_now else []


def test_a_gap_holds_all_that_filling_it_takes() -> None:
    gang = a_gang("z", 1, ["fast-0"])
    tick = a_tick(WAITS, plans=(NOW, NEXT), gangs=(gang,))
    gap_now = gap(tick)
    assert gap_now is not None
    assert gap_now == Gap(
        plan=NOW,
        ahead=NEXT,
        jobs=tick.jobs,
        gangs=(gang,),
        waiting=[WAITS],
        cluster=CLUSTER,
        whole=CLUSTER,
        estimate=ESTIMATOR.estimate,
        lag=LAG,
        now_s=4.0,
        spec_of=gap_now.spec_of,
        targets=no_targets,
    )
    assert gap_now.spec_of(WAITS) == replace(WAITS.spec, kind="mlp#a")


def test_without_anything_else_the_speeds_are_those_of_the_kind_of_a_job_and_no_policy_is_asked() -> None:
    gap_now = gap(a_tick(WAITS))
    assert gap_now is not None
    fields = {name: getattr(gap_now, name) for name in Gap.__dataclass_fields__ if name not in ("spec_of", "targets")}
    plain = Gap(**fields)
    assert plain.spec_of(WAITS) == WAITS.spec and plain.targets([WAITS], cast(Any, None)) == {}


@pytest.mark.parametrize("planner", ["published", "published_shuffled"])
def test_rounds_that_were_received_are_no_lags(planner: str) -> None:
    gap_now = gap(a_tick(WAITS), planner=planner)
    assert gap_now is not None and gap_now.lag == {}


@pytest.mark.parametrize(
    ("tick", "expected"),
    [
        (a_tick(WAITS), ["a"]),
        (a_tick(), []),
        (a_tick(RUNNING), []),
        (a_tick(WAITS, RUNNING), ["a"]),
        (a_tick(WAITS, plans=()), []),
        (a_tick(WAITS, now_s=-1.0), []),
        (a_tick(WAITS, now_s=0.0), ["a"]),
        (a_tick(WAITS, now_s=10.0), []),
        (a_tick(WAITS, now_s=11.0), []),
        (a_tick(WAITS, now_s=9.5), ["a"]),
        (a_tick(SESSION, now_s=10.0), []),
        (a_tick(WAITS, gangs=(a_gang("y", 1, ["fast-1"]),)), []),
        (a_tick(WAITS, gangs=(replace(a_gang("y", 1, ["fast-1"]), state=GangState.ENDED),)), ["a"]),
        (a_tick(WAITS, now_s=12.0, plans=(NOW, NEXT)), ["a"]),
        (a_tick(WAITS, now_s=10.0, plans=(NOW, NEXT)), ["a"]),
    ],
    ids=[
        "one waits",
        "nobody waits",
        "who runs does not wait",
        "one of two waits",
        "no round",
        "a round to come",
        "a round that begins",
        "a round that ends",
        "a round that is over",
        "a round that is nearly over",
        "one that may not be preempted waits for the next",
        "all is held",
        "what was held is free",
        "the newest round is in force",
        "the newest round begins",
    ],
)
def test_there_is_a_gap_while_a_round_is_in_force_somebody_waits_and_a_worker_is_free(
    tick: Tick, expected: list[str]
) -> None:
    assert who(tick) == expected


def test_of_two_rounds_that_have_begun_the_newest_is_filled() -> None:
    for now_s in (10.0, 12.0):
        gap_now = gap(a_tick(WAITS, now_s=now_s, plans=(NOW, NEXT)))
        assert gap_now is not None and (gap_now.plan, gap_now.ahead) == (NEXT, None)


@pytest.mark.parametrize(("starts_at_s", "expected"), [(4.0, []), (3.0, []), (4.5, ["a"])])
def test_a_round_that_was_decided_in_this_tick_and_begins_now_has_its_leases_already(
    starts_at_s: float, expected: list[str]
) -> None:
    record = a_record(a_plan([], starts_at_s=starts_at_s, index=4), lag_rounds=LAG)
    assert who(a_tick(WAITS, record=record)) == expected


def test_a_node_that_is_cordoned_has_no_free_worker() -> None:
    status = NodeStatus(name="node-0", state=NodeState.CORDONED, is_cordoned=True)
    assert who(a_tick(WAITS, nodes={"node-0": status})) == []


def test_a_lease_whose_gang_has_ended_holds_no_worker() -> None:
    both = a_plan([HELD, a_lease("y", 1, "fast-1")])
    assert who(a_tick(WAITS, plans=(both,))) == ["a"]
    young = replace(RUNNING, id="y")
    tick = a_tick(WAITS, plans=(both,))
    tick.put(young)
    assert who(tick) == []


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        ({"minimum_lease_fraction": 0.6}, ["a", "s"]),
        ({"minimum_lease_fraction": 0.61}, ["s"]),
        ({"switch_cost_s": {"mlp": 3.0}}, ["a", "s"]),
        ({"switch_cost_s": {"mlp": 3.1}}, ["s"]),
        ({"switch_cost_s": {"": 3.1}}, ["s"]),
        ({"switch_cost_s": {"": 3.1, "mlp": 1.0}}, ["a", "s"]),
    ],
)
def test_little_time_is_left_for_those_alone_that_may_be_preempted(over: dict[str, Any], expected: list[str]) -> None:
    """Six of ten seconds are left."""
    assert who(a_tick(WAITS, SESSION), **over) == expected


def test_one_that_may_not_be_preempted_waits_where_the_next_round_is_planned_without_it() -> None:
    other = replace(SESSION, id="t")
    assert who(a_tick(WAITS, SESSION, other)) == ["a", "s", "t"]
    assert who(a_tick(WAITS, SESSION, other, plans=(NOW, NEXT))) == ["a", "s"]


def test_jobs_of_a_tier_with_a_cap_wait_for_the_next_round() -> None:
    capped = a_job("c", spec={"tier": "capped"})
    assert who(a_tick(capped, WAITS)) == ["a"]


def test_a_gap_that_did_not_change_is_not_worked_out_twice() -> None:
    """Only rounds, gangs that are there, workers and those that wait make a difference."""
    there, gone = a_gang("z", 1, ["fast-0"]), replace(a_gang("y", 2, ["fast-1"]), state=GangState.ENDED)
    tick = a_tick(WAITS, plans=(NOW, NEXT), gangs=(there, gone))
    gap_now = gap(tick)
    assert gap_now is not None
    assert gap_now.question == (3, 4, frozenset({("z", 1)}), ("fast-0", "fast-1"), (WAITS,))
    assert replace(gap_now, ahead=None, now_s=5.0).question == (
        3,
        0,
        frozenset({("z", 1)}),
        ("fast-0", "fast-1"),
        (WAITS,),
    )


def test_leases_of_the_round_in_force_count_only_until_they_end() -> None:
    cut: Lease = replace(HELD, expires_at_s=3.0)
    full = a_plan([cut, a_lease("y", 1, "fast-1")])
    tick = a_tick(WAITS, plans=(full,))
    tick.put(replace(RUNNING, id="y"))
    assert who(tick) == ["a"]
