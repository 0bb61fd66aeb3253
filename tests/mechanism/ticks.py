"""Ticks and stored rounds of which only what is given is read."""

from collections.abc import Iterable, Sequence
from typing import Any, cast

from gavel.mechanism.tick import Tick
from gavel.ports import Snapshot
from gavel.types import (
    Allocation,
    AllocationProblem,
    Cluster,
    GangSeen,
    Job,
    Observation,
    RoundPlan,
    RoundRecord,
    Tier,
)

GOLD = Tier(name="gold")


def a_record(plan: RoundPlan, **over: Any) -> RoundRecord:
    """A stored round, without its problem and its allocation."""
    problem, allocation = cast(AllocationProblem, None), cast(Allocation, None)
    return RoundRecord(plan=plan, problem=problem, allocation=allocation, **over)


def tick_at(
    now_s: float,
    cluster: Cluster,
    jobs: Iterable[Job],
    *,
    records: Iterable[RoundRecord] = (),
    tiers: Iterable[Tier] = (GOLD,),
    gangs: Sequence[GangSeen] = (),
    **over: Any,
) -> Tick:
    """A tick at the instant, with `over` in place of what it has worked out so far."""
    by_name = {tier.name: tier for tier in tiers}
    tick = Tick(
        now_s=now_s,
        seen=Observation(observed_at_s=now_s, cluster=cluster, gangs=tuple(gangs)),
        snapshot=Snapshot(version=0, jobs={}, tiers=by_name, round_records=tuple(records)),
        jobs={job.id: job for job in jobs},
    )
    for name, value in over.items():
        setattr(tick, name, value)
    return tick
